"""Makes run directories of tensor2tensor's training directories."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.files.json_files import sha256
from t2t_keras.files.text_files import read_text
from t2t_keras.problem import SIDES, Problem
from t2t_keras.text.tokenizer import load_tokenizer
from t2t_keras.usr_dir import load_usr_dir

from ..imported_run import (
    DEFAULT_PROBLEM,
    ImportedRun,
    VocabularyFile,
    require_empty,
    write_run,
)
from .checkpoint import T2TModel, build, list_checkpoints, load_t2t, vocab_sizes
from .subwords import SubwordTokenizer

_SUFFIX = SubwordTokenizer.suffix
_LEFT_OUT = (
    "the number of training steps, which hparams.json does not have",
    "the optimizer's state: training cannot be resumed; start one with `--init_from`",
)


def import_t2t_run(
    source: str | Path,
    output_dir: str | Path,
    *,
    problem: str | None = None,
    vocab: Sequence[str | Path] = (),
    data_dir: str | Path | None = None,
    hparams_json: str | Path | None = None,
    target_space_id: int | None = None,
    num_checkpoints: int = 1,
    usr_dir: str | Path | None = None,
) -> ImportedRun:
    """Writes a run directory with the model of a tensor2tensor training.

    The run can be used, evaluated, averaged, exported and fine-tuned (`--init_from`)
    like any other. Its training cannot be resumed, because the optimizer's state is
    not imported.

    Args:
        source: a training directory, or one of its checkpoints without suffix.
        output_dir: the new run directory.
        problem: the problem to use the model for; None: the problem in tensor2tensor's
            flags if it is one of ours, else `translate_text`.
        vocab: the vocabulary file of both languages, or those of source and target;
            if empty, the `vocab.*` beside the checkpoint or in the data directory of
            tensor2tensor's flags that have as many tokens as the model.
        data_dir: our data directory of the problem, with the same vocabularies, for
            evaluations; None: there are no data.
        hparams_json: its hyper-parameters; None: the `hparams.json` beside it.
        target_space_id: see `load_t2t`.
        num_checkpoints: the number of checkpoints to import, the newest ones.
        usr_dir: the folder that registers the problem; the run remembers it.

    Raises:
        UserError: see `load_t2t`; or a vocabulary is missing or not the model's, there
            is no such problem, the data have other vocabularies, or the directory is
            not empty.
    """
    output_dir = Path(output_dir)
    require_empty(output_dir)
    source = Path(source)
    if num_checkpoints > 1 and not source.is_dir():
        raise UserError("--last is for a directory, and SOURCE is a checkpoint")
    if usr_dir is not None:
        load_usr_dir(usr_dir)
    directory = source if source.is_dir() else source.parent
    flags = _read_flags(directory)
    check: list[str] = []
    task = _choose_problem(problem, flags, check)
    available = list_checkpoints(source)
    checkpoints = available[-num_checkpoints:]
    if len(available) < num_checkpoints:
        check.append(
            f"the checkpoints: there are only {len(available)}, not {num_checkpoints}"
        )
    hparams_json = hparams_json or directory / "hparams.json"
    newest = load_t2t(checkpoints[-1], hparams_json, target_space_id)
    # Building the model shows whether hparams and weights belong together.
    build(newest.hparams, newest.weights)
    vocab_paths = _choose_vocabularies(newest, vocab, directory, flags)
    if task.reverse and vocab_paths[0] != vocab_paths[1]:
        check.append("the vocabularies of source and target, since the problem is _rev")
    run = write_run(
        output_dir,
        task,
        flags.get("hparams_set", "tensor2tensor"),
        newest.hparams,
        _vocabulary_files(vocab_paths),
        _weights(newest, checkpoints[:-1], hparams_json),
        data_dir,
        usr_dir,
    )
    took: dict[str, Any] = {
        "checkpoints": [str(path) for path in checkpoints],
        "hyper-parameters": str(hparams_json),
        "vocabularies": [str(path) for path in dict.fromkeys(vocab_paths)],
        "problem": task.name,
    }
    if newest.target_space_id is not None:
        took["target space"] = newest.target_space_id
        if target_space_id is None:
            check.append(
                f"the target space {newest.target_space_id}, the only one with which "
                "the optimizer has changed the model"
            )
    unused = _unused_checkpoints(directory, available, checkpoints)
    left_out = [*newest.left_out, *unused, *_LEFT_OUT]
    return ImportedRun(run, took, left_out, check).recorded("tensor2tensor")


def _weights(
    newest: T2TModel, older_paths: Sequence[Path], hparams_json: str | Path
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields the step and weights of each checkpoint.

    Only one older checkpoint is in memory at a time.
    """
    yield newest.step, newest.weights
    for path in older_paths:
        model = load_t2t(path, hparams_json, newest.target_space_id)
        yield model.step, model.weights


