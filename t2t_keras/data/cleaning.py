"""The rules by which training pairs are dropped; none of them knows a language.

`Problem.cleaning` says which rules apply. A dropped pair is counted under the first
rule that drops it, in the order of `reasons`. The rules look at one pair at a time,
except for duplicates, which are found among all pairs (`repeated`).
"""

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from t2t_keras.option import UserError
from t2t_keras.problem import Cleaning, Pair

# C0 and C1 control characters except the tab, and U+FFFD, which stands for bytes that
# could not be decoded.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffd]")
_NO_LETTERS = re.compile(r"[\W\d_]+")

_ENTRY = struct.Struct("<QQ")  # key of an example, hash of its texts
_AT_A_TIME = 1 << 22  # examples whose hashes are compared at a time: 64 MB


def reasons(cleaning: Cleaning) -> list[str]:
    """Returns the reasons to drop a pair, in the order in which they are checked."""
    rules = {
        "control": cleaning.control,
        "identical": cleaning.identical,
        "few_letters": cleaning.letters,
        "long_word": cleaning.word,
        "over_length": True,
        "ratio": cleaning.ratio,
        "duplicate": cleaning.duplicates,
    }
    return ["empty", *(reason for reason, is_on in rules.items() if is_on)]


def reason_by_text(pair: Pair, cleaning: Cleaning) -> str | None:
    """Returns why a pair is dropped for its texts, or None if it is kept."""
    if not all(text.strip() for text in pair):
        return "empty"
    if cleaning.control and any(_CONTROL.search(text) for text in pair):
        return "control"
    if not (cleaning.identical or cleaning.letters or cleaning.word):
        return None
    source, target = sides = [text.split() for text in pair]
    if cleaning.identical and _folded(source) == _folded(target):
        return "identical"
    if cleaning.letters and any(_letters(side) < cleaning.letters for side in sides):
        return "few_letters"
    if cleaning.word and any(max(map(len, side)) > cleaning.word for side in sides):
        return "long_word"
    return None


def reason_by_length(
    source: Sequence[int], target: Sequence[int], max_length: float, cleaning: Cleaning
) -> str | None:
    """Returns why a pair is dropped for its number of tokens, or None if it is kept.

    Args:
        source: ids of the source, EOS last.
        target: ids of the target, EOS last.
        max_length: the most tokens of either side, EOS included.
        cleaning: the rules. The ratio is that of the tokens without EOS.
    """
    shorter, longer = sorted((len(source), len(target)))
    if longer > max_length:
        return "over_length"
    if cleaning.ratio and longer - 1 > cleaning.ratio * (shorter - 1):
        return "ratio"
    return None


def _folded(words: Sequence[str]) -> str:
    """Returns the words without their case."""
    return " ".join(words).casefold()


def _letters(words: Sequence[str]) -> float:
    """Returns the share of letters among the characters of the words."""
    text = "".join(words)
    return len(_NO_LETTERS.sub("", text)) / len(text)


def duplicate_entry(key: int, pair: Pair, copy: int) -> bytes:
    """Returns a key and a hash of the texts, as `repeated` reads them from a file.

    Differences in white space do not change the hash. It has 64 bits: among 40 million
    pairs, two different ones have the same hash with probability 5e-5.

    Args:
        key: key of the example, see `encoding.order_key`.
        pair: the texts.
        copy: which of the copies of the pair it is; copies are no duplicates.
    """
    sides = (" ".join(side.split()) for side in pair)
    return _ENTRY.pack(key, _hash("\n".join([*sides, str(copy)])))


def text_hash(text: str) -> int:
    """Returns a hash of 64 bits of a text, which does not depend on white space."""
    return _hash(" ".join(text.split()))


def _hash(text: str) -> int:
    content = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return int.from_bytes(digest, "little")


def repeated(paths: Sequence[Path]) -> np.ndarray:
    """Returns the keys of all examples but the first with the same hash, in order.

    It uses bounded memory, since it compares only a part of the hashes at a time.

    Args:
        paths: files of `duplicate_entry`, in the order of the examples.

    Returns:
        uint64, ascending.
    """
    total = sum(path.stat().st_size for path in paths) // _ENTRY.size
    parts = -(-total // _AT_A_TIME)
    found = [np.empty(0, np.uint64)]
    for part in range(parts):
        entries = np.concatenate(
            [block[block[:, 1] % parts == part] for block in _blocks(paths)]
        )
        order = np.argsort(entries[:, 1], kind="stable")
        keys, hashes = entries[order].T
        found.append(keys[1:][hashes[1:] == hashes[:-1]])
    return np.sort(np.concatenate(found))


def _blocks(paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """Yields the entries of the files, some at a time: uint64 [N, 2], key and hash."""
    for path in paths:
        with path.open("rb") as file:
            while content := file.read(_AT_A_TIME * _ENTRY.size // 8):
                yield np.frombuffer(content, "<u8").reshape(-1, 2)


def parse_cleaning(text: str) -> Cleaning:
    """Returns the rules of `"duplicates,ratio=1.5"`; `"none"` stands for no rule.

    Raises:
        UserError: there is no such rule, or its value is not valid.
    """
    kinds = get_type_hints(Cleaning)
    rules: dict[str, Any] = {}
    for item in text.split(",") if text != "none" else []:
        name, equals, value = item.strip().partition("=")
        kind = kinds.get(name)
        if kind is None:
            raise UserError(
                f"--clean: there is no rule '{name}'; they are {', '.join(kinds)}"
            )
        if bool(equals) == (kind is bool):
            form = name if kind is bool else f"{name}=NUMBER"
            raise UserError(f"--clean: write {form}, not '{item.strip()}'")
        try:
            rules[name] = True if kind is bool else kind(value)
        except ValueError:
            raise UserError(f"--clean: '{value}' is not a number for {name}") from None
    return Cleaning(**rules)
