"""The command that scores outputs against references: `evaluate`."""

import dataclasses
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras import load, registry
from t2t_keras.cli.command import (
    CHECKPOINT_HELP,
    FURTHER,
    Command,
    CommandResult,
    EngineName,
    FlagGroup,
    UsrDirFlags,
    check_decoding,
    check_export,
    decoding_flags,
    engine_flag,
    export_command,
)
from t2t_keras.cli.lines import read_lines, require_directory, require_outputs
from t2t_keras.console import columns, say, table
from t2t_keras.errors import UserError, quantity
from t2t_keras.evaluation.bleu import bleu_scores, metrics_of, with_bleu
from t2t_keras.evaluation.tokenization import BleuTokens, has_tokenization
from t2t_keras.exporting.formats import converted, find_loader
from t2t_keras.files.text_files import uncompressed_suffix
from t2t_keras.metrics import LOSS_METRICS
from t2t_keras.options import OptionValues, option
from t2t_keras.problem import Problem, Split
from t2t_keras.run.config import RunConfig, require_run

if TYPE_CHECKING:
    from t2t_keras.evaluation.evaluator import LoadedExport
    from t2t_keras.run.directory import RunDirectory

_NO_LANGUAGE = (
    "Tokenised BLEU is left out, because the language of the references is unknown: "
    "give --language CODE, such as de."
)


_OF_RUN = FlagGroup("evaluate a run's model on a split of the data")
_OF_FILES = FlagGroup("or compare two files, one sentence per line")


