"""A task's share of the examples, encoded into files of its own."""

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from t2t_keras.data.encoding import Encode, Rule
from t2t_keras.data.files import read_json, write_json
from t2t_keras.data.progress import progress
from t2t_keras.data.shuffle import Spills
from t2t_keras.data.task import Task
from t2t_keras.errors import UserError
from t2t_keras.problem import Source, Split

_SAVE_EVERY = 200_000  # examples after which an interrupted encoding can go on


class Share:
    """What one task has encoded, and how far it is.

    Args:
        work: the directory that the tasks share.
        task: whose share it is.
        pairs: number of pairs of each split, of all tasks together.
        rules: what becomes of the pairs of each split.
    """

    def __init__(
        self,
        work: Path,
        task: Task,
        pairs: Mapping[Split, int],
        rules: Mapping[Split, Rule],
    ) -> None:
        self._directory = work / task.name
        self._rules = rules
        self._pairs = pairs
        self._ranges = {split: task.share(total) for split, total in pairs.items()}

    def spill(self, split: Split, shard: int) -> Path:
        """Returns the file with its examples of a shard."""
        return self._directory / f"{split}.spill-{shard:05d}"

    def hashes(self, split: Split) -> Path:
        """Returns the file with the hashes of its examples, see `duplicates`."""
        return self._directory / f"{split}.hashes"

    def counts(self, split: Split) -> Counter[str]:
        """Returns how many examples were dropped, by reason."""
        return Counter(self._state(split)["dropped"])

    def is_complete(self) -> bool:
        """Whether all of it is encoded."""
        return all(self._is_encoded(split) for split in self._ranges)

    def encode(self, split: Split, source: Source, encode: Encode) -> None:
        """Encodes its pairs of a split; goes on after the last state that was saved.

        Raises:
            UserError: the source has fewer pairs than it had.
        """
        self._directory.mkdir(exist_ok=True)
        rule, range_, path = self._rules[split], self._ranges[split], self._path(split)
        state = self._state(split)
        done, dropped, total = state["pairs"], Counter(state["dropped"]), len(range_)
        if self._is_encoded(split):
            return
        files = [self.spill(split, shard) for shard in range(rule.num_shards)]
        files.append(self.hashes(split))
        with (
            Spills(files, state["sizes"]) as spills,
            progress(f"encoding {split}", "pairs", total, done) as advance,
        ):
            saved, first = done, range_.start + done
            rest = itertools.islice(source(), first, range_.stop)
            for encoded in encode(rest, rule, first):
                spills.append({**encoded.spills, rule.num_shards: encoded.hashes})
                dropped += encoded.dropped
                done += encoded.pairs
                advance(encoded.pairs)
                if (done - saved) * rule.copies >= _SAVE_EVERY or done == total:
                    state = {"pairs": done, "sizes": spills.flush(), "dropped": dropped}
                    write_json(path, state)
                    saved = done
            if not total:  # fewer pairs than tasks
                write_json(path, state | {"sizes": spills.flush()})
        if done != total:
            path.unlink(missing_ok=True)
            raise UserError(
                f"the {split} source gave {self._pairs[split]:,} pairs at first and "
                f"{range_.start + done:,} when read again; it must give the same ones "
                "every time"
            )

    def _is_encoded(self, split: Split) -> bool:
        state = self._state(split)
        has_files = state["sizes"] is not None
        return has_files and state["pairs"] == len(self._ranges[split])

    def _path(self, split: Split) -> Path:
        return self._directory / f"{split}.encoded.json"

    def _state(self, split: Split) -> dict:
        """Returns how far a split is: pairs, sizes of the files, dropped examples."""
        saved = read_json(self._path(split))
        return saved or {"pairs": 0, "sizes": None, "dropped": {}}
