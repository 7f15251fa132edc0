"""Guided alignment: links from a file to the gradient of one attention head."""

import bisect
import itertools

import numpy as np
import pytest
import tensorflow as tf
from helpers.command_line import write
from helpers.decoding_models import LINES
from helpers.errors import refused
from helpers.one_step import HPARAMS, Setup, assert_close, summed_loss, unequal_batch
from helpers.small_data import sentence_pairs, write_pairs
from helpers.small_run import trainer

from t2t_keras import registry
from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import training_batches
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.data.training_data import batch_plan
from t2t_keras.decoding.engine import AlignmentHead
from t2t_keras.decoding.search_graph import attention_weights
from t2t_keras.model.loss import alignment_loss
from t2t_keras.problem import SIDES
from t2t_keras.text.alignment import (
    AlignedPair,
    format_alignment,
    token_links,
    words_of_tokens,
)
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import load_tokenizer

GUIDED = HPARAMS.override(num_layers=2, guided_alignment=0.7)


def reversed_links(text: str) -> tuple[tuple[int, int], ...]:
    """The links of `small_data`, whose targets have the words in opposite order."""
    count = len(text.split())
    return tuple((i, count - 1 - i) for i in range(count))


@pytest.fixture(scope="module")
def aligned_dir(tmp_path_factory):
    """Data of `translate_text` with word alignments."""
    directory = tmp_path_factory.mktemp("aligned")
    links = [format_alignment(reversed_links(source)) for source, _ in sentence_pairs()]
    plain = write_pairs(directory)
    files = ParallelFiles(
        plain.source_path, plain.target_path, write(directory / "links", *links)
    )
    problem = registry.problem("translate_text")
    sources = {"train": files, "dev": plain}
    problem = problem.replace(vocab_size=310, sources=sources)
    generate(problem, directory, workers=1)
    return directory


# The loss


def random_links(seed: int, source, target) -> list[list[list[int]]]:
    """For each target token of each pair the source tokens it is linked to."""
    rng = np.random.default_rng(seed)
    links = []
    for source_ids, target_ids in zip(source, target, strict=True):
        source_length = np.count_nonzero(source_ids)
        links.append([])
        for _ in range(np.count_nonzero(target_ids)):
            linked = rng.integers(0, source_length, rng.integers(0, 4))
            links[-1].append(sorted(set(linked.tolist())))
    return links


def dense(links, source, target) -> np.ndarray:
    alignment = np.zeros([*target.shape, source.shape[1]], np.float32)
    for b, of_pair in enumerate(links):
        for t, of_token in enumerate(of_pair):
            alignment[b, t, of_token] = 1 / max(len(of_token), 1)
    return alignment


def aligned_batch(seed: int):
    source, target = unequal_batch(seed)
    links = random_links(seed, source, target)
    return source, target, links, dense(links, source, target)


def test_the_loss_of_what_is_certain_but_wrong_is_finite():
    attention = tf.constant([[[1.0, 0.0, 0.0]]])
    loss = float(alignment_loss(attention, tf.constant([[[0.0, 0.5, 0.5]]])))
    assert loss == pytest.approx(-np.log(1e-9))


def guided_gradients(setup, source, target, links, weight):
    """Of the loss with its alignment part, by picking the weights link by link."""
    with tf.GradientTape() as tape:
        loss = summed_loss(setup.model, source, target)
        head = setup.model.decoder_outputs(source, target)[1].cross[0][:, 0]
        for b, of_pair in enumerate(links):
            for t, of_token in enumerate(of_pair):
                for s in of_token:
                    loss -= weight * tf.math.log(head[b, t, s]) / len(of_token)
    gradients = tape.gradient(loss, list(setup.weights.values()))
    tokens = (target != 0).sum()
    return {
        name: tf.convert_to_tensor(gradient).numpy() / tokens
        for name, gradient in zip(setup.weights, gradients, strict=True)
    }


@pytest.fixture(scope="module")
def at_once():
    """The gradients of `aligned_batch(1)`, and what they were computed with."""
    source, target, _, alignment = aligned_batch(1)
    setup = Setup(1, GUIDED)
    return setup.gradients(source, target, alignment), setup


def test_gradients_include_both_losses(at_once):
    source, target, links, alignment = aligned_batch(1)
    actual, setup = at_once
    batch = setup.batch(source, target, alignment)
    reported = setup.step.update(batch, 0, 0.0, dry_run=True)
    expected = float(summed_loss(setup.model, source, target))  # of the translation
    assert float(reported.loss_sum) == pytest.approx(expected, rel=1e-5)
    assert_close(actual, guided_gradients(setup, source, target, links, 0.7), 1e-4)
    plain = guided_gradients(setup, source, target, links, 0.0)
    with pytest.raises(AssertionError):  # without them it would be another gradient
        assert_close(actual, plain, relative=1e-2)
    unguided = Setup(1, GUIDED.override(guided_alignment=0.0))
    assert len(unguided.batch(source, target)) == 2
    assert_close(unguided.gradients(source, target), plain, relative=1e-5)


