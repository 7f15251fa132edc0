"""Explained translations: the words of outputs, their probabilities and their sources.

A text is split into its sentences as the model splits it, so that a client can show and
change each sentence by itself.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from t2t_keras.decoding.engine import AlignmentHead, penalty_of_tokens
from t2t_keras.decoding.inputs import sentences_of
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.problem import TextProcessor
from t2t_keras.text.alignment import split_words, words_of_tokens
from t2t_keras.text.tokenizer import EOS, Tokenizer

from .rows import Options, Outputs

if TYPE_CHECKING:
    from t2t_keras.decoding.engine import Hypothesis
    from t2t_keras.decoding.options import DecodingOptions
    from t2t_keras.export.text_saved_model import TextSavedModel

# What a page offers; a model may lack some of it.
PROBABILITIES = "probabilities"
ALIGNMENT = "alignment"
PREFIXES = "prefixes"
PHRASES = ("glossary", "forbidden")


def missing_features(translator: "Translator | TextSavedModel") -> dict[str, str]:
    """Returns what a model cannot do, with the reason in a sentence.

    The features are `probabilities`, `alignment`, `prefixes`, `glossary` and
    `forbidden`. Nothing is computed: each one is asked for with no texts.
    """
    attempts: dict[str, Callable[[], object]] = {
        "glossary": lambda: translator.choose(glossary=(("a", "b"),)),
        "forbidden": lambda: translator.choose(forbidden=("a",)),
    }
    missing = {}
    if isinstance(translator, Translator):
        engine = translator.engine
        attempts |= {
            PROBABILITIES: lambda: engine.score([], [], engine.options),
            ALIGNMENT: translator.alignment_head,
            PREFIXES: lambda: engine.next_tokens([], 1, engine.options),
        }
    else:
        reason = "the graph of this export returns texts and scores only"
        missing = dict.fromkeys((PROBABILITIES, ALIGNMENT, PREFIXES), reason)
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

    def __init__(
        self, translator: "Translator | TextSavedModel", missing: dict[str, str]
    ) -> None:
        self._translator = translator
        self._missing = missing
        self._processor = TextProcessor()
        if isinstance(translator, Translator):
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
        self, text: str, prefix: str, options: "DecodingOptions"
    ) -> list[_Sentence]:
        """Returns the sentences of a text, of which the first has the prefix."""
        texts = [text]
        # Only the graph of a `TextSavedModel` knows which tags there are.
        if isinstance(self._translator, Translator):
            texts = sentences_of(text, self._processor, options)
        sentences = list(map(_Sentence, texts))
        sentences[0] = sentences[0]._replace(prefix=prefix)
        return sentences

    def _sentence(
        self,
        source: str,
        hypotheses: "Sequence[Hypothesis]",
        options: "DecodingOptions",
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
        if best.token_log_probs and isinstance(self._translator, Translator):
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
    tokenizer: Tokenizer, best: "Hypothesis", num_words: int
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
