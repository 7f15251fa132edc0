"""BPE-dropout: the same texts in other pieces, in training examples only."""

import collections

import pytest
from small_corpus import PROBLEM, TRAIN, Given, decoded, faults, files, interrupt
from tokenizer_checks import LINES, random_lines

from t2t_keras.cli import main
from t2t_keras.data import encoding
from t2t_keras.data.datagen import Task, generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.records import RecordIndex
from t2t_keras.option import UserError
from t2t_keras.problem import Cleaning, Problem
from t2t_keras.text.sentence_piece import SentencePieceTokenizer, train_sentence_piece

pytestmark = pytest.mark.usefixtures("small_scale")

DROPPED = PROBLEM.replace(bpe_dropout=0.3, copies=3)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A vocabulary of ab, _ab and _a, in this order."""
    path = tmp_path_factory.mktemp("vocab") / "ab.spm"
    train_sentence_piece(["ab ab ab"] * 9, path, 300, symbols=["xyz"])
    return SentencePieceTokenizer(path)


def test_every_merge_is_left_out_with_the_probability(tokenizer):
    """Of _ a b the merges are a b -> ab, or else _ a -> _a, and then _ab or none."""
    whole = tokenizer.encode("ab")
    assert len(whole) == 2
    found = tokenizer.samples("ab", 4000, dropout=0.3, seed=1)
    lengths = collections.Counter(len(ids) - 1 for ids in found)
    first, second = 0.7, 0.3 * 0.7  # a b is merged; it is overlooked, but _ a is not
    expected = {1: first * 0.7 + second * 0.7, 3: 0.3 * 0.3}
    for length, probability in expected.items():
        assert lengths[length] / 4000 == pytest.approx(probability, abs=0.03)
    assert {tokenizer.decode(ids) for ids in found} == {"ab"}


def test_without_dropout_the_pieces_are_those_of_sentencepiece(tmp_path):
    train_sentence_piece(LINES, tmp_path / "a.spm", 420, symbols=["NP", "NPS", "/S"])
    tokenizer = SentencePieceTokenizer(tmp_path / "a.spm")
    for line in [*LINES, *random_lines(300), "NPS NP NPX /S aNP", "NP  /S"]:
        assert tokenizer.samples(line, 1, 0.0, 1) == [tokenizer.encode(line)], line
        for ids in tokenizer.samples(line, 3, 0.3, 1):
            assert tokenizer.decode(ids) == line


def test_the_seed_tells_the_pieces(tokenizer):
    samples = [tokenizer.samples("ab ab ab ab", 5, 0.5, seed) for seed in (1, 2, 1)]
    assert samples[0] == samples[2] != samples[1]
    assert samples[0][0] != samples[0][1]


def test_symbols_stay_whole(tokenizer):
    symbol = tokenizer.encode("xyz")
    assert len(symbol) == 2
    assert tokenizer.samples("xyz", 50, 0.9, 1) == [symbol] * 50


def test_each_pair_comes_in_copies_of_its_own_pieces(tmp_path):
    generate(DROPPED, tmp_path / "dropped", workers=1)
    generate(PROBLEM, tmp_path / "whole", workers=1)
    texts = {
        name: [
            collections.Counter(decoded(tmp_path / name, split))
            for split in ("train", "dev")
        ]
        for name in ("dropped", "whole")
    }
    train = texts["dropped"][0]
    assert train.keys() <= texts["whole"][0].keys()
    for pair, count in texts["whole"][0].items():
        # Smaller pieces may make a pair too long.
        assert train[pair] == 3 * count or len(pair[0]) > 30
    assert texts["dropped"][1] == texts["whole"][1]

    index = RecordIndex.open(tmp_path / "dropped", "small", "train")
    assert len(set(index.read(range(len(index))))) > 0.9 * len(index)
    manifest = Manifest.open(tmp_path / "dropped", "small")
    assert manifest.examples["train"] == train.total()
    assert train.total() + sum(manifest.dropped["train"].values()) == 3 * len(TRAIN)
    tokens = [Manifest.open(tmp_path / name, "small").tokens for name in texts]
    assert tokens[0]["train"]["source"] > 3.2 * tokens[1]["train"]["source"]
    assert tokens[0]["dev"] == tokens[1]["dev"]


def test_copies_without_dropout_are_the_same(tmp_path):
    generate(PROBLEM.replace(copies=2), tmp_path, workers=1)
    index = RecordIndex.open(tmp_path, "small", "train")
    counts = collections.Counter(index.read(range(len(index))))
    assert all(count % 2 == 0 for count in counts.values())


def test_pieces_depend_on_the_pair_alone(tmp_path, monkeypatch):
    """Not on processes, tasks, or the pairs that are encoded with it."""
    generate(DROPPED, tmp_path / "one", workers=1)
    generate(DROPPED, tmp_path / "two", workers=2)
    monkeypatch.setattr(encoding, "CHUNK", 7)
    for task in Task(1, 3).all():
        generate(DROPPED, tmp_path / "tasks", workers=1, task=task)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "tasks")


@pytest.mark.parametrize("at", [20, 45])
def test_what_was_interrupted_goes_on(tmp_path, at):
    generate(DROPPED, tmp_path / "whole", workers=1)
    with faults(at, interrupt), pytest.raises(KeyboardInterrupt):
        generate(DROPPED, tmp_path / "parts", workers=1)
    generate(DROPPED, tmp_path / "parts", workers=1)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_a_vocabulary_that_normalises_is_refused(tmp_path):
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab ab ﬁne"] * 40),
        model_prefix=str(tmp_path / "own"),
        **{"model_type": "unigram", "vocab_size": 290, "byte_fallback": True},
        **{"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
        **{"hard_vocab_limit": False, "minloglevel": 2},
    )
    (tmp_path / "own.model").rename(tmp_path / "vocab.small.330.spm")
    for _ in range(2):
        with pytest.raises(UserError, match="needs a vocabulary as datagen"):
            generate(DROPPED, tmp_path, workers=1)


def test_copies_are_no_duplicates(tmp_path):
    twice = PROBLEM.replace(
        sources={"train": Given([*TRAIN[:10], *TRAIN[:10]])},
        cleaning=Cleaning(duplicates=True),
        copies=3,
    )
    manifest = generate(twice, tmp_path, workers=1)
    assert manifest.examples == {"train": 30}
    assert manifest.dropped["train"]["duplicate"] == 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bpe_dropout": 1.0}, "bpe_dropout must be at least 0 and below 1, not 1.0"),
        (
            {"bpe_dropout": 0.1, "tokenizer": "t2t_subword"},
            "bpe_dropout needs the tokenizer 'sentencepiece', not 't2t_subword'",
        ),
        ({"copies": 0}, "copies must be at least 1, not 0"),
    ],
)
def test_mistakes(changes, message):
    with pytest.raises(UserError, match=message):
        Problem(summary="", **changes)


def test_flags(tmp_path, capfd):
    for side in ("source", "target"):
        (tmp_path / side).write_text("a b c d e f g\n" * 30)
    argv = [
        *("datagen", "--problem", "translate_text", "--workers", "1"),
        *("--data_dir", str(tmp_path / "data"), "--vocab_size", "300"),
        *("--train_source", str(tmp_path / "source")),
        *("--train_target", str(tmp_path / "target")),
    ]
    assert main([*argv, "--bpe_dropout", "0.2", "--copies", "4"]) == 0
    manifest = Manifest.open(tmp_path / "data", "translate_text")
    assert manifest.examples == {"train": 120}
    assert (manifest.bpe_dropout, manifest.copies) == (0.2, 4)
    capfd.readouterr()
    assert main([*argv, "--bpe_dropout", "0.2"]) == 2
    assert "copies was 4 and is now 1" in capfd.readouterr().err