@pytest.mark.parametrize(
    ("changes", "parts", "tolerance"),
    [
        ({}, (1, 3), 1e-5),
        ({"compute_dtype": "bfloat16"}, (1, 1), 5e-2),
        pytest.param(
            *({"jit_compile": True, "bucketing": "static"}, (1, 1), 1e-4),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["micro-batches", "bfloat16", "xla"],
)
def test_in_parts_compiled_and_in_16_bits(at_once, changes, parts, tolerance):
    source, target, _, alignment = aligned_batch(1)
    replicas, micro_batches = parts
    setup = Setup(replicas, GUIDED.override(**changes), micro_batches)
    actual = setup.gradients(source, target, alignment)
    expected = at_once[0]
    if changes:
        query = next(n for n in actual if "decoder/layer_0/cross_attention/query" in n)
        expected = {query: expected[query]}
    assert_close(actual, expected, relative=tolerance)


# From links between words to those between tokens


def test_tokens_are_linked_as_their_words_are(tmp_path):
    path = tmp_path / "v.spm"
    SentencePieceTokenizer.train(LINES * 2, path, 340)
    tokenizer = load_tokenizer(path)
    source = "the woman reads  a bookshelf"
    target = "house olderly naïve"
    ids = tokenizer.encode(source), tokenizer.encode(target)
    alignment = ((0, 1), (2, 0), (4, 0), (4, 1), (3, 2))
    pair = AlignedPair(source, target, alignment)
    flat = token_links(pair, *ids, (tokenizer, tokenizer))
    links = list(zip(flat[1::2], flat[::2], strict=True))
    assert len(set(links)) == len(links) > len(alignment)
    for s, t in links:
        assert s < len(ids[0]) - 1 and t < len(ids[1]) - 1  # EOS has none
    # The word of each token that adds characters, by how many there are before it.
    sides = []
    for side, text in enumerate((source, target)):
        word_ends = list(itertools.accumulate(map(len, text.split())))
        spelled = [
            len("".join(tokenizer.decode(ids[side][:n]).split()))
            for n in range(len(ids[side]) + 1)
        ]
        spaces = [n for n, (x, y) in enumerate(itertools.pairwise(spelled)) if x == y]
        words = [bisect.bisect_right(word_ends, x) for x in spelled[:-1]]
        sides.append({n: w for n, w in enumerate(words) if n not in spaces})
    expected = {
        (s, t)
        for s, i in sides[0].items()
        for t, j in sides[1].items()
        if (i, j) in alignment
    }
    assert {(s, t) for s, t in links if s in sides[0] and t in sides[1]} == expected
    assert max(map(len, (set(w.values()) for w in sides))) < max(map(len, sides))
    pair = AlignedPair(source, target, ())
    assert token_links(pair, *ids, (tokenizer, tokenizer)) == []


def test_words_are_counted_as_aligners_count_them(tmp_path):
    """As fast_align: a number with a no-break space is one word, U+3000 another."""
    lines = "It costs 10,000 euros .", "\u3000 Cela coûte 10\u00a0000\u202f€ ."
    paths = [write(tmp_path / str(i), line) for i, line in enumerate(lines)]
    links = write(tmp_path / "links", "0-0 0-1 1-2 2-3 3-3 4-4")
    (pair,) = ParallelFiles(*paths, links)()
    # Without the white space at its ends, the target lacks the first word.
    assert pair == (lines[0], "Cela coûte 10\u00a0000\u202f€ .")
    assert pair.links == ((0, 0), (1, 1), (2, 2), (3, 2), (4, 3))
    SentencePieceTokenizer.train(lines, tmp_path / "v.spm", 300)
    tokenizer = load_tokenizer(tmp_path / "v.spm")
    ids = [tokenizer.encode(text) for text in pair]
    flat = token_links(pair, *ids, (tokenizer, tokenizer))
    linked = set()
    for t, s in zip(flat[::2], flat[1::2], strict=True):
        words = []
        for row, position in zip(ids, (s, t), strict=True):
            # The spaces up to a token, its own included, tell its word.
            words.append(tokenizer.decode(row[: position + 1]).count(" "))
        linked.add(tuple(words))
    assert linked == set(pair.links)
    refused(
        "the source has 5 words and the target 5",
        lambda: list(ParallelFiles(*paths, write(tmp_path / "links", "0-5"))()),
    )


def records_of(directory, name="translate_text", split="train"):
    """Yields source text, target text and links between words of each record."""
    manifest = Manifest.open(directory, name)
    tokenizer = load_tokenizer(directory / manifest.vocab_files["source"])
    index = RecordIndex.open(directory, name, split)
    for payload in index.read(range(len(index))):
        feature = tf.train.Example.FromString(payload).features.feature
        source, target = (
            list(feature[key].int64_list.value) for key in ("inputs", "targets")
        )
        links = list(feature["links"].int64_list.value) if "links" in feature else []
        words = [words_of_tokens(tokenizer, ids) for ids in (source, target)]
        pairs = zip(links[::2], links[1::2], strict=True)
        links = {(words[0][s], words[1][t]) for t, s in pairs}
        yield tokenizer.decode(source), tokenizer.decode(target), links


def test_links_stay_with_their_pair(aligned_dir):
    """After the shuffle each record still has the links between its words."""
    records = list(records_of(aligned_dir))
    assert [x[:2] for x in records] != sentence_pairs()
    assert {x[:2] for x in records} == set(sentence_pairs())
    for source, _, links in records:
        assert links == set(reversed_links(source))
    assert all(links == set() for *_, links in records_of(aligned_dir, split="dev"))


# Batches


@pytest.mark.parametrize("swap", [False, True])
def test_batches_have_the_links(aligned_dir, swap):
    index = RecordIndex.open(aligned_dir, "translate_text", "train", swap)
    lengths = index.source_length, index.target_length
    plan = batch_plan("exact", *lengths, 256, 1, index.swapped)

    def concatenated(*parts):
        return np.concatenate(parts)

    def batches(**options):
        parts = list(training_batches(index, plan, range(3), 2, **options))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [tf.nest.map_structure(concatenated, *pair) for pair in pairs]

    for step, plain in enumerate(batches()):
        batch = batches(aligned=True)[step]
        links = batch["alignment"]
        for side in SIDES:
            np.testing.assert_array_equal(batch[side], plain[side])
        expected = np.zeros_like(links)
        for row, payload in enumerate(index.read(plan.records(step))):
            feature = tf.train.Example.FromString(payload).features.feature
            flat = list(feature["links"].int64_list.value)
            for t, s in zip(flat[::2], flat[1::2], strict=True):
                expected[(row, s, t) if swap else (row, t, s)] = 1
        expected /= np.maximum(expected.sum(2, keepdims=True), 1)
        np.testing.assert_allclose(links, expected)
        assert expected.sum() > len(expected)


# Training


def test_training_needs_links(aligned_dir, data_dir, tmp_path):
    changes = {"guided_alignment": 0.5, "dropout": 0, "train_steps": 1}
    assert trainer(aligned_dir, tmp_path / "guided", **changes).train()["step"] == 1
    message = "guided_alignment needs word alignments, and"
    refused(message, trainer, data_dir, tmp_path / "none", guided_alignment=0.5)


def test_alignments_are_read_from_the_guided_head():
    three_layers = GUIDED.override(num_layers=3)
    plain = three_layers.override(guided_alignment=0.0)
    assert AlignmentHead().of_model(plain) == (2, None)
    assert AlignmentHead().of_model(three_layers) == (2, 1)
    assert AlignmentHead(head=2).of_model(three_layers) == (2, 2)
    assert AlignmentHead(2).of_model(three_layers) == (2, None)
    assert AlignmentHead(3).of_model(three_layers) == (3, None)
    one_layer = GUIDED.override(num_layers=1)
    assert AlignmentHead().of_model(one_layer) == (1, 1)
    model = Setup(1, GUIDED).model
    source, target = unequal_batch(1)
    np.testing.assert_array_equal(
        attention_weights(model, AlignmentHead(), source, target)[0],
        model.attention_maps(source, target).cross[0][:, 0],
    )


# Mistakes


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0-0 x", "links, line 2: 'x' is not a link; write the numbers"),
        ("0-0 2-0", "line 2: '2-0' links a word that is not there: the source has 2"),
        ("0-0 0-1", "line 2: '0-1' links a word that is not there: .* target 1"),
    ],
)
def test_bad_lines(tmp_path, line, message):
    source = write(tmp_path / "a", "a b", "c d")
    target = write(tmp_path / "b", "e", "f")
    links = write(tmp_path / "links", "0-0 1p0", line)
    refused(message, list, ParallelFiles(source, target, links)())
    pairs = ParallelFiles(source, target, write(links, "1-0 0p0", ""))
    assert [pair.links for pair in pairs()] == [((1, 0),), ()]
    message = f"{links} has only 1 line and {source} has 2"
    refused(message, list, ParallelFiles(source, target, write(links, ""))())
