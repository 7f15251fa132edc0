"""Raw text to a data directory: vocabulary, TFRecords, index, manifest.

All files are made in `{data_name}.incomplete/` and moved out when every one is there,
the manifest last. What is finished in there is used again when the same command is run
after an interruption, however rude. The bytes depend on the problem, the sources and
the seed only; the memory does not depend on the number of pairs.
"""

import contextlib
import dataclasses
import errno
import fcntl
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from t2t_keras.data.encoding import CHUNK, Encode, Rule, encoders
from t2t_keras.data.files import read_json, sha256, write_array, write_json
from t2t_keras.data.manifest import SPLITS, Manifest, Recipe
from t2t_keras.data.progress import progress, say
from t2t_keras.data.records import (
    find_shards,
    index_path,
    save_index,
    shard_name,
    unfinished_dir,
    write_records,
)
from t2t_keras.data.shuffle import Spills, read_sorted
from t2t_keras.data.vocabulary import (
    SIDES,
    Side,
    draw,
    sample_size,
    train_vocabulary,
    vocab_files,
)
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, Split
from t2t_keras.text.load import load_tokenizer

_REASONS = ("empty", "over_length")  # for which pairs are dropped
_SAVE_EVERY = 200_000  # pairs after which an interrupted encoding can go on


def num_train_shards(num_pairs: int) -> int:
    """Returns how many shards hold so many training pairs.

    One for every 10,000 pairs up to tensor2tensor's 100, and beyond 50 million so many
    that none has to sort more than half a million in memory.
    """
    return max(min(-(-num_pairs // 10_000), 100), -(-num_pairs // 500_000))


def generate(
    problem: Problem, data_dir: str | Path, workers: int | None = None, seed: int = 0
) -> Manifest:
    """Makes the data of a problem.

    A vocabulary file that already stands in the directory under the problem's name is
    used as it is. A directory that is complete is left alone.

    Args:
        problem: with at least a source of training pairs.
        data_dir: where the files go; made if it does not exist.
        workers: number of processes; None: one for each core; 1: all in this process.
            More than one import the main module, so that a script must call this
            function under `if __name__ == "__main__":`.
        seed: of the vocabulary's sample and of the order of the training examples.

    Returns:
        The manifest of the directory.

    Raises:
        UserError: a source is not as it should be, the directory holds data made from
            something else, or it cannot be written.
    """
    problem.source("train")
    data_dir = Path(data_dir)
    work = unfinished_dir(data_dir, problem.data_name)
    recipe = Recipe.of(problem, data_dir, seed)
    with _user_errors(data_dir, work):
        manifest = _complete(recipe, data_dir)
        if manifest is None:
            with _lock(work):
                job = _Job(problem, recipe, data_dir, work, workers or _num_cores())
                return job.run()
        shutil.rmtree(work, ignore_errors=True)  # of a run killed at its very end
    say(f"{data_dir}: the data of '{recipe.problem}' is there already")
    return manifest


def _num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def _user_errors(data_dir: Path, work: Path) -> Iterator[None]:
    """Says in one sentence that the disk is full or cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"the disk of {data_dir} is full; free some space and run the same "
                f"command again, and it goes on where it stopped (or remove {work})"
            ) from error
        if error.filename is None:
            raise
        raise UserError(f"cannot write {error.filename}: {error.strerror}") from error


@contextlib.contextmanager
def _lock(work: Path) -> Iterator[None]:
    """Keeps a second datagen away; the lock ends with its process, even if killed."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another `t2t datagen` is at work in {work}; wait until it is done"
            ) from None
        yield


def _complete(recipe: Recipe, data_dir: Path) -> Manifest | None:
    """Returns the manifest if the directory holds all the data of this recipe.

    Raises:
        UserError: it holds those of another recipe, or they have been changed.
    """
    path = Manifest.path(data_dir, recipe.problem)
    manifest = Manifest.load(path)
    if manifest is None:
        shards = data_dir.glob(f"{recipe.problem}-*-?????-of-?????")
        on_its_way = unfinished_dir(data_dir, recipe.problem) / "done" / path.name
        if any(shards) and not on_its_way.exists():
            raise UserError(
                f"{data_dir} has data of '{recipe.problem}' without a manifest, from "
                "another program; give another --data_dir"
            )
        return None
    differences = manifest.differences(recipe, but=("given_vocabularies",))
    if differences:
        raise UserError(
            f"{data_dir} holds data of '{recipe.problem}' made otherwise "
            f"({'; '.join(differences)}); give another --data_dir, or remove the old "
            "data"
        )
    for side, name in manifest.vocab_files.items():
        path = data_dir / name
        if not path.exists() or sha256(path) != manifest.vocab_sha256[side]:
            raise UserError(
                f"{path} is not the vocabulary that the data was made with; bring it "
                "back or generate the data in another --data_dir"
            )
    for split in manifest.examples:
        find_shards(data_dir, recipe.problem, split)
    return manifest


@dataclasses.dataclass(frozen=True)
class _Job:
    """One run of datagen.

    Attributes:
        problem: what to make data of.
        recipe: all that the result depends on.
        data_dir: where it goes in the end.
        work: where it is made.
        workers: number of processes.
    """

    problem: Problem
    recipe: Recipe
    data_dir: Path
    work: Path
    workers: int

    def run(self) -> Manifest:
        """Makes what is not there yet, and moves everything into its place."""
        if not self._done(self._manifest_name).exists():
            self._prepare()
            pairs = self._count()
            self._train_vocabularies(pairs)
            counts = self._encode(pairs)
            for split in pairs:
                num_shards = self._num_shards(split, pairs)
                self._write(split, num_shards, counts[split]["examples"])
            self._manifest(counts).save(self._done(self._manifest_name))
        self._publish()
        # What an earlier run had left to publish may be of another recipe.
        manifest = _complete(self.recipe, self.data_dir)
        assert manifest is not None
        return manifest

    @property
    def _manifest_name(self) -> str:
        return Manifest.path(self.data_dir, self.problem.data_name).name

    def _done(self, name: str) -> Path:
        """Returns where a finished file waits for the others."""
        return self.work / "done" / name

    def _prepare(self) -> None:
        """Empties the work directory unless it is one of the same recipe."""
        path = self.work / "recipe.json"
        earlier = Recipe.load(path)
        if earlier is not None:
            differences = earlier.differences(self.recipe)
            if not differences:
                say(f"{self.work}: going on where an earlier run stopped")
                return
            say(f"{self.work}: starting anew, for {'; '.join(differences)}")
        for child in self.work.iterdir():
            if child.is_dir():
                shutil.rmtree(child)
            elif child.name != "lock":
                child.unlink()
        self._done("").mkdir()
        self.recipe.save(path)

    def _count(self) -> dict[Split, int]:
        """Counts the pairs of every split, and so reads all sources once.

        What is wrong in any of them is found before the long work begins.
        """
        path = self.work / "pairs.json"
        pairs: dict[Split, int] = read_json(path) or {}
        for split in SPLITS:
            if split not in self.problem.sources or split in pairs:
                continue
            count = 0
            with progress(f"counting {split}", "pairs") as advance:
                source = iter(self.problem.sources[split]())
                while chunk := sum(1 for _ in itertools.islice(source, CHUNK)):
                    count += chunk
                    advance(chunk)
            if not count:
                raise UserError(f"the {split} source has not a single pair")
            pairs[split] = count
            write_json(path, pairs)
        return pairs

    def _vocabulary(self, side: Side) -> Path:
        """Returns where the vocabulary of a side is now."""
        name = vocab_files(self.problem)[side]
        if name in self.recipe.given_vocabularies:
            return self.data_dir / name
        return self._done(name)

    def _train_vocabularies(self, pairs: dict[Split, int]) -> None:
        """Trains one vocabulary for both sides, or one for each."""
        total = pairs["train"]
        size = sample_size(self.problem, total)
        sides = [(0, 1)] if self.problem.shared_vocab else [(0,), (1,)]
        for columns in sides:
            path = self._vocabulary(SIDES[columns[0]])
            if path.exists():
                say(f"using the vocabulary {path}")
                continue
            lines = size * len(columns)
            say(f"training {path.name} on {lines:,} lines")
            with progress(path.name, "lines", lines) as advance:
                train = self.problem.sources["train"]()
                sample = draw(train, total, size, self.recipe.seed)
                texts = (pair[column] for pair in sample for column in columns)
                new = self.work / path.name
                train_vocabulary(self.problem, texts, new, own_process=self.workers > 1)
                os.replace(new, path)
                advance(lines)

    def _num_shards(self, split: Split, pairs: dict[Split, int]) -> int:
        return num_train_shards(pairs["train"]) if split == "train" else 1

    def _spill(self, split: Split, shard: int) -> Path:
        return self.work / f"{split}.spill-{shard:05d}"

    def _encode(self, pairs: dict[Split, int]) -> dict[Split, Counter[str]]:
        """Encodes every split into spill files; returns the counts of each."""
        vocabularies = self._vocabulary("source"), self._vocabulary("target")
        workers = min(self.workers, -(-sum(pairs.values()) // CHUNK))
        with encoders(vocabularies, workers) as encode:
            return {
                split: self._encode_split(encode, split, pairs)
                for split in reversed(pairs)  # the small ones first
            }

    def _encode_split(
        self, encode: Encode, split: Split, pairs: dict[Split, int]
    ) -> Counter[str]:
        """Encodes a split; goes on after the last state that was saved."""
        total, num_shards = pairs[split], self._num_shards(split, pairs)
        rule = Rule(num_shards, seed=None, max_length=None)
        if split == "train":
            rule = Rule(num_shards, self.recipe.seed, self.problem.max_length)
        path = self.work / f"{split}.encoded.json"
        spills = [self._spill(split, shard) for shard in range(num_shards)]
        state = read_json(path) or {"pairs": 0, "sizes": None, "counts": {}}
        done, counts = state["pairs"], Counter(state["counts"])
        if done == total:
            return counts
        with (
            Spills(spills, state["sizes"]) as files,
            progress(f"encoding {split}", "pairs", total, done) as advance,
        ):
            saved = done
            rest = itertools.islice(self.problem.sources[split](), done, None)
            for encoded in encode(rest, rule, done):
                files.append(encoded.spills)
                counts += encoded.counts
                done += encoded.pairs
                advance(encoded.pairs)
                if done - saved >= _SAVE_EVERY or done == total:
                    state = {"pairs": done, "sizes": files.flush(), "counts": counts}
                    write_json(path, state)
                    saved = done
        if done != total:
            path.unlink(missing_ok=True)
            raise UserError(
                f"the {split} source gave {total:,} pairs at first and {done:,} when "
                "read again; it must give the same ones every time"
            )
        return counts

    def _write(self, split: Split, num_shards: int, num_examples: int) -> None:
        """Sorts the spill files of a split into its shards, and makes the index."""
        name = self.problem.data_name
        index = self._done(index_path(self.data_dir, name, split).name)
        if index.exists():
            return
        shards = [
            self._done(shard_name(name, split, shard, num_shards))
            for shard in range(num_shards)
        ]
        tables = [self.work / f"{shard.name}.lengths.npy" for shard in shards]
        with progress(f"writing {split}", "examples", num_examples) as advance:
            for i, (shard, table) in enumerate(zip(shards, tables, strict=True)):
                spill = self._spill(split, i)
                if not shard.exists():
                    payloads, lengths = read_sorted(spill)
                    write_array(table, lengths)
                    write_records(shard, payloads)
                    advance(len(payloads))
                spill.unlink(missing_ok=True)
        save_index(index, shards, [np.load(table, mmap_mode="r") for table in tables])

    def _manifest(self, counts: dict[Split, Counter[str]]) -> Manifest:
        """Returns the manifest of the finished files."""
        files = {side: self._vocabulary(side) for side in SIDES}
        splits = [split for split in SPLITS if split in counts]
        return Manifest(
            **{
                field.name: getattr(self.recipe, field.name)
                for field in dataclasses.fields(Recipe)
            },
            vocab_files={side: path.name for side, path in files.items()},
            vocab_sizes={
                side: load_tokenizer(path).vocab_size for side, path in files.items()
            },
            vocab_sha256={side: sha256(path) for side, path in files.items()},
            examples={split: counts[split]["examples"] for split in splits},
            dropped={
                split: {reason: counts[split][reason] for reason in _REASONS}
                for split in splits
            },
            tokens={
                split: {side: counts[split][side] for side in SIDES} for split in splits
            },
        )

    def _publish(self) -> None:
        """Moves the finished files into the data directory, the manifest last."""
        names = sorted(os.listdir(self._done("")))
        for name in sorted(names, key=lambda name: name == self._manifest_name):
            os.replace(self._done(name), self.data_dir / name)
        shutil.rmtree(self.work)
