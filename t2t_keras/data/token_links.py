"""Word alignments as links between tokens, for guided alignment."""

from collections.abc import Sequence

from t2t_keras.problem import AlignedPair, Pair
from t2t_keras.text.token_words import words_of_tokens
from t2t_keras.text.tokenizer import Tokenizer


def token_links(
    pair: Pair,
    source: Sequence[int],
    target: Sequence[int],
    tokenizers: tuple[Tokenizer, Tokenizer],
) -> list[int]:
    """Returns the links between the tokens of linked words, see `example`.

    Args:
        pair: the texts; without an alignment there are no links.
        source: ids of the source.
        target: ids of the target.
        tokenizers: the tokenizers of source and target.
    """
    if not isinstance(pair, AlignedPair):
        return []
    word_links = set(pair.links)
    source_words = words_of_tokens(tokenizers[0], source)
    target_words = words_of_tokens(tokenizers[1], target)
    links = []
    for t, target_word in enumerate(target_words):
        for s, source_word in enumerate(source_words):
            if (source_word, target_word) in word_links:
                links += [t, s]
    return links
