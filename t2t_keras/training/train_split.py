"""The train split of a run's data, and the plan of its batches."""

from pathlib import Path
from typing import NamedTuple, Self

from t2t_keras.data.batch_plan import BatchPlan, batch_plan
from t2t_keras.data.records import RecordIndex
from t2t_keras.hparam import HParams
from t2t_keras.problem import Problem
from t2t_keras.training.run_dir import RunConfig


class TrainSplit(NamedTuple):
    """Where the examples are, and which of them make up each batch."""

    index: RecordIndex
    plan: BatchPlan

    @classmethod
    def open(cls, problem: Problem, config: RunConfig, hparams: HParams) -> Self:
        """Plans the batches of a run.

        Raises:
            UserError: there are no such data, or `batch_tokens` is less than the
                longest example.
        """
        index = RecordIndex.open(Path(config.data_dir), problem.data_name, "train")
        plan = batch_plan(
            hparams.bucketing,
            index.source_length,
            index.target_length,
            hparams.batch_tokens,
            config.seed,
        )
        return cls(index, plan)