@dataclasses.dataclass(kw_only=True)
class Evaluate(UsrDirFlags, Command):
    """Scores a model on a split, or one file against another."""

    summary = "score a model on a split, or one file against another"
    heading = "judging a model"
    waiting = "loading the model"
    words_hint = "to score a file: --hypotheses FILE --references FILE"

    output_dir: str | None = option(
        None,
        "a run directory",
        metavar="RUN",
        positional=True,
        aliases=("--model",),
        group=_OF_RUN,
    )
    data_dir: str | None = option(
        None,
        "data directory (default: the one used in training)",
        metavar="DIR",
        group=_OF_RUN,
    )
    split: Split | None = option(
        None, "split (default: test if there is one, otherwise dev)", group=_OF_RUN
    )
    eval_sentences: int | None = option(
        None,
        "decode only the first N sentences; 0: none; the loss is computed on the whole "
        "split",
        ge=0,
        group=_OF_RUN,
    )
    output: str | None = option(
        None,
        "write the texts to PREFIX.source, .reference and .hypothesis",
        metavar="PREFIX",
        group=_OF_RUN,
    )
    checkpoint: str | None = option(
        None,
        f"{CHECKPOINT_HELP}; 'all': every checkpoint that is not evaluated yet; the "
        "metrics are shown in RUN/evaluation-SPLIT, also for TensorBoard",
        metavar="WHICH",
        group=_OF_RUN,
    )
    export_dir: str | None = option(
        None,
        "evaluate this export of the run instead of a checkpoint; the loss is not "
        "computed",
        metavar="DIR",
        group=_OF_RUN,
    )
    hypotheses: str | None = option(
        None, "the outputs", metavar="FILE", group=_OF_FILES
    )
    references: str | None = option(
        None, "the correct outputs", metavar="FILE", group=_OF_FILES
    )
    all: bool = option(
        False,
        "print all scores of BLEU's report, among them the paper's tokenised BLEU",
        group=FURTHER,
    )
    wait_minutes: float | None = option(
        None,
        "with --checkpoint all: follow a training, even one that has not begun, until "
        "it reaches its last step or M minutes pass without a new checkpoint",
        metavar="M",
        ge=0,
        group=FURTHER,
    )
    tokenize: BleuTokens | None = option(
        None,
        "sacreBLEU tokenization for an additional score; none: the text is already "
        "tokenized (default: the run's or the problem's, else sacreBLEU's for the "
        "language: 13a, zh, ja-mecab, ko-mecab; char for Thai and the like)",
        group=FURTHER,
    )
    language: str | None = option(
        None,
        "language of the references, such as de, on which tokenization depends "
        "(default: the problem's; for files the suffix of --references, as in test.de)",
        metavar="CODE",
        group=FURTHER,
    )
    decoding: OptionValues = decoding_flags("n_best", "raw")
    engine: EngineName = engine_flag(FURTHER)

    def needs_tensorflow(self) -> bool:
        """Returns whether there is a model."""
        return not self.hypotheses

    def decodes_files(self) -> bool:
        """Decodes a whole split."""
        return True

    def check(self) -> None:
        """Refuses flags that do not go together, and paths that are not models."""
        self._check_combination()
        if self.output_dir is None:  # two files are compared
            return
        if find_loader(Path(self.output_dir)):
            raise UserError(
                f"{self.output_dir} is an export; give its run, and the export as "
                "--export_dir"
            )
        if not self.wait_minutes:  # with it, the training may not have begun
            require_run(self.output_dir)
        require_directory("data_dir", self.data_dir)
        suffixes = ("source", "reference", "hypothesis")
        files = [f"{self.output}.{x}" for x in suffixes] if self.output else []
        require_outputs(self, {"output": files})
        check_decoding(self.decoding)
        if self.export_dir:
            engine = self.engine if "engine" in self.given_flags else "auto"
            check_export(self.decoding, self.export_dir, engine)
        if not self.wait_minutes:
            self._find_split(RunConfig.read(Path(self.output_dir)))

    def _find_split(self, config: RunConfig) -> None:
        """Sets the split, before the model is loaded; refuses one that the data lack.

        Args:
            config: the configuration of the run.
        """
        try:
            problem = registry.problem(config.problem)
        except UserError:  # it is in the folder that the run names
            return
        self.split = select_split(
            self.split, problem, [self.data_dir or config.data_dir]
        )

    def _check_combination(self) -> None:
        """Refuses flags that do not go together."""
        if bool(self.hypotheses) != bool(self.references):
            raise UserError("--hypotheses and --references need each other")
        if bool(self.hypotheses) == bool(self.output_dir):
            raise UserError("give either RUN or --hypotheses and --references")
        if self.hypotheses:
            flags = ("hypotheses", "references", "tokenize", "language", "all", "json")
            self.require_only(flags, "--hypotheses and --references")
            return
        if self.export_dir and (self.checkpoint or self.eval_sentences == 0):
            flag = "--checkpoint" if self.checkpoint else "--eval_sentences 0"
            raise UserError(f"{flag} does not go with --export_dir")
        is_all = self.checkpoint == "all"
        if is_all and self.engine == "ctranslate2":
            raise UserError("--engine=ctranslate2 does not go with --checkpoint=all")
        if not is_all and self.wait_minutes is not None:
            raise UserError("--wait_minutes needs --checkpoint=all as well")
        for flag, value in {"output": self.output, "language": self.language}.items():
            if is_all and value is not None:
                raise UserError(f"--{flag} does not go with --checkpoint=all")
        if self.output is not None and self.eval_sentences == 0:
            raise UserError(
                "--output: with --eval_sentences 0 there is nothing to write"
            )

    def run(self) -> CommandResult:
        """Returns the metrics."""
        check_language(self.language)
        if self.hypotheses and self.references:
            hypotheses = list(read_lines(self.hypotheses))
            references = list(read_lines(self.references))
            language = self.language or suffix_language(self.references)
            scores = bleu_scores(hypotheses, references, language, self.tokenize)
            return {"bleu": scores}
        return self._evaluate_run(self.output_dir or "")

    def _evaluate_run(self, output_dir: str) -> dict[str, Any]:
        """Returns the metrics of a checkpoint, of all, or of an export."""
        from t2t_keras.run.evaluation import await_run, continuous_eval, evaluate

        wait_minutes = self.wait_minutes or 0.0
        run = await_run(output_dir, wait_minutes)
        problem = with_scoring(run.problem, self.tokenize, self.language)
        data_dir = self.data_dir or run.config.data_dir
        split = select_split(self.split, run.problem, [data_dir])
        options: OptionValues = {
            "data_dir": self.data_dir,
            "sentences": self.eval_sentences,
            **self.decoding,
        }
        if self.checkpoint == "all":
            points = continuous_eval(
                run, split, problem, wait_minutes=wait_minutes, **options
            )
            best = max(points, key=metrics_of(problem).selection_score)
            decoder = {} if self.eval_sentences == 0 else {"engine": "tensorflow"}
            return {"split": split, **decoder, "checkpoints": points, "best": best}
        checkpoint = self.checkpoint
        engine = None
        if not self.export_dir:
            checkpoint = run.checkpoints.pinned(checkpoint)
            if self.eval_sentences != 0:
                engine = load_engine(run, checkpoint, self.decoding, self.engine)
        return evaluate(
            run,
            split,
            problem,
            checkpoint=checkpoint,
            write=self.output,
            export=_load_export(self.export_dir, run) if self.export_dir else None,
            engine=engine,
            **options,
        )

    def show(self, result: CommandResult) -> str:
        """Formats the metrics; those of BLEU are two, unless `all`."""
        return _shown(result if self.all else _abridged(result))

    def next_command(self) -> str:
        """Returns the command that exports what was evaluated."""
        if self.output_dir is None:
            return ""
        return export_command(self.output_dir, self.checkpoint)


