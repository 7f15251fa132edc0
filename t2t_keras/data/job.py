"""One run of data generation: what is to be done, in its order.

Count the pairs, train the vocabularies, encode a share, sort all shares into shards,
write the manifest, move everything into its place. Each finished file is there whole or
not at all, and is not made again.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.data.cleaning import reason_by_text, reasons
from t2t_keras.data.duplicates import repeated
from t2t_keras.data.encoding import CHUNK, Rule, encoders
from t2t_keras.data.files import read_json, sha256, write_array, write_json
from t2t_keras.data.manifest import SPLITS, Manifest, Recipe
from t2t_keras.data.progress import progress, say
from t2t_keras.data.records import (
    index_path,
    num_train_shards,
    save_index,
    shard_name,
    write_frames,
)
from t2t_keras.data.share import Share
from t2t_keras.data.shuffle import read_sorted
from t2t_keras.data.task import Task, at_work
from t2t_keras.data.vocabulary import (
    SIDES,
    Side,
    draw,
    sample_size,
    train_vocabulary,
    vocab_files,
)
from t2t_keras.errors import UserError
from t2t_keras.lock import lock, purpose_of_holder
from t2t_keras.problem import Problem, Split
from t2t_keras.text.load import load_tokenizer


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of datagen.

    Attributes:
        problem: what to make data of.
        recipe: all that the result depends on.
        data_dir: where it goes in the end.
        work: where it is made.
        task: the share of the work that is done here.
        workers: number of processes.
        earlier: what the directory holds, to which splits are added; None: nothing.
    """

    problem: Problem
    recipe: Recipe
    data_dir: Path
    work: Path
    task: Task
    workers: int
    earlier: Manifest | None = None

    def run(self) -> bool:
        """Makes what is not there yet, and moves everything into its place.

        Returns:
            Whether the directory is complete: no share of another task is missing.
        """
        with self._alone():
            self._refuse_others()
            if self._is_to_do():
                self._prepare()
                self._train_vocabularies(self._pairs)
        if self._is_to_do():
            self._encode()
        with self._alone():
            if self._is_to_do():
                missing = [
                    t for t in self.task.all() if not self._share(t).is_complete()
                ]
                if missing:
                    say(
                        f"{self.work}: still to do: task {', '.join(map(str, missing))}"
                    )
                    return False
                manifest = self._manifest(self._write())
                if not (self.earlier or manifest.examples["train"]):
                    raise UserError(
                        "not one training pair is left of "
                        f"{self._pairs['train']:,}: dropped were "
                        f"{manifest.dropped['train']}; drop fewer (--clean, "
                        "--max_length)"
                    )
                manifest.save(self._done(self._manifest_name))
            self._publish()
        return True

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        """Keeps the other tasks waiting."""
        return lock(self.work / "lock", refusal=None)

    def _refuse_others(self) -> None:
        """Refuses to work beside tasks of another division or for other data.

        Raises:
            UserError: there are some.
        """
        for path in self.work.glob("task-*.lock"):
            if path.stem == self.task.name:
                continue
            # Empty for a moment, by one that has yet to come here and to look at us.
            if purpose_of_holder(path) not in (None, "", self.purpose):
                raise at_work(self.work)

    @property
    def purpose(self) -> str:
        """What is made, and by how many tasks: the same for all of them."""
        return f"{self.task.of} tasks, {self.recipe.digest()}"

    def _is_to_do(self) -> bool:
        """Whether the files are yet to be made, and not just to be published."""
        present = Manifest.load(Manifest.path(self.data_dir, self.problem.data_name))
        if present is not None and present.has(self.recipe.sources):
            return False  # another task was faster
        return not self._done(self._manifest_name).exists()

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
            elif not child.name.endswith("lock"):
                child.unlink()
        self._done("").mkdir()
        self.recipe.save(path)

    @functools.cached_property
    def _pairs(self) -> dict[Split, int]:
        """The number of pairs of every split, counted by reading all sources once.

        What is wrong in any of them is found before the long work begins.
        """
        path = self.work / "pairs.json"
        pairs: dict[Split, int] = read_json(path) or {}
        left_out: dict[Split, dict[str, int]] = read_json(self._left_out) or {}
        for split in self._splits:
            if split in pairs:
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
            left_out[split] = getattr(self.problem.sources[split], "dropped", {})
            write_json(self._left_out, left_out)
            write_json(path, pairs)
        return pairs

    @property
    def _splits(self) -> list[Split]:
        """The splits to make, in their order."""
        present = self.earlier.sources if self.earlier else ()
        return [s for s in SPLITS if s in self.recipe.sources and s not in present]

    @property
    def _left_out(self) -> Path:
        """The file with what the sources themselves left out, by split and reason."""
        return self.work / "left_out.json"

    def _vocabulary(self, side: Side) -> Path:
        """Returns where the vocabulary of a side is now."""
        if self.earlier:
            return self.data_dir / self.earlier.vocab_files[side]
        name = vocab_files(self.problem)[side]
        if name in self.recipe.given_vocabularies:
            return self.data_dir / name
        return self._done(name)

    def _train_vocabularies(self, pairs: dict[Split, int]) -> None:
        """Trains one vocabulary for both sides, or one for each, if there is none."""
        if self.earlier:
            return
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
                sample = (
                    pair
                    for pair in draw(train, total, size, self.recipe.seed)
                    if reason_by_text(pair, self.problem.cleaning) is None
                )
                texts = (pair[column] for pair in sample for column in columns)
                new = self.work / path.name
                train_vocabulary(self.problem, texts, new, own_process=self.workers > 1)
                os.replace(new, path)
                advance(lines)

    def _rule(self, split: Split) -> Rule:
        """Returns what becomes of the pairs of a split."""
        if split != "train":
            return Rule(num_shards=1)
        return Rule(
            num_train_shards(self._pairs["train"] * self.problem.copies),
            self.recipe.seed,
            self.problem.max_length,
            self.problem.cleaning,
            self.problem.bpe_dropout,
            self.problem.copies,
        )

    def _share(self, task: Task) -> Share:
        rules = {split: self._rule(split) for split in self._pairs}
        return Share(self.work, task, self._pairs, rules)

    def _encode(self) -> None:
        """Encodes this task's share of every split."""
        vocabularies = self._vocabulary("source"), self._vocabulary("target")
        share = self._share(self.task)
        if share.is_complete():
            return
        pairs = sum(len(self.task.share(total)) for total in self._pairs.values())
        with encoders(vocabularies, min(self.workers, -(-pairs // CHUNK))) as encode:
            for split in reversed(self._pairs):  # the small ones first
                share.encode(split, self.problem.sources[split], encode)

    def _write(self) -> dict[Split, Counter[str]]:
        """Makes shards and indices of all shares; returns the dropped pairs."""
        shares = [self._share(task) for task in self.task.all()]
        dropped = {}
        for split in self._pairs:
            repeats = repeated([share.hashes(split) for share in shares])
            self._write_split(split, shares, repeats)
            dropped[split] = sum((s.counts(split) for s in shares), Counter())
            dropped[split]["duplicate"] = len(repeats)
        return dropped

    def _write_split(
        self, split: Split, shares: list[Share], repeats: np.ndarray
    ) -> None:
        """Sorts the spill files of a split into its shards, and makes the index."""
        name, num_shards = self.problem.data_name, self._rule(split).num_shards
        index = self._done(index_path(self.data_dir, name, split).name)
        if index.exists():
            return
        shards = [
            self._done(shard_name(name, split, shard, num_shards))
            for shard in range(num_shards)
        ]
        tables = [self._table(split, shard) for shard in range(num_shards)]
        with progress(f"writing {split}", "shards", num_shards) as advance:
            for i, (shard, table) in enumerate(zip(shards, tables, strict=True)):
                spills = [share.spill(split, i) for share in shares]
                if not shard.exists():
                    records, lengths = read_sorted(spills, without=repeats)
                    write_array(table, lengths)
                    write_frames(shard, records)
                for spill in spills:
                    spill.unlink(missing_ok=True)
                advance(1)
        save_index(index, shards, [np.load(table, mmap_mode="r") for table in tables])

    def _table(self, split: Split, shard: int) -> Path:
        """Returns the file with the sizes and lengths of the records of a shard."""
        return self.work / f"{split}.lengths-{shard:05d}.npy"

    def _manifest(self, dropped: dict[Split, Counter[str]]) -> Manifest:
        """Returns the manifest of the finished files, and of the earlier ones."""
        files = {side: self._vocabulary(side) for side in SIDES}
        reasons_ = reasons(self.problem.cleaning)
        totals = {split: self._totals(split) for split in self._splits}
        left_out = read_json(self._left_out)
        examples = {split: total["examples"] for split, total in totals.items()}
        tokens = {
            split: {side: total[side] for side in SIDES}
            for split, total in totals.items()
        }
        dropped_ = {
            split: {
                **{reason: dropped[split][reason] for reason in reasons_},
                **left_out[split],
            }
            for split in self._splits
        }
        earlier = self.earlier
        return Manifest(
            **self.recipe.values(),
            vocab_files={side: path.name for side, path in files.items()},
            vocab_sizes={
                side: load_tokenizer(path).vocab_size for side, path in files.items()
            },
            vocab_sha256={side: sha256(path) for side, path in files.items()},
            examples=_in_order(examples, earlier.examples if earlier else {}),
            dropped=_in_order(dropped_, earlier.dropped if earlier else {}),
            tokens=_in_order(tokens, earlier.tokens if earlier else {}),
        )

    def _totals(self, split: Split) -> Counter[str]:
        """Returns the number of examples of a split and of their tokens."""
        totals: Counter[str] = Counter()
        for shard in range(self._rule(split).num_shards):
            lengths = np.load(self._table(split, shard))
            totals["examples"] += len(lengths)
            for column, side in enumerate(SIDES, start=1):
                totals[side] += int(lengths[:, column].sum())
        return totals

    def _publish(self) -> None:
        """Moves the finished files into the data directory, the manifest last."""
        if self._done("").exists():  # unless another task has done it
            names = sorted(os.listdir(self._done("")))
            for name in sorted(names, key=lambda name: name == self._manifest_name):
                os.replace(self._done(name), self.data_dir / name)
        shutil.rmtree(self.work)


def _in_order(new: dict[Split, Any], earlier: dict[Split, Any]) -> dict[Split, Any]:
    """Returns the values of new and earlier splits, in the order of the splits."""
    both = {**earlier, **new}
    return {split: both[split] for split in SPLITS if split in both}
