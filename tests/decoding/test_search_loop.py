"""The search that XLA compiles: equal hypotheses, in few sizes."""

import numpy as np
import pytest
import tensorflow as tf
from helpers.decoding_models import (
    LINES,
    log_probs_of,
    numpy_of,
    outputs,
    random_sources,
    transformer,
)

from t2t_keras.decoding.batches import batches
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.constraint import ForcedPrefix
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.search_loop import _ROWS, compiled, rounded_length

TEXTS = [line for line in LINES if line.strip()]


@pytest.mark.slow
def test_an_ensemble_with_a_window_and_a_coverage_penalty_finds_the_same():
    """Sentences end after 1 to 12 steps; some are cut off at their limit."""
    models = [transformer(70, attention_window=3), transformer(70, d_model=8)]
    sources = tf.constant(random_sources(13, 70))
    limits = tf.range(13) % 5 * 3

    def search(ids, prefixes=None, loop=None):
        return beam_search(
            Ensemble(models),
            ids,
            beam_size=3,
            alpha=0.6,
            max_length=tf.pad(limits, [[0, tf.shape(ids)[0] - 13]]),
            n_best=3,
            coverage_penalty=0.2,
            loop=loop,
        )

    ids = tf.TensorSpec([None, None], tf.int32)
    growing = tf.function(search, input_signature=[ids], autograph=False)
    expected = numpy_of(growing(sources))
    actual = numpy_of(compiled(search, sources, None, 2))
    for row in range(13):
        assert outputs(actual, row) == outputs(expected, row)
    assert len(set(expected.lengths.ravel())) > 6
    np.testing.assert_allclose(actual.scores, expected.scores, atol=1e-4)
    np.testing.assert_allclose(actual.log_probs, expected.log_probs, atol=1e-4)


def test_a_translator_finds_the_same(translator):
    """The search ends in each of the three stages.

    The texts fill one batch, for XLA compiles a search for each of their sizes.
    """
    *texts, _ = sorted(TEXTS, key=len)
    options = {"min_length": 17, "beam_size": 3}
    options["prefixes"] = ["", "a dog", "the old", "", "", "the"]
    expected = translator.n_best(texts, 2, jit_compile="false", **options)
    lengths = [len(h.ids) for row in expected for h in row]
    assert min(lengths) <= 8 and max(lengths) > 16  # the premise
    actual = translator.n_best(texts, 2, jit_compile="true", **options)
    for row, expected_row in zip(actual, expected, strict=True):
        assert [h.ids for h in row] == [h.ids for h in expected_row]
        scores = [h.score for h in expected_row]
        np.testing.assert_allclose([h.score for h in row], scores, atol=1e-4)


def test_the_step_after_a_long_prefix():
    """The likeliest token follows 32 tokens, which are all steps of the source."""
    model = transformer(12, d_model=8)
    source = [3, 4, 1]
    prefix = [i % 9 + 2 for i in range(32)]

    def search(ids, prefixes, loop):
        return beam_search(
            model,
            ids,
            beam_size=1,
            alpha=0.0,
            max_length=tf.fill(tf.shape(ids)[:1], 33),
            n_best=1,
            constraint=ForcedPrefix(prefixes, 12),
            loop=loop,
        )

    ids, prefixes = tf.constant([source]), tf.constant([prefix])
    actual = numpy_of(compiled(search, ids, prefixes, extra_length=0))
    targets = [[*prefix, token] for token in range(1, 12)]
    likeliest = targets[np.argmax(log_probs_of(model, source, targets))]
    assert outputs(actual, 0) == [likeliest]


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": True},
        {"no_repeat_ngram": 2},
        {"glossary": (("dog", "cat"),)},
        {"protect": ("url",)},
        {"forbidden": ("dog",)},
        {"jit_compile": "auto"},
    ],
)
def test_some_searches_are_not_compiled(translator, options):
    is_compiled = translator.engine.search_graph.is_compiled
    assert is_compiled(DecodingOptions(jit_compile="true"))
    assert not is_compiled(DecodingOptions(**{"jit_compile": "true"} | options))


def test_a_gpu_compiles_unless_the_cache_of_the_model_grows(translator, monkeypatch):
    monkeypatch.setattr(
        tf.config, "list_logical_devices", lambda device_type: [device_type]
    )
    is_compiled = translator.engine.search_graph.is_compiled
    assert is_compiled(DecodingOptions())
    assert not is_compiled(DecodingOptions(jit_compile="false"))
    attention = translator.model.decoder.layers[0].self_attention
    monkeypatch.setattr(attention, "empty_cache", lambda *_: (tf.zeros([1, 0]),))
    assert not translator.model.reserves_cache
    assert not is_compiled(DecodingOptions())


@pytest.mark.parametrize("longest", [40, 200])
def test_an_evaluation_has_at_most_six_sizes(longest):
    """For 1,000 sentences as long as those of Multi30k, or of newstest."""
    random = np.random.default_rng(0)
    lengths = np.minimum(random.lognormal(2.8, 0.6, 1000).astype(int) + 2, longest)
    groups = batches(lengths.tolist(), 2048, 1, rounded_length)
    shapes = []
    for group in groups:
        rows = next(size for size in _ROWS if size >= len(group))
        shapes.append((rows, rounded_length(max(lengths[group]))))
    assert 2 <= len(set(shapes)) <= 6
    assert sum(rows * length for rows, length in shapes) < 2.2 * lengths.sum()
