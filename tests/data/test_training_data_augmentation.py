"""Changes of training pairs at read time, as functions of seed, step and pair."""

import collections

import pytest
import sentencepiece
import tensorflow as tf
from helpers.small_data import small_data

from t2t_keras import UserError
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import training_batches
from t2t_keras.data.tfrecord import example
from t2t_keras.data.training_data import (
    Augmentation,
    batch_plan,
    planned_lengths,
    training_index,
)
from t2t_keras.hparam import HParams
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import load_tokenizer


class Letters:
    """A tokenizer of another kind."""


TEXT = "the old king sees a house and a ship"
TARGET = "der alte König sieht ein Haus"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    problem = small_data(directory)
    manifest = Manifest.open(directory, "translate_text")
    tokenizer = load_tokenizer(directory / manifest.vocab_files["source"])
    return directory, problem, training_index(directory, problem), tokenizer


def changed(data, count=400, tags=(), text=TEXT, target=TARGET, **hparams):
    """The texts and the ids of a pair in several rows."""
    *_, index, tokenizer = data
    augment = Augmentation(
        HParams(**hparams), (tokenizer, tokenizer), index, seed=1, tags=tags
    )
    payload = example(tokenizer.encode(text), tokenizer.encode(target))
    pairs = []
    for row in range(count):
        features = tf.train.Example.FromString(augment(payload, 7, row)).features
        ids = [
            list(features.feature[name].int64_list.value)
            for name in ("inputs", "targets")
        ]
        pairs.append(ids)
    texts = [tokenizer.decode(source) for source, _ in pairs]
    return texts, pairs


def test_words_are_left_out(data):
    texts, pairs = changed(data, word_dropout=0.25)
    words = TEXT.split()
    lengths = collections.Counter()
    for text in texts:
        originals = iter(words)  # the words that are left are in order
        assert all(word in originals for word in text.split())
        lengths[len(text.split())] += 1
    mean = sum(n * count for n, count in lengths.items()) / len(texts)
    assert mean == pytest.approx(0.75 * len(words), abs=0.35)  # 5 standard errors
    *_, tokenizer = data
    assert {tokenizer.decode(target) for _, target in pairs} == {TARGET}


def test_cases_change(data):
    *_, tokenizer = data
    texts, _ = changed(data, case_noise=0.6, text=TEXT.upper())
    counts = collections.Counter(texts)
    assert set(counts) == {TEXT.upper(), TEXT.title(), TEXT}
    for text in (TEXT, TEXT.title()):  # one of three changes each, and 400 draws
        assert counts[text] == pytest.approx(0.2 * 400, abs=40)
    # A text that gets more than a half more tokens stays as it is.
    lengths = [len(tokenizer.encode(text)) for text in (TEXT, TEXT.upper())]
    assert lengths[1] > 1.5 * lengths[0]
    assert TEXT.upper() not in changed(data, case_noise=0.6)[0]


@pytest.mark.parametrize("change", [{"word_dropout": 0.9}, {"case_noise": 1.0}])
def test_tags_stay(data, change):
    texts, _ = changed(data, 50, ["<2de>"], f"<2de> {TEXT}", **change)
    assert {text.split()[0] for text in texts} == {"<2de>"}
    assert len(set(texts)) > 1


def test_each_step_and_seed_has_its_own_changes(data):
    *_, index, tokenizer = data
    hparams = HParams(word_dropout=0.5)
    payload = example(tokenizer.encode(TEXT), tokenizer.encode(TARGET))
    results = set()
    for seed in (1, 2):
        augment = Augmentation(hparams, (tokenizer, tokenizer), index, seed)
        of_steps = [augment(payload, step, 0) for step in range(10)]
        assert len(set(of_steps)) > 5
        results.add(tuple(of_steps))
    assert len(results) == 2


