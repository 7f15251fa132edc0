"""The word that each token of a text belongs to."""

import itertools
from collections.abc import Sequence

from t2t_keras.text.tokenizer import EOS, Tokenizer


def words_of_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int | None]:
    """Returns the number of each token's word, from 0; None for EOS.

    A token belongs to the word of the first character that it adds to the text of the
    tokens before it, or, if it adds only white space, to the word after that, if there
    is one. So this needs nothing of a tokenizer but `decode`; words are what white
    space separates in the text.

    Args:
        tokenizer: the tokenizer.
        ids: the ids of a text; those after the first EOS have no word.
    """
    end = list(ids).index(EOS) if EOS in ids else len(ids)
    words: list[int | None] = [None] * len(ids)
    before = ""
    for place in range(end):
        text = tokenizer.decode(ids[: place + 1])
        # The earlier text is not a prefix if the token completes a character.
        pairs = zip(before, text, strict=False)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
        added = text[len(list(same)) :].lstrip()
        if added:
            through = text[: len(text) - len(added) + 1]
            words[place] = len(through.split()) - 1
        before = text
    for place in reversed(range(end - 1)):
        if words[place] is None:
            words[place] = words[place + 1]
    return words
