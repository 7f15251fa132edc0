"""Makes a data directory of the TFRecords that tensor2tensor wrote."""

import contextlib
import dataclasses
import glob
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.record_index import RecordIndex, find_shards, index_path, shard_name
from t2t_keras.errors import UserError
from t2t_keras.files.json_files import sha256, write_json
from t2t_keras.problem import SIDES, SPLITS, Problem, Split
from t2t_keras.text.tokenizer import Tokenizer, load_tokenizer
from t2t_keras.text.vocabulary import EOS, write_vocabulary

from .subwords import SubwordTokenizer

_SUFFIX = SubwordTokenizer.suffix

# This many records of each split are checked, and this share of them may change when
# they are decoded and encoded again.
_CHECKED_RECORDS = 100
_MAX_CHANGED_SHARE = 0.1


def adopt(
    problem: Problem,
    prefix: str | Path,
    data_dir: str | Path,
    vocab: str | Path | None = None,
) -> Manifest:
    """Makes a data directory with links to tensor2tensor's TFRecords.

    The files themselves are not changed. They hold long examples too, which
    tensor2tensor drops when it reads them; `batch_tokens` must be large enough for the
    longest one.

    Args:
        problem: the problem to use the data for, such as `translate_ende`.
        prefix: the common path of the files: `t2t_data/translate_ende_wmt32k`.
        data_dir: the directory for the links, the indices, a copy of the vocabulary,
            and the manifest.
        vocab: the vocabulary of both languages; None: the only one beside the files.

    Raises:
        UserError: there are no such files, they were made with another vocabulary, or
            the directory already has data of the problem.
    """
    prefix = Path(prefix)
    data_dir = Path(data_dir)
    name = problem.data_name
    vocab = Path(vocab) if vocab else _only_vocabulary(prefix.parent)
    shards = _find_splits(prefix)
    _require_no_data(data_dir, name)
    tokenizer = load_tokenizer(vocab, _SUFFIX)
    vocab_copy = data_dir / f"{vocab.name.removesuffix(_SUFFIX)}{_SUFFIX}"
    if vocab_copy.exists() and sha256(vocab_copy) != sha256(vocab):
        raise UserError(f"{vocab_copy} is another vocabulary; give another --data_dir")
    indices = {}
    with contextlib.ExitStack() as undo:
        if not data_dir.exists():
            undo.callback(shutil.rmtree, data_dir)
            data_dir.mkdir(parents=True)
        if not vocab_copy.exists():
            undo.callback(vocab_copy.unlink, missing_ok=True)
            write_vocabulary(vocab_copy, vocab.read_bytes())
        for split, files in shards.items():
            undo.callback(index_path(data_dir, name, split).unlink, missing_ok=True)
            for index, file in enumerate(files):
                link = data_dir / shard_name(name, split, index, len(files))
                undo.callback(link.unlink, missing_ok=True)
                link.symlink_to(file.resolve())
            indices[split] = RecordIndex.open(data_dir, name, split)
            _refuse_packed(files, f"{prefix}-{split}")
            _check_vocabulary(indices[split], f"{prefix}-{split}", vocab, tokenizer)
        # Nothing was refused, so everything stays.
        undo.pop_all()
    manifest = _manifest(problem, indices, prefix, vocab_copy, tokenizer.vocab_size)
    # The manifest is written last, since it makes the directory complete.
    path = Manifest.path(data_dir, name)
    write_json(path, dataclasses.asdict(manifest), with_checksum=True)
    return manifest


def _only_vocabulary(directory: Path) -> Path:
    """Returns the only vocabulary file of a directory."""
    paths = sorted(directory.glob("vocab.*"))
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths) or "no vocab.* file"
        raise UserError(f"adopt: {directory} has {names}; give one by --vocab")
    return paths[0]


