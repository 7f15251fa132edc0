"""Other words that an output could have at some position."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from t2t_keras.decoding.engine import Source
from t2t_keras.text.tokenizer import EOS

from .explanation import word_probabilities
from .rows import Options, Outputs

if TYPE_CHECKING:
    from t2t_keras.decoding.options import DecodingOptions
    from t2t_keras.decoding.translator import Translator

NUM_ALTERNATIVES = 8


class _Alternative(NamedTuple):
    """A word that may follow a prefix.

    Attributes:
        probability: its probability after the prefix.
        word: the word; "" for the end of the output.
        text: the best output that continues the prefix with it.
    """

    probability: float
    word: str
    text: str


class _Prefix(NamedTuple):
    """A source with the beginning of its output, as ids and as text."""

    source: Source
    text: str


def alternatives(
    translator: "Translator",
    texts: Sequence[str],
    prefixes: Sequence[str],
    options: Options,
    advance: Callable[[int], None],
) -> list[Outputs]:
    """Returns the likeliest words after the prefix of each text's output.

    The likeliest next tokens are forced in turn, and the search completes the output:
    the word is the one that the token has become.

    Args:
        translator: the translator; it must be able to force prefixes.
        texts: the texts, each of which is taken as one sentence.
        prefixes: the words before the position.
        options: the decoding options.
        advance: called after each batch.

    Returns:
        For each text `words`, the likeliest first, their `probabilities`, and the best
        outputs with them, `texts`.

    Raises:
        UserError: an option or a prefix is impossible.
    """
    options = options | {"split_sentences": False, "n_best": 1}
    resolved = translator.choose(**options)
    preprocess = translator.text_processor.preprocess
    sources = [preprocess(text, resolved.raw) for text in texts]
    source_ids = translator.source_tokenizer.encode_batch(sources)
    prefix_ids = translator.encode_prefixes(prefixes, len(texts))
    starts = []
    for i, text in enumerate(sources):
        source = Source(source_ids[i], text, prefix_ids[i], i)
        starts.append(_Prefix(source, prefixes[i].rstrip()))
    candidates = translator.engine.next_tokens(
        [start.source for start in starts], NUM_ALTERNATIVES, resolved
    )
    outputs: list[Outputs] = []
    for start, tokens in zip(starts, candidates, strict=True):
        by_word = _words_after(translator, start, tokens, options, advance)
        if EOS in tokens:
            by_word[""] = _ending(translator, start, resolved)
        words = []
        probabilities = []
        continuations = []
        for probability, word, text in sorted(by_word.values(), reverse=True):
            words.append(word)
            probabilities.append(probability)
            continuations.append(text)
        outputs.append(
            {"words": words, "probabilities": probabilities, "texts": continuations}
        )
    return outputs


def _words_after(
    translator: "Translator",
    start: _Prefix,
    tokens: Sequence[int],
    options: Options,
    advance: Callable[[int], None],
) -> dict[str, _Alternative]:
    """Returns an alternative for each word that some next tokens become."""
    source, prefix = start
    continued = [[*source.prefix, token] for token in tokens if token != EOS]
    n_best_lists = translator.n_best_of_ids(
        [source.ids] * len(continued),
        [source.text] * len(continued),
        continued,
        advance=advance,
        token_scores=True,
        **options,
    )
    prefix_words = prefix.split()
    position = len(prefix_words)
    by_word: dict[str, _Alternative] = {}
    for (hypothesis,) in n_best_lists:
        words = hypothesis.text.split()
        has_word = len(words) > position and words[:position] == prefix_words
        if not has_word or hypothesis.score == -math.inf:
            continue  # such as a token that has continued the word before it
        probabilities = word_probabilities(
            translator.target_tokenizer, hypothesis.ids, hypothesis.token_log_probs
        )
        if len(probabilities) != len(words):
            continue  # a text that is too long was split
        word = words[position]
        alternative = _Alternative(probabilities[position], word, hypothesis.text)
        by_word[word] = max(alternative, by_word.get(word, alternative))
    return by_word


def _ending(
    translator: "Translator", start: _Prefix, options: "DecodingOptions"
) -> _Alternative:
    """Returns the end of the output as an alternative."""
    source, prefix = start
    ended = [*source.prefix, EOS]
    (score,) = translator.engine.score([source.ids], [ended], options)
    return _Alternative(math.exp(score.token_log_probs[-1]), "", prefix)
