"""The object that stands for a run in Python."""

import contextlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from t2t_keras.api.calling import Result, Table, argument_names, call
from t2t_keras.checking import checked
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.entry_points import load_plugin
from t2t_keras.errors import UserError
from t2t_keras.evaluation.tokenization import BleuTokens
from t2t_keras.files.json_files import read_log
from t2t_keras.problem import Split
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.result import TrainResult

if TYPE_CHECKING:
    from pandas import DataFrame


class Run(ModelTranslator):
    """A run: its translations, its records, and what the commands do with it.

        run = t2t_keras.load("runs/my_run")
        run.translate(["A dog runs."])
        run.evaluate("test")
        run.export("served/1")

    It has all methods of `Translator`. The weights are read when they are first needed.
    All methods use the same, even if a training writes others meanwhile.

    Attributes:
        output_dir: the run directory.
        checkpoint: the checkpoint that is used, see `t2t_keras.load`; a path as soon as
            it has been used, except for "ema" and in an ensemble.
        result: how the training has ended, if `t2t_keras.train` returned this object.
    """

    def __init__(
        self,
        output_dir: str | Path,
        checkpoint: str | int | Path | None = None,
        ensemble: Sequence[str | Path] = (),
        result: TrainResult | None = None,
    ) -> None:
        self.output_dir = Path(output_dir)
        self.checkpoint = checkpoint
        self.result = result
        self._ensemble = tuple(ensemble)
        with argument_names():
            self._directory = RunDirectory(output_dir)
        self.problem = self._directory.problem
        self.options = DecodingOptions.of_problem(self.problem)

    def __getattr__(self, name: str) -> Any:
        """Reads the weights when the engine or the model is first needed."""
        if name not in ("engine", "model"):
            raise AttributeError(f"'Run' object has no attribute '{name}'")
        return vars(self.read_weights())[name]

    def __repr__(self) -> str:
        facts = [repr(str(self.output_dir)), f"problem={self.problem.name!r}"]
        with contextlib.suppress(UserError):  # they may have been removed
            path = self._directory.checkpoint_path(self.checkpoint)
            facts.append(f"checkpoint={path.name!r}")
        if self._ensemble:
            facts.append(f"ensemble of {len(self._ensemble) + 1}")
        if self.result is not None:
            facts.append(f"result={self.result!r}")
        return f"Run({', '.join(facts)})"

    def read_weights(self) -> Self:
        """Reads the weights of the checkpoint; returns the object itself.

        Raises:
            UserError: there is no such checkpoint, or a run of the ensemble has other
                vocabularies.
        """
        with argument_names():
            self._keep_checkpoint()
            loaded = self._directory.translator(self.checkpoint, self._ensemble)
        self.engine = loaded.engine
        self.model = loaded.model
        return self

    def evaluate(
        self,
        split: Split | None = None,
        *,
        eval_sentences: int | None = None,
        data_dir: str | Path | None = None,
        output: str | Path | None = None,
        tokenize: BleuTokens | None = None,
        language: str | None = None,
        engine: Literal["ctranslate2", "tensorflow"] | None = None,
        **decoding: Any,
    ) -> Result:
        """Scores the run on a split, see `t2t_keras.evaluate`.

        Args:
            split: the split; None: test if there is one, otherwise dev.
            eval_sentences: number of sentences to decode; None: all; 0: none.
            data_dir: the data directory; None: the one used in training.
            output: the prefix of the files to which the texts are written.
            tokenize: sacreBLEU's tokenization for an additional score.
            language: the language of the references; None: the problem's.
            engine: the library that computes the model; None: CTranslate2 on a CPU
                where it can be used, otherwise TensorFlow.
            **decoding: see `DecodingOptions`.

        Returns:
            The metrics by name, what `t2t evaluate --json` prints.

        Raises:
            UserError: a value is impossible, the data have no such split, or the run
                was loaded with an ensemble.
        """
        if self._ensemble:
            raise UserError("evaluate scores one run; load it without an ensemble")
        return self._call("evaluate", locals() | {"all": True})

    def export(
        self,
        export_dir: str | Path,
        *,
        format: str = "savedmodel",
        quantization: str | None = None,
        verify: int = 20,
        overwrite: bool = False,
        **decoding: Any,
    ) -> Result:
        """Exports the run, see `t2t_keras.export`.

        Args:
            export_dir: the directory to write.
            format: "savedmodel", or the name of another format, such as "ctranslate2".
            quantization: the dtype to which the weights are rounded; None: float32.
            verify: number of sentences whose outputs must equal the run's; 0: the
                export is not verified.
            overwrite: whether an earlier export may be replaced.
            **decoding: options that are fixed in the export, see `DecodingOptions`.

        Returns:
            The size of the export, and how it was verified.

        Raises:
            UserError: a value is impossible, the directory is not empty, or outputs of
                the export differ from the run's.
        """
        return self._call("export", locals() | {"ensemble": self._ensemble})

    @checked
    def attention(self, source: str, target: str | None = None) -> Any:
        """Returns all attention weights for a sentence; a notebook draws them.

        Args:
            source: the source sentence.
            target: its translation; None: the model's.

        Returns:
            A `SentenceAttention`: the tokens and the weights; its method `save` writes
            the page.

        Raises:
            UserError: the source is blank, the translation is empty, or the run was
                loaded with an ensemble.
        """
        command = load_plugin("commands", "attention")
        if command is None:
            raise UserError("the plugin with `t2t attention` is not installed")
        return command.weights(self, source, target)

    @checked
    def history(
        self, kind: Literal["train", "dev"] | None = None
    ) -> "DataFrame | Table":
        """Returns what the training has recorded in `metrics.jsonl`, as a table.

            dev = run.history("dev")
            plt.plot(dev["step"], dev["nll"])

        A row has the step, the kind and the metrics; "nll", the negative log-likelihood
        of a target token in nats, is comparable between the kinds.

        Args:
            kind: the kind of rows: "train", the reports of the training, or "dev", the
                evaluations; None: all, also evaluations of averages and of exports.

        Returns:
            A DataFrame if pandas is installed, otherwise a `Table`.
        """
        records = read_log(
            self.output_dir / "metrics.jsonl",
            lambda record: isinstance(record.get("step"), int),
        )
        table = Table(
            record for record in records if kind in (None, record.get("kind"))
        )
        if importlib.util.find_spec("pandas") is None:
            return table
        from pandas import DataFrame

        return DataFrame(table.records, columns=table.columns)

    def describe(self) -> Result:
        """Describes the run: its settings, its data, its size and its costs.

        Raises:
            UserError: `t2t describe` does not support the model.
        """
        return call("describe", {"hparams_set": self.output_dir.resolve()})

    def _call(self, command: str, arguments: Mapping[str, Any]) -> Result:
        """Runs a command on the weights, with the arguments of a method."""
        with argument_names():
            self._keep_checkpoint()
        values = {**arguments, "output_dir": self.output_dir}
        values["checkpoint"] = self.checkpoint
        del values["self"]
        return call(command, values)

    def _keep_checkpoint(self) -> None:
        """Keeps the checkpoint, even if a training writes others."""
        if not self._ensemble:  # it has several
            self.checkpoint = self._directory.checkpoints.pinned(self.checkpoint)