def _unused_checkpoints(
    directory: Path, available: Sequence[Path], imported: Sequence[Path]
) -> list[str]:
    """Returns a sentence for each checkpoint that is not imported."""
    sentences = []
    for path in available:
        if path not in imported:
            sentences.append(f"the checkpoint {path.name}")
    for path in sorted(directory.glob("*average*.index")):
        if path.with_suffix("") not in imported:
            sentences.append(
                f"the checkpoint {path.stem}, an average; import it by its path"
            )
    return sentences


def _read_flags(directory: Path) -> dict[str, str]:
    """Returns the flags that tensor2tensor wrote into a training directory."""
    flags: dict[str, str] = {}
    for name in ("flags.txt", "flags_t2t.txt"):
        path = directory / name
        text = read_text(path) if path.exists() else ""
        for line in text.split("\n"):
            flag, _, value = line.removeprefix("--").partition("=")
            flags[flag] = value
    return flags


def _choose_problem(
    name: str | None, flags: dict[str, str], check: list[str]
) -> Problem:
    """Returns the problem; adds a sentence to `check` if the user did not choose it."""
    if name is not None:
        return registry.problem(name)
    t2t_name = flags.get("problem", flags.get("problems", ""))
    base_name = t2t_name.removesuffix("_rev")
    suffix = "_rev" if base_name != t2t_name else ""
    # "translate_ende_wmt32k" is our problem "translate_ende", without the corpus.
    short_name = "_".join(base_name.split("_")[:2])
    problem_name = DEFAULT_PROBLEM
    problems = registry.list_problems()
    for candidate in (base_name, short_name):
        if candidate in problems:
            problem_name = candidate + suffix
            break
    reason = f"tensor2tensor's is {t2t_name}" if t2t_name else "no flags.txt names it"
    check.append(f"the problem {problem_name} ({reason}); another one: --problem")
    return registry.problem(problem_name)


def _choose_vocabularies(
    model: T2TModel,
    paths: Sequence[str | Path],
    directory: Path,
    flags: dict[str, str],
) -> tuple[Path, Path]:
    """Returns the vocabulary files of source and target.

    Args:
        model: the model.
        paths: the user's choice: no path, one for both languages, or two.
        directory: the training directory.
        flags: tensor2tensor's flags, which may name the data directory.

    Raises:
        UserError: they are not those of the model, or several files may be.
    """
    source_size, target_size = vocab_sizes(model.weights)
    target_size = target_size or source_size
    if paths:
        source = Path(paths[0])
        target = Path(paths[-1])
        if sha256(source) == sha256(target):
            target = source
        elif model.hparams.share_embeddings:
            raise UserError(
                f"the model has one matrix for both languages, and {source} and "
                f"{target} differ; give the vocabulary that it was trained with"
            )
        _require_size(source, source_size)
        _require_size(target, target_size)
        return source, target
    directories = [directory]
    if flags.get("data_dir"):
        directories.append(Path(flags["data_dir"]).expanduser())
    sizes = _vocabulary_sizes(directories)
    return (
        _only_of_size(source_size, sizes, directories),
        _only_of_size(target_size, sizes, directories),
    )


def _require_size(path: Path, size: int) -> None:
    """Raises UserError if a vocabulary does not have this size."""
    tokens = load_tokenizer(path, _SUFFIX).vocab_size
    if tokens != size:
        raise UserError(
            f"{path} has {tokens} tokens, and the checkpoint's embedding has {size} "
            "rows; give the vocabulary that the model was trained with"
        )


def _vocabulary_sizes(directories: Sequence[Path]) -> dict[Path, int]:
    """Returns the sizes of all different subword vocabularies in some directories."""
    sizes: dict[Path, int] = {}
    hashes = set[str]()
    for directory in directories:
        for path in sorted(directory.glob("vocab.*")):
            try:
                size = load_tokenizer(path, _SUFFIX).vocab_size
            except UserError:
                # The file is not a subword vocabulary.
                continue
            content_hash = sha256(path)
            if content_hash not in hashes:
                hashes.add(content_hash)
                sizes[path] = size
    return sizes


def _only_of_size(
    size: int, sizes: dict[Path, int], directories: Sequence[Path]
) -> Path:
    """Returns the only vocabulary of a size; raises UserError if there is not one."""
    paths = [path for path, tokens in sizes.items() if tokens == size]
    if len(paths) != 1:
        names = ", ".join(map(str, paths)) or "none"
        locations = " and ".join(map(str, directories))
        raise UserError(
            f"the model has {size} tokens, and of the vocabularies in {locations} as "
            f"many have: {names}; give the right one by --vocab (two for source and "
            "target)"
        )
    return paths[0]


def _vocabulary_files(
    paths: tuple[Path, Path],
) -> tuple[VocabularyFile, VocabularyFile]:
    """Returns the vocabularies with the names of their files in a run directory."""
    files = []
    for path, side in zip(paths, SIDES, strict=True):
        # "vocab.translate_enzh_wmt8k.8192.subwords.en" keeps its language.
        name = path.name.removeprefix("vocab.").replace(_SUFFIX, "")
        if paths[0] != paths[1]:
            name = f"{side}.{name}"
        files.append(VocabularyFile(f"vocab.{name}{_SUFFIX}", path.read_bytes()))
    return files[0], files[1]
