"""The division of data generation among several machines."""

import dataclasses
import re
from typing import Self

from t2t_keras.errors import UserError


@dataclasses.dataclass(frozen=True)
class Shard:
    """One of `count` equal shards of the work; `index` begins with 1."""

    index: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def slice(self, total: int) -> range:
        """Returns the part of range(total) that belongs to this shard."""
        start = total * (self.index - 1) // self.count
        return range(start, total * self.index // self.count)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the shard that is written "2/4".

        Raises:
            UserError: the text does not have that form, or there is no such shard.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match:
            raise UserError(f"--shard: write K/N, 2/4 for example, not '{text}'")
        shard = cls(int(match[1]), int(match[2]))
        if not 1 <= shard.index <= shard.count:
            raise UserError(
                f"--shard {text}: of {shard.count} shards the first is "
                f"1/{shard.count} and the last {shard.count}/{shard.count}"
            )
        return shard


WHOLE = Shard()  # all of the work
