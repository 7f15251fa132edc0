"""Converts a tensor2tensor training directory to a run directory."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras import registry
from t2t_keras.data.checksums import sha256
from t2t_keras.data.sides import SIDES
from t2t_keras.data.text_files import read_text
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizers import load_tokenizer
from t2t_keras.usr_dir import load_usr_dir

from .imported_run import (
    DEFAULT_PROBLEM,
    ImportedRun,
    VocabularyFile,
    require_empty,
    write_run,
)
from .t2t_checkpoint import (
    T2TModel,
    build,
    checkpoints,
    load_t2t,
    vocab_sizes,
)

_SUFFIX = ".subwords"
_SUFFIXES = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")  # of a checkpoint's files
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
    last: int = 1,
    usr_dir: str | Path | None = None,
) -> ImportedRun:
    """Writes a run directory with the model of a tensor2tensor training.

    It can be used, evaluated, averaged and exported like any other, and be the start of
    another training, but its own cannot be resumed, because the optimizer's state is
    not imported.

    Args:
        source: a training directory, or one of its checkpoints without suffix.
        output_dir: the new run directory.
        problem: the problem to use the model for; None: that of tensor2tensor's flags
            if it is one of ours, else `translate_text`.
        vocab: the vocabulary file of both languages, or those of source and target;
            none: the `vocab.*` beside the checkpoint or in the data directory of
            tensor2tensor's flags that have as many tokens as the model.
        data_dir: our data directory of the problem, with the same vocabularies, for
            evaluations; None: there is none.
        hparams_json: its hyper-parameters; None: the `hparams.json` beside it.
        target_space_id: see `load_t2t`.
        last: the number of checkpoints to take, the newest ones.
        usr_dir: the folder that registers the problem, which the run remembers.

    Raises:
        UserError: as in `load_t2t`; or a vocabulary is not the model's or not found,
            there is no such problem, the data have other vocabularies, or the directory
            is not empty.
    """
    source, output_dir = Path(source), Path(output_dir)
    require_empty(output_dir)
    source = source.with_name(_SUFFIXES.sub("", source.name))
    if last > 1 and not source.is_dir():
        raise UserError("--last is for a directory, and SOURCE is a checkpoint")
    if usr_dir is not None:
        load_usr_dir(usr_dir)
    directory = source if source.is_dir() else source.parent
    flags = _flags(directory)
    check: list[str] = []
    task = _problem(problem, flags, check)
    found = checkpoints(source)
    taken = found[-last:]
    hparams_json = hparams_json or directory / "hparams.json"
    if len(found) < last:
        check.append(f"the checkpoints: there are only {len(found)}, not {last}")
    newest = load_t2t(taken[-1], hparams_json, target_space_id)
    build(newest.hparams, newest.weights)  # raises if these do not belong together
    files = _vocabularies(newest, [Path(path) for path in vocab], directory, flags)
    if task.reverse and len(set(files)) == 2:
        check.append("the vocabularies of source and target, since the problem is _rev")

    def each() -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        yield newest.step, newest.weights
        for path in taken[:-1]:  # one at a time, because all may not fit into memory
            other = load_t2t(path, hparams_json, newest.target_space_id)
            yield other.step, other.weights

    run = write_run(
        output_dir,
        task,
        flags.get("hparams_set", "tensor2tensor"),
        newest.hparams,
        _vocabulary_files(files),
        each(),
        data_dir,
        usr_dir,
    )
    took: dict[str, Any] = {
        "checkpoints": [str(path) for path in taken],
        "hyper-parameters": str(hparams_json),
        "vocabularies": [str(path) for path in dict.fromkeys(files)],
        "problem": task.name,
    }
    if newest.target_space_id is not None:
        took["target space"] = newest.target_space_id
        if target_space_id is None:
            check.append(
                f"the target space {newest.target_space_id}, the only one with which "
                "the optimizer has changed the model"
            )
    others = [f"the checkpoint {path.name}" for path in found if path not in taken]
    others += [
        f"the checkpoint {path.stem}, an average; import it by its path"
        for path in sorted(directory.glob("*average*.index"))
        if path.with_suffix("") not in taken
    ]
    left_out = [*newest.left_out, *others, *_LEFT_OUT]
    return ImportedRun(run, took, left_out, check).recorded("tensor2tensor")


def _flags(directory: Path) -> dict[str, str]:
    """Returns the flags that tensor2tensor has kept in a training directory."""
    flags: dict[str, str] = {}
    for name in ("flags.txt", "flags_t2t.txt"):
        path = directory / name
        text = read_text(path) if path.exists() else ""
        for line in text.split("\n"):
            flag, _, value = line.removeprefix("--").partition("=")
            flags[flag] = value
    return flags


def _problem(name: str | None, flags: dict[str, str], check: list[str]) -> Problem:
    """Returns the problem; `check` gets a sentence if it is not the user's choice."""
    if name is not None:
        return registry.problem(name)
    theirs = flags.get("problem", flags.get("problems", ""))
    ours, suffix = DEFAULT_PROBLEM, "_rev" if theirs.endswith("_rev") else ""
    name = theirs.removesuffix("_rev")
    # "translate_ende_wmt32k" is ours without the corpus.
    known = registry.list_problems()
    for candidate in (name, "_".join(name.split("_")[:2])):
        if candidate in known:
            ours = candidate + suffix
            break
    reason = f"tensor2tensor's is {theirs}" if theirs else "no flags.txt names it"
    check.append(f"the problem {ours} ({reason}); another one: --problem")
    return registry.problem(ours)


