"""Chooses the plan of batches that a training asks for."""

import numpy as np

from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.bucket_plan import BucketPlan
from t2t_keras.data.packed_plan import PackedPlan
from t2t_keras.data.static_shape_plan import StaticShapePlan
from t2t_keras.hparam import Bucketing


def batch_plan(
    bucketing: Bucketing,
    source_length: np.ndarray,
    target_length: np.ndarray,
    batch_tokens: int,
    seed: int,
    swapped: bool = False,
) -> "BatchPlan":
    """Returns the plan that a value of `HParams.bucketing` asks for.

    Args:
        bucketing: see `HParams`; "auto", which `train` replaces, has exact lengths.
        source_length: see `BatchPlan`, as are the other arguments.
        target_length: see `BatchPlan`.
        batch_tokens: see `BatchPlan`.
        seed: see `BatchPlan`.
        swapped: see `BatchPlan`.
    """
    plans = {
        "auto": BatchPlan,  # of a training loop written by the user
        "exact": BatchPlan,
        "t2t": BucketPlan,
        "static": StaticShapePlan,
        "packed": PackedPlan,
    }
    cls = plans[bucketing]
    return cls(source_length, target_length, batch_tokens, seed, swapped)