def test_merges_are_skipped_on_both_sides(data):
    *_, tokenizer = data
    texts, pairs = changed(data, 2000, bpe_dropout=0.03)
    assert set(texts) == {TEXT}
    assert {tokenizer.decode(target) for _, target in pairs} == {TARGET}
    for side, text in enumerate((TEXT, TARGET)):
        segmentations = {tuple(pair[side]) for pair in pairs}
        unchanged = tokenizer.encode(text)
        assert len(segmentations) > 3 and tuple(unchanged) in segmentations
        assert max(map(len, segmentations)) <= len(unchanged) * 5 // 4


def test_a_text_is_never_left_without_words(data):
    assert all(changed(data, 50, word_dropout=0.99)[0])


def rows(data, plan, steps, augment, replicas=1, local_rows=None):
    """The rows of each step, padding removed."""
    parts = training_batches(
        data[2], plan, steps, replicas, local_replicas=local_rows, augment=augment
    ).as_numpy_iterator()
    result = []
    for _ in steps:
        of_step = []
        for _ in range(len(local_rows) if local_rows else replicas):
            batch = next(parts)
            for pair in zip(batch["source"], batch["target"], strict=True):
                if any(pair[0]):
                    of_step.append(tuple(tuple(s[s > 0].tolist()) for s in pair))
        result.append(of_step)
    return result


@pytest.mark.parametrize("bucketing", ["exact", "static"])
def test_batches_are_functions_of_the_step(data, bucketing):
    """With any number of replicas and processes, and from any step."""
    *_, index, tokenizer = data
    hparams = HParams(
        word_dropout=0.1, case_noise=0.2, bpe_dropout=0.1, bucketing=bucketing
    )
    augment = Augmentation(hparams, (tokenizer, tokenizer), index, seed=3)
    lengths = planned_lengths(index, hparams)
    plan = batch_plan(bucketing, *lengths, 256, seed=3)
    steps = range(2 * len(plan))
    expected = rows(data, plan, steps, augment)
    plain = rows(data, plan, steps, None)
    assert [len(step) for step in expected] == [len(step) for step in plain]
    assert sum(a != b for a, b in zip(expected, plain, strict=True)) > len(steps) / 2
    first_epoch = expected[: len(plan)]
    second_epoch = expected[len(plan) :]
    # The second epoch has other random changes.
    assert sorted(map(sorted, first_epoch)) != sorted(map(sorted, second_epoch))
    assert rows(data, plan, range(5, 9), augment) == expected[5:9]
    assert rows(data, plan, steps[:6], augment, 2) == expected[:6]
    halves = [
        rows(data, plan, steps[:6], augment, 2, local_rows)
        for local_rows in (range(1), range(1, 2))
    ]
    joined = [a + b for a, b in zip(*halves, strict=True)]
    assert joined == expected[:6]
    for batch in training_batches(index, plan, steps[:20], augment=augment):
        assert max(ids.shape[1] for ids in batch.values()) * len(batch["source"]) <= 256


def test_what_does_not_go_together(data, tmp_path):
    with pytest.raises(UserError, match="bpe_dropout needs vocabularies of the kind"):
        Augmentation(HParams(bpe_dropout=0.1), (data[-1], Letters()), data[2], 0)
    options = {"model_type": "unigram", "byte_fallback": True, "minloglevel": 2}
    options |= {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT, TARGET] * 20),
        model_prefix=str(tmp_path / "unigram"),
        **{"vocab_size": 330, "hard_vocab_limit": False, **options},
    )
    unigram = SentencePieceTokenizer(tmp_path / "unigram.model")
    with pytest.raises(UserError, match="a vocabulary as `t2t datagen` trains"):
        Augmentation(HParams(bpe_dropout=0.1), (data[-1], unigram), data[2], 0)
    for name in ("word_dropout", "case_noise", "bpe_dropout"):
        with pytest.raises(UserError, match="guided_alignment excludes word_dropout"):
            HParams(guided_alignment=0.1, **{name: 0.1})