def _vocabularies(
    model: T2TModel, given: list[Path], directory: Path, flags: dict[str, str]
) -> tuple[Path, Path]:
    """Returns the vocabulary files of source and target.

    Raises:
        UserError: they are not those of the model, or cannot be told from others.
    """
    source_size, target_size = vocab_sizes(model.weights)
    rows = (source_size, target_size or source_size)
    if given:
        files = given[0], given[-1]
        if sha256(files[0]) == sha256(files[1]):
            files = files[0], files[0]
        elif model.hparams.share_embeddings:
            raise UserError(
                f"the model has one matrix for both languages, and {files[0]} and "
                f"{files[1]} differ; give the vocabulary that it was trained with"
            )
        for path, size in zip(files, rows, strict=True):
            if (tokens := load_tokenizer(path, _SUFFIX).vocab_size) != size:
                raise UserError(
                    f"{path} has {tokens} tokens, and the checkpoint's embedding has "
                    f"{size} rows; give the vocabulary that the model was trained with"
                )
        return files
    folders = [directory]
    if flags.get("data_dir"):
        folders.append(Path(flags["data_dir"]).expanduser())
    sizes: dict[Path, int] = {}
    known = set[str]()
    for path in (p for folder in folders for p in sorted(folder.glob("vocab.*"))):
        try:
            tokens = load_tokenizer(path, _SUFFIX).vocab_size
        except UserError:  # another kind of vocabulary
            continue
        if (content := sha256(path)) not in known:
            known.add(content)
            sizes[path] = tokens
    chosen = []
    for size in rows:
        fitting = [path for path, tokens in sizes.items() if tokens == size]
        if len(fitting) != 1:
            names = ", ".join(map(str, fitting)) or "none"
            places = " and ".join(map(str, folders))
            raise UserError(
                f"the model has {size} tokens, and of the vocabularies in {places} as "
                f"many have: {names}; give the right one by --vocab (two for source "
                "and target)"
            )
        chosen += fitting
    return chosen[0], chosen[1]


def _vocabulary_files(
    paths: tuple[Path, Path],
) -> tuple[VocabularyFile, VocabularyFile]:
    """Returns the vocabularies under the names that they get in a run directory."""
    files = []
    for path, side in zip(paths, SIDES, strict=True):
        # "vocab.translate_enzh_wmt8k.8192.subwords.en" keeps its language.
        name = path.name.removeprefix("vocab.").replace(_SUFFIX, "")
        if paths[0] != paths[1]:
            name = f"{side}.{name}"
        files.append(VocabularyFile(f"vocab.{name}{_SUFFIX}", path.read_bytes()))
    return files[0], files[1]
