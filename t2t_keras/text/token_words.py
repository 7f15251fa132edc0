"""The word that each token of a text belongs to."""

import itertools
from collections.abc import Sequence

from t2t_keras.text.tokenizer import EOS, Tokenizer


def words_of_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int | None]:
    """Returns the index of each token's word; None for EOS.

    A token belongs to the word of the first character that it adds to the text of the
    tokens before it, or, if it adds only white space, to the word after that, if there
    is one. So this needs nothing of a tokenizer but `decode`; words are what white
    space separates in the text.

    Args:
        tokenizer: the tokenizer.
        ids: the ids of a text; those after the first EOS have no word.
    """
    length = list(ids).index(EOS) if EOS in ids else len(ids)
    words: list[int | None] = [None] * len(ids)
    previous = ""
    for index in range(length):
        text = tokenizer.decode(ids[: index + 1])
        # The earlier text is not a prefix if the token completes a character.
        pairs = zip(previous, text, strict=False)
        common = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
        added = text[len(list(common)) :].lstrip()
        if added:
            through = text[: len(text) - len(added) + 1]
            words[index] = len(through.split()) - 1
        previous = text
    for index in reversed(range(length - 1)):
        if words[index] is None:
            words[index] = words[index + 1]
    return words
