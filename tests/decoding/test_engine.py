"""A user's engine: `Translator` asks it for ids only."""

import numpy as np
import pytest
from helpers.decoding_models import LINES
from helpers.errors import refused

from t2t_keras.decoding.engine import (
    AlignmentHead,
    TokenHypothesis,
    TokenScores,
    refuse_changes,
)
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.translator import Translator
from t2t_keras.problem import TextProcessor
from t2t_keras.text.vocabulary import EOS

TEXTS = ["the old dog .", "", "a dog runs . the woman reads a very long book ."]


class Echo:
    """Returns every source: the log-probability of each token is -1."""

    problem_name = "echo"
    text_processor = TextProcessor()
    options = DecodingOptions(beam_size=2)
    divides_batches = False

    def __init__(self, tokenizer):
        self.source_tokenizer = self.target_tokenizer = tokenizer
        self.searched = []

    def check(self, options):
        refuse_changes(options, self.options, ["alpha"], "an echo has none")

    def search(self, sources, options, progress=None):
        self.searched.append((len(sources), options.beam_size, options.n_best))
        progress(sources)
        n_best_lists = []
        for source in sources:
            ids = (*source.prefix, *source.ids)
            hypothesis = TokenHypothesis(ids, -1.0, -float(len(ids)))
            n_best_lists.append([hypothesis] * options.n_best)
        return n_best_lists

    def next_tokens(self, sources, count, options):
        return [[EOS] for _ in sources]

    def score(self, sources, targets, options):
        return [TokenScores(-len(ids), (-1.0,) * len(ids)) for ids in targets]

    def alignment_head(self, head):
        return head

    def attention(self, sources, targets, head, options):
        for i in reversed(range(len(sources))):
            yield i, np.eye(len(targets[i]), len(sources[i]))


@pytest.fixture
def echo(translator):
    return Translator(Echo(translator.source_tokenizer))


def test_texts_are_encoded_split_joined_and_aligned(echo):
    done = []
    options = {"token_scores": True, "alignment": AlignmentHead()}
    outputs = echo.n_best(TEXTS, max_source_length=12, advance=done.append, **options)
    assert [hypothesis.text for (hypothesis,) in outputs] == TEXTS
    assert sum(done) == len(TEXTS)
    assert echo.engine.searched[0][0] > 2  # the last text was split
    for text, (hypothesis,) in zip(TEXTS, outputs, strict=True):
        assert hypothesis.alignment == tuple((i, i) for i in range(len(text.split())))
        assert hypothesis.log_prob == -hypothesis.tokens
        assert hypothesis.token_log_probs == (-1.0,) * hypothesis.tokens


def test_duplicates_are_asked_for_again_with_a_wider_beam(echo):
    assert [len(outputs) for outputs in echo.n_best(["a dog"], 2)] == [1]
    assert echo.engine.searched == [(1, 2, 2), (1, 4, 4), (1, 8, 8)]


def test_a_search_with_a_wider_beam_may_be_ended(echo):
    counts = []

    def advance(count):
        counts.append(count)
        if len(counts) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        echo.n_best(["a dog"], 2, advance=advance)
    assert counts == [0, 1, 0]  # the first is of blank inputs
    assert echo.engine.searched == [(1, 2, 2), (1, 4, 4)]


def test_prefixes_scores_and_alignments(echo):
    assert echo.translate(["dog"], ["a old"]) == ["a old dog"]
    (score,) = echo.score(["a"], [LINES[0]])
    assert score.log_prob == -score.tokens == sum(score.token_log_probs)
    assert echo.align(["a dog", "the"], ["a dog", "the"]) == [
        ((0, 0), (1, 1)),
        ((0, 0),),
    ]


def test_an_option_that_the_engine_lacks_is_refused(echo):
    refused("alpha: an echo has none", echo.translate, ["a"], alpha=1.0)
    refused("there is no option 'alfa'; did you mean", echo.translate, ["a"], alfa=1.0)
    refused("raw: problem 'echo' takes every", echo.translate, ["a"], raw=True)
