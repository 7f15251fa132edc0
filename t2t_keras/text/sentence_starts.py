"""Words that begin sentences, learnt from training texts.

Captions and headlines often lack a final mark. Where two of them are in one line, only
a capital letter tells where the second one begins: "A man is walking A dog runs". But
names have capital letters too. A word begins sentences if the training texts hardly
ever have it within a sentence, unless a mark precedes it. Words before a capital letter
count separately: "The" begins sentences in "The cat", and belongs to a name in "The
Hague". So a start is a word and the case of the next one: "The a", "Ein A".

English captions (Multi30k) have 28 starts, among them "A a", "A A" and "Two a". They
split none of the 1,000 single sentences of its test set, and at most 0.13% of those of
News Commentary and newstest2013.
"""

import re
from collections.abc import Iterator, Mapping

from t2t_keras.text.sentence_ends import BEFORE_START, CAPITAL, SMALL, SPACE

# The share of the uses in which a word must begin a sentence. Uses after a mark are not
# counted, nor those that other rules split at.
_MIN_SHARE = 0.995
_MIN_COUNT = 10  # and at least one in a thousand texts
_MIN_RATE = 0.001

_WORD = rf"([{CAPITAL}][{SMALL}]*)[{SPACE}]+(?:([{CAPITAL}])|[^{SPACE}])"
_INITIAL = re.compile(rf"[{SPACE}]*{_WORD}")
_INNER = re.compile(rf"[{BEFORE_START}][{SPACE}]+(?={_WORD})")


def find_starts(marked: str) -> Iterator[tuple[str, bool]]:
    """Yields what may be a start in a text, and whether it begins a sentence there.

    Args:
        marked: the result of `mark_sentence_ends` without any starts.
    """
    for sentence in marked.split("\n"):
        if match := _INITIAL.match(sentence):
            yield _start(match), True
        for match in _INNER.finditer(sentence):
            yield _start(match), False


def _start(match: re.Match[str]) -> str:
    return f"{match[1]} {'A' if match[2] else 'a'}"


def choose_starts(
    initial: Mapping[str, int], inner: Mapping[str, int], num_texts: int
) -> list[str]:
    """Returns the starts, in alphabetical order.

    Args:
        initial: how often each candidate begins a sentence.
        inner: how often it occurs within one.
        num_texts: the number of texts in which they were counted.
    """
    min_count = max(_MIN_COUNT, _MIN_RATE * num_texts)
    starts = []
    for start, count in initial.items():
        if count >= min_count and count >= _MIN_SHARE * (count + inner.get(start, 0)):
            starts.append(start)
    return sorted(starts)
