"""Adopts a data directory that tensor2tensor made."""

import contextlib
import dataclasses
import glob
import shutil
from pathlib import Path

import tensorflow as tf

from t2t_keras.data.checksums import sha256
from t2t_keras.data.decoded_pairs import read_pairs
from t2t_keras.data.json_files import write_json
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.sides import SIDES, SPLITS
from t2t_keras.data.split_files import find_shards, index_path, shard_name
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import EOS, Tokenizer
from t2t_keras.text.tokenizers import load_tokenizer
from t2t_keras.text.vocabulary_file import write_vocabulary

_SUFFIX = ".subwords"
_CHECKED = 100  # number of records of each split that are checked
_CHANGED = 0.1  # the share of them that may change when decoded and encoded again


def adopt(
    problem: Problem,
    prefix: str | Path,
    data_dir: str | Path,
    vocab: str | Path | None = None,
) -> Manifest:
    """Makes a data directory with links to tensor2tensor's TFRecords.

    The files themselves are not changed. tensor2tensor drops long examples only when it
    reads its files, so `batch_tokens` must be large enough for the longest one.

    Args:
        problem: the problem to use the data for, such as `translate_ende`.
        prefix: the path and the beginning of the names of the files:
            `t2t_data/translate_ende_wmt32k`.
        data_dir: the directory for the links, the indices, a copy of the vocabulary,
            and the manifest.
        vocab: the vocabulary of both languages; None: the only one beside the files.

    Returns:
        The manifest.

    Raises:
        UserError: there are no such files, they were made with another vocabulary, or
            the directory already has data of the problem.
    """
    prefix, data_dir, name = Path(prefix), Path(data_dir), problem.data_name
    vocab = Path(vocab) if vocab else _only_vocabulary(prefix.parent)
    stem = glob.escape(prefix.name)
    splits = [s for s in SPLITS if any(prefix.parent.glob(f"{stem}-{s}-*"))]
    shards = {split: find_shards(prefix.parent, prefix.name, split) for split in splits}
    if "train" not in shards:
        find_shards(prefix.parent, prefix.name, "train")  # raises: there are none
    manifest_path = Manifest.path(data_dir, name)
    shards_there = data_dir.glob(f"{glob.escape(name)}-*-?????-of-?????")
    if manifest_path.exists() or any(shards_there):
        raise UserError(
            f"{data_dir} has data of '{name}' already; give another --data_dir"
        )
    tokenizer = load_tokenizer(vocab, _SUFFIX)
    copy = data_dir / f"{vocab.name.removesuffix(_SUFFIX)}{_SUFFIX}"
    if copy.exists() and sha256(copy) != sha256(vocab):
        raise UserError(f"{copy} is another vocabulary; give another --data_dir")
    with contextlib.ExitStack() as undo:
        if not data_dir.exists():
            undo.callback(shutil.rmtree, data_dir)
            data_dir.mkdir(parents=True)
        if not copy.exists():
            undo.callback(copy.unlink, missing_ok=True)
            write_vocabulary(copy, vocab.read_bytes())
        indices = {}
        for split, files in shards.items():
            made = [
                data_dir / shard_name(name, split, number, len(files))
                for number in range(len(files))
            ]
            for file in (*made, index_path(data_dir, name, split)):
                undo.callback(file.unlink, missing_ok=True)
            for link, shard in zip(made, files, strict=True):
                link.symlink_to(shard.resolve())
            indices[split] = RecordIndex.open(data_dir, name, split)
            _refuse_packed(files, f"{prefix}-{split}")
            _check(indices[split], f"{prefix}-{split}", vocab, tokenizer)
        undo.pop_all()  # nothing was refused
    manifest = Manifest(
        problem=name,
        seed=0,
        tokenizer="t2t_subword",
        vocab_size=tokenizer.vocab_size,
        shared_vocab=True,
        symbols=(),
        max_length=0,  # no limit
        sources=dict.fromkeys(indices, f"tensor2tensor {prefix.resolve()}"),
        given_vocabularies={copy.name: sha256(copy)},
        vocab_files=dict.fromkeys(SIDES, copy.name),
        vocab_sizes=dict.fromkeys(SIDES, tokenizer.vocab_size),
        vocab_sha256=dict.fromkeys(SIDES, sha256(copy)),
        examples={split: len(index) for split, index in indices.items()},
        dropped={split: {} for split in indices},
        tokens={
            split: {
                "source": int(index.source_length.sum()),
                "target": int(index.target_length.sum()),
            }
            for split, index in indices.items()
        },
        index_sha256={split: index.sha256() for split, index in indices.items()},
        license=problem.license,
    )
    # Last: with it the directory is complete.
    write_json(manifest_path, dataclasses.asdict(manifest), with_checksum=True)
    return manifest


def _only_vocabulary(directory: Path) -> Path:
    """Returns the only vocabulary file of a directory."""
    found = sorted(directory.glob("vocab.*"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "no vocab.* file"
        raise UserError(f"adopt: {directory} has {names}; give one by --vocab")
    return found[0]


def _refuse_packed(shards: list[Path], files: str) -> None:
    """Refuses a packed data set, whose examples consist of several pairs each."""
    for record in tf.data.TFRecordDataset([str(path) for path in shards]).take(1):
        example = tf.train.Example.FromString(record.numpy())
        if any(name.endswith("_segmentation") for name in example.features.feature):
            raise UserError(
                f"{files}-* are of a packed problem: each example joins several pairs; "
                "give the files of the problem without '_packed'"
            )


def _check(index: RecordIndex, files: str, vocab: Path, tokenizer: Tokenizer) -> None:
    """Checks whether some records were made with this vocabulary.

    A text is encoded in one way only, so decoding ids and encoding the text gives them
    again, and with another vocabulary hardly ever.
    """
    changed = 0
    count = min(_CHECKED, len(index))
    for pair in read_pairs(index, range(count)):
        highest = max(map(max, pair))
        if highest >= tokenizer.vocab_size:
            raise UserError(
                f"{files}-* have the id {highest}, and {vocab} has "
                f"{tokenizer.vocab_size} tokens; give the right one by --vocab"
            )
        if any(side[-1] != EOS for side in pair):
            raise UserError(f"{files}-*: a record does not end in {EOS}, the EOS")
        texts = map(tokenizer.decode, pair)
        changed += [*map(tokenizer.encode, texts)] != [list(side) for side in pair]
    if changed > count * _CHANGED:
        raise UserError(
            f"{files}-* were made with another vocabulary than {vocab}: {changed} of "
            f"{count} records have other ids when they are decoded and encoded again; "
            "give the right one by --vocab"
        )
