"""Explained translations: the words of outputs, their probabilities and their sources.

A text is split into its sentences as the model splits it, so that a client can show and
change each sentence by itself. `alternatives` are the other words that an output could
have at some position.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from t2t_keras.decoding.engine import (
    AlignmentHead,
    Hypothesis,
    Source,
    penalty_of_tokens,
)
from t2t_keras.decoding.inputs import sentences_of
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.text.alignment import split_words, words_of_tokens
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import EOS

from .requests import NUM_ALTERNATIVES, Options, Outputs

# What a page offers; a model may lack some of it.
PROBABILITIES = "probabilities"
ALIGNMENT = "alignment"
PREFIXES = "prefixes"
PHRASES = ("glossary", "forbidden")


def missing_features(translator: Translator) -> dict[str, str]:
    """Returns what a model cannot do, with the reason in a sentence.

    The features are `probabilities`, `alignment`, `prefixes`, `glossary` and
    `forbidden`. Nothing is computed: each one is asked for with no texts.
    """
    engine = translator.engine
    attempts: dict[str, Callable[[], object]] = {
        "glossary": lambda: translator.choose(glossary=(("a", "b"),)),
        "forbidden": lambda: translator.choose(forbidden=("a",)),
        PROBABILITIES: lambda: engine.score([], [], engine.options),
        ALIGNMENT: translator.alignment_head,
        PREFIXES: lambda: engine.next_tokens([], 1, engine.options),
    }
    missing = {}
    for feature, attempt in attempts.items():
        try:
            attempt()
        except UserError as error:
            missing[feature] = str(error)
    return missing


class _Sentence(NamedTuple):
    """A sentence of a text, and the words with which its output must begin."""

    text: str
    prefix: str = ""


class Explainer:
    """Explains the outputs of a translator.

    Args:
        translator: the translator.
        missing: what it cannot do; see `missing_features`.
    """

    def __init__(self, translator: Translator, missing: dict[str, str]) -> None:
        self._translator = translator
        self._missing = missing
        self._processor = translator.text_processor

    def explain(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str],
        options: Options,
        advance: Callable[[int], None],
    ) -> list[Outputs]:
        """Returns the sentences of each text with their explained outputs.

        Args:
            texts: the texts.
            prefixes: the words with which the output of each one's first sentence must
                begin; may be "".
            options: the decoding options.
            advance: called after each batch.

        Raises:
            UserError: an option or a prefix is impossible.
        """
        translator = self._translator
        resolved = translator.choose(**options)
        rows = []
        for text, prefix in zip(texts, prefixes, strict=True):
            rows.append(self._sentences(text, prefix, resolved))
        flat = list(itertools.chain.from_iterable(rows))
        arguments: Options = {}
        if PROBABILITIES not in self._missing:
            arguments["token_scores"] = True
        if ALIGNMENT not in self._missing:
            arguments["alignment"] = AlignmentHead()
        if any(sentence.prefix for sentence in flat):
            arguments["prefixes"] = [sentence.prefix for sentence in flat]
        n_best_lists = iter(
            translator.n_best(
                [sentence.text for sentence in flat],
                advance=advance,
                **arguments,
                **options,
            )
        )
        outputs: list[Outputs] = []
        for row in rows:
            sentences = []
            for sentence in row:
                hypotheses = next(n_best_lists)
                sentences.append(self._sentence(sentence.text, hypotheses, resolved))
            outputs.append({"sentences": sentences})
        return outputs

    def _sentences(
        self, text: str, prefix: str, options: DecodingOptions
    ) -> list[_Sentence]:
        """Returns the sentences of a text, of which the first has the prefix."""
        texts = sentences_of(text, self._processor, options)
        sentences = list(map(_Sentence, texts))
        sentences[0] = sentences[0]._replace(prefix=prefix)
        return sentences

    def _sentence(
        self,
        source: str,
        hypotheses: Sequence[Hypothesis],
        options: DecodingOptions,
    ) -> Outputs:
        """Returns the explanation of the outputs for a sentence."""
        best = hypotheses[0]
        words = split_words(best.text)
        source_words = split_words(source)
        alignment = None
        probabilities = None
        if ALIGNMENT not in self._missing:
            text = self._processor.preprocess(source, options.raw)
            source_words = split_words(text)
            alignment = [list(link) for link in best.alignment]
        if best.token_log_probs:
            tokenizer = self._translator.target_tokenizer
            probabilities = _probabilities(tokenizer, best, len(words))
        texts = []
        scores = []
        for hypothesis in hypotheses:
            texts.append(hypothesis.text)
            scores.append(hypothesis.score)
        return {
            "source": source,
            "source_words": source_words,
            "texts": texts,
            "scores": scores,
            "is_truncated": best.is_truncated,
            "words": words,
            "probabilities": probabilities,
            "alignment": alignment,
            "tokens": best.tokens or None,
            "log_prob": None if math.isnan(best.log_prob) else best.log_prob,
            "length_penalty": penalty_of_tokens(best.tokens, options),
        }


def _probabilities(
    tokenizer: Tokenizer, best: Hypothesis, num_words: int
) -> list[float] | None:
    """Returns the probability of each word; None if the words are not the model's.

    A text processor may have written other words than those that the tokens make.
    """
    probabilities = []
    position = 0
    for ids in _parts(best.ids):
        log_probs = best.token_log_probs[position : position + len(ids)]
        probabilities += word_probabilities(tokenizer, ids, log_probs)
        position += len(ids)
    return probabilities if len(probabilities) == num_words else None


def word_probabilities(
    tokenizer: Tokenizer, ids: Sequence[int], log_probs: Sequence[float]
) -> list[float]:
    """Returns the probability of each word of a target, given the words before it.

    It is the product of the probabilities of the word's tokens.

    Args:
        tokenizer: the tokenizer of the target.
        ids: the tokens of the target.
        log_probs: the log-probability of each token.
    """
    sums: dict[int, float] = {}
    words = words_of_tokens(tokenizer, ids)
    for word, log_prob in zip(words, log_probs, strict=True):
        if word is not None:
            sums[word] = sums.get(word, 0.0) + log_prob
    return [math.exp(sums[word]) for word in sorted(sums)]


def _parts(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yields the parts of a hypothesis, each of which ends in EOS but perhaps the last.

    An input that is too long has a hypothesis that was joined of those of its parts.
    """
    start = 0
    for index, token in enumerate(ids, start=1):
        if token == EOS or index == len(ids):
            yield ids[start:index]
            start = index


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
    translator: Translator,
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
    translator: Translator,
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
    translator: Translator, start: _Prefix, options: DecodingOptions
) -> _Alternative:
    """Returns the end of the output as an alternative."""
    source, prefix = start
    ended = [*source.prefix, EOS]
    (score,) = translator.engine.score([source.ids], [ended], options)
    return _Alternative(math.exp(score.token_log_probs[-1]), "", prefix)