def load_engine(
    run: "RunDirectory",
    checkpoint: str | None,
    options: OptionValues,
    engine: EngineName,
) -> "LoadedExport | None":
    """Returns the conversion of a checkpoint with which an engine decodes.

    One line on standard error says which engine it is.

    Args:
        run: the run directory.
        checkpoint: see `t2t_keras.load`.
        options: the decoding options that are given.
        engine: the engine.

    Returns:
        None: TensorFlow decodes.
    """
    path, _ = converted(run.path, checkpoint, options, engine)
    return load(path) if path != run.path else None


def _load_export(path: str, run: "RunDirectory") -> tuple[str, Any]:
    """Returns the path of an export, and the loaded export.

    Raises:
        UserError: its problem is not the run's.
    """
    export: Any = load(path)
    if export.settings.problem != run.problem.name:
        raise UserError(
            f"--export_dir: {path} is an export of problem '{export.settings.problem}' "
            f"but {run.path} is a run of '{run.problem.name}'; give the run's export"
        )
    return path, export


def check_language(language: str | None) -> None:
    """Refuses a value of `--language` that has no tokenization.

    Raises:
        UserError: it is not such a code.
    """
    from t2t_keras.evaluation import moses

    if language is not None and not has_tokenization(language):
        moses.check_language(language)


def suffix_language(path: str) -> str | None:
    """Returns the language that a file's suffix names; None if it names none."""
    from t2t_keras.evaluation.moses import LANGUAGES

    code = uncompressed_suffix(path)
    return code if code in LANGUAGES or has_tokenization(code) else None


def with_scoring(
    problem: Problem, tokenize: BleuTokens | None, language: str | None = None
) -> Problem:
    """Returns the problem with the metrics that the flags ask for.

    Args:
        problem: the problem.
        tokenize: the value of `--tokenize`, for BLEU only.
        language: the value of `--language`, for BLEU only.

    Raises:
        UserError: a flag was given, and the problem is not scored by BLEU.
    """
    if not (tokenize or language):
        return problem
    return with_bleu(
        problem, "--tokenize" if tokenize else "--language", tokenize, language
    )