def _find_splits(prefix: Path) -> dict[Split, list[Path]]:
    """Returns the shards of each split; raises UserError without training data."""
    stem = glob.escape(prefix.name)
    shards = {}
    for split in SPLITS:
        # The training data must exist; `find_shards` raises if they do not.
        if split == "train" or any(prefix.parent.glob(f"{stem}-{split}-*")):
            shards[split] = find_shards(prefix.parent, prefix.name, split)
    return shards


def _require_no_data(data_dir: Path, name: str) -> None:
    """Raises UserError if a directory has data of the problem."""
    shards = data_dir.glob(f"{glob.escape(name)}-*-?????-of-?????")
    if Manifest.path(data_dir, name).exists() or any(shards):
        raise UserError(
            f"{data_dir} has data of '{name}' already; give another --data_dir"
        )


def _refuse_packed(shards: Sequence[Path], files: str) -> None:
    """Raises UserError if examples consist of several pairs each."""
    for record in tf.data.TFRecordDataset([str(path) for path in shards]).take(1):
        example = tf.train.Example.FromString(record.numpy())
        if any(name.endswith("_segmentation") for name in example.features.feature):
            raise UserError(
                f"{files}-* are of a packed problem: each example joins several pairs; "
                "give the files of the problem without '_packed', and pack rows in "
                "training with `--hparams bucketing=packed`"
            )


def _check_vocabulary(
    index: RecordIndex, files: str, vocab: Path, tokenizer: Tokenizer
) -> None:
    """Raises UserError if some records were made with another vocabulary.

    A text has only one encoding, so a record stays the same when it is decoded and
    encoded again. With another vocabulary it hardly ever does.
    """
    num_changed = 0
    count = min(_CHECKED_RECORDS, len(index))
    for source, target in read_pairs(index, range(count)):
        max_id = max(*source, *target)
        if max_id >= tokenizer.vocab_size:
            raise UserError(
                f"{files}-* have the id {max_id}, and {vocab} has "
                f"{tokenizer.vocab_size} tokens; give the right one by --vocab"
            )
        if source[-1] != EOS or target[-1] != EOS:
            raise UserError(f"{files}-*: a record does not end in {EOS}, the EOS")
        if not (_is_stable(source, tokenizer) and _is_stable(target, tokenizer)):
            num_changed += 1
    if num_changed > count * _MAX_CHANGED_SHARE:
        raise UserError(
            f"{files}-* were made with another vocabulary than {vocab}: {num_changed} "
            f"of {count} records have other ids when they are decoded and encoded "
            "again; give the right one by --vocab"
        )


def _is_stable(ids: Sequence[int], tokenizer: Tokenizer) -> bool:
    return tokenizer.encode(tokenizer.decode(ids)) == list(ids)


def _manifest(
    problem: Problem,
    indices: Mapping[Split, RecordIndex],
    prefix: Path,
    vocab: Path,
    vocab_size: int,
) -> Manifest:
    tokens: dict[Split, dict[str, int]] = {}
    for split, index in indices.items():
        tokens[split] = {
            "source": int(index.source_length.sum()),
            "target": int(index.target_length.sum()),
        }
    return Manifest(
        problem=problem.data_name,
        seed=0,
        tokenizer="t2t_subword",
        vocab_size=vocab_size,
        shared_vocab=True,
        symbols=(),
        # 0 means that there is no limit.
        max_length=0,
        sources=dict.fromkeys(indices, f"tensor2tensor {prefix.resolve()}"),
        given_vocabularies={vocab.name: sha256(vocab)},
        vocab_files=dict.fromkeys(SIDES, vocab.name),
        vocab_sizes=dict.fromkeys(SIDES, vocab_size),
        vocab_sha256=dict.fromkeys(SIDES, sha256(vocab)),
        examples={split: len(index) for split, index in indices.items()},
        dropped={split: {} for split in indices},
        tokens=tokens,
        index_sha256={split: index.sha256() for split, index in indices.items()},
        license=problem.license,
    )