def select_split(
    split: Split | None, problem: Problem, data_dirs: Iterable[str]
) -> Split:
    """Returns the split to evaluate: test if all data have it, otherwise dev.

    Args:
        split: the value of `--split`, which is returned if it was given.
        problem: the problem.
        data_dirs: the data directories.

    Raises:
        UserError: a data directory has no data of the problem, or not the split.
    """
    from t2t_keras.data.manifest import Manifest

    splits: dict[str, Collection[Split]] = {}
    for path in data_dirs:
        splits[path] = Manifest.open(Path(path), problem.data_name).examples.keys()
    choice = ""
    if split is None:
        without = [path for path in splits if "test" not in splits[path]]
        split = "dev" if without else "test"
        reason = f": {without[0]} has no test split" if without else ""
        choice = f"evaluating the {split} split{reason}"
    lacking = []
    for path, names in splits.items():
        if split not in names:
            lacking.append(f"{path} has only {' and '.join(names)}")
    if lacking:
        raise UserError(
            f"--split: there is no {split} split: {'; '.join(lacking)}; `t2t datagen` "
            "adds one"
        )
    if choice:
        say(choice)
    return split


def _abridged(result: dict[str, Any]) -> dict[str, Any]:
    """Leaves out all but the first score and chrF of BLEU's reports."""
    abridged = dict(result)
    for name, report in result.items():
        if isinstance(report, dict) and "signatures" in report:
            signatures = report["signatures"]
            main_score = next(iter(signatures))
            names = signatures.keys() & {main_score, "chrf"}
            shown = {name: signatures[name] for name in sorted(names, reverse=True)}
            hidden = len(signatures) - len(shown)
            abridged[name] = report | {"signatures": shown, "hidden": hidden}
    return abridged


def _shown(result: dict[str, Any]) -> str:
    if "checkpoints" in result:
        engine = result.get("engine")
        decoder = f"decoded with: {engine}\n" if engine else ""
        best = f"best: step {result['best']['step']}"
        return f"{columns(result['checkpoints'])}\n\n{decoder}{best}"
    rows = {}
    reports = []
    for name, value in result.items():
        if isinstance(value, dict):
            reports.append(_show_report(value))
        else:
            rows["decoded with" if name == "engine" else name] = value
    return "\n\n".join(filter(None, [*_show_numbers(rows), *reports]))


def _show_numbers(rows: dict[str, Any]) -> list[str]:
    """Formats metrics; losses have their own table if they cover more sentences."""
    total = rows.pop("loss_sentences", None)
    decoded = rows.get("sentences")
    if decoded == total or total is None:
        return [table(rows)]
    loss_rows = {name: rows.pop(name) for name in LOSS_METRICS}
    sections = [table({"sentences": total} | loss_rows)]
    if decoded:
        del rows["sentences"]
        shown = f"the first {quantity(decoded, 'sentences')}"
        sections.append(table({"decoded": shown} | rows))
    return sections


def _show_report(report: dict[str, Any]) -> str:
    """Formats metrics: scores with their signatures, or summaries in columns."""
    if signatures := report.get("signatures"):
        rows = {
            name: f"{report[name]:5.2f} {signature}"  # 80 columns
            for name, signature in signatures.items()
        }
        if report.get("hidden"):
            return (
                f"{table(rows)}\n\n{quantity(report['hidden'], 'other scores')}: --all"
            )
        if report.get("language"):
            return table({"language": report["language"], **rows})
        return f"{table(rows)}\n\n{_NO_LANGUAGE}"
    summaries = {
        title: summary for title, summary in report.items() if isinstance(summary, dict)
    }
    if not summaries:
        return table(report)
    summary_rows = []
    for name in next(iter(summaries.values())):
        row: dict[str, object] = {"": name}
        for title, summary in summaries.items():
            row[title] = summary[name]
        summary_rows.append(row)
    return columns(summary_rows)


COMMANDS = {"evaluate": Evaluate}
