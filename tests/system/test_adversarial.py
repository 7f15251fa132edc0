"""Lines of every kind: as many outputs as lines, in Python as when served."""

import random

import numpy as np
import pytest
from helpers.command_line import run, write
from helpers.decoding_models import LINES, SHORT

import t2t_keras
from t2t_keras.cli import translation
from t2t_keras.exporting.saved_model import export_saved_model
from t2t_keras.text.sentences import is_blank
from t2t_keras.text.vocabulary import UNK

OPTIONS = {"max_source_length": 32, "no_repeat_ngram": 3, "extra_length": 1}
SPACES = " \t\u3000\u2028\x85\xa0\u1680\r\x1c"
ODD = (
    "\u200b\u200d\u2060\ufeff\u202e\u2066\u0301\u0489\x00\x01\x07\x1b\x7f▁⁇\ufffd\uffff"
)


def line(pick: random.Random) -> str:
    """One line; only "\\n" is in none."""

    def characters(count: int) -> str:
        codes = (pick.randrange(0x110000) for _ in range(count))
        codes = (code for code in codes if not 0xD800 <= code < 0xE000 and code != 10)
        return "".join(map(chr, codes))

    words = " ".join(LINES).split()
    sentences = [" ".join(pick.choices(words, k=pick.randrange(9))) for _ in range(20)]
    kinds = (
        lambda: "",
        lambda: "".join(pick.choices(SPACES, k=pick.randrange(1, 60))),
        lambda: "".join(pick.choices(ODD + SPACES + "ab", k=pick.randrange(40))),
        lambda: characters(pick.randrange(1, 12)),
        lambda: pick.choice("ab日\u0301🙂\x00") * pick.randrange(1, 200),
        lambda: "👩‍👩‍👧‍👦🏽" * pick.randrange(1, 9),
        lambda: pick.choice(("<2de>", "<unk>", "</s>", "<pad>", "<0x0A>")) + " a dog",
        lambda: pick.choice((". ", "! ", "。", "？", "؟ ", "\r")).join(sentences),
        lambda: pick.choice(
            ("e\u0301 \u0301", "שלום \u202eעולם", "a\tb\rc", "\ufeffa")
        ),
        lambda: pick.choice(sentences),
    )
    return pick.choice(kinds)()


def adversarial_lines(count: int) -> list[str]:
    pick = random.Random(0)
    # The longest words are few, for they take the most time.
    words = ["x" * 10_000, "日" * 3000, "x. " * 2000] if count > 1000 else ["x" * 2000]
    return [*words, *(line(pick) for _ in range(count - len(words)))]


def test_outputs_are_the_same(translator, exported, export_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(translation, "load", lambda *_: exported)
    compare(adversarial_lines(20), translator, SHORT, export_dir, tmp_path)


@pytest.mark.slow
def test_outputs_of_many_lines_are_the_same(translator, tmp_path, monkeypatch):
    export_saved_model(translator, tmp_path / "1", **OPTIONS)
    client = t2t_keras.load(tmp_path / "1")
    monkeypatch.setattr(translation, "load", lambda *_: client)
    compare(adversarial_lines(5000), translator, OPTIONS, tmp_path / "1", tmp_path)


def compare(lines, translator, options, export, folder):
    """Compares the outputs of a translator and of its export, which is loaded."""
    client = translation.load(export)
    expected = translator.n_best(lines, 2, **options | {"beam_size": 2})
    actual = client.n_best(lines, 2, beam_size=2)
    assert len(expected) == len(actual) == len(lines)
    (score,) = client.score(["a"], ["日" * 3000])
    assert score.tokens == options["max_source_length"]
    ties = 0
    for text, ours, exported in zip(lines, expected, actual, strict=True):
        assert not any("\n" in output.text for output in (*ours, *exported))
        scores = [output.score for output in exported]
        np.testing.assert_allclose(
            scores, [x.score for x in ours], atol=2e-3, rtol=1e-4, err_msg=repr(text)
        )
        ties += [x.text for x in ours] != [x.text for x in exported]
        assert bool(ours[0].ids) == (not is_blank(text))
    assert ties <= len(lines) / 500  # equals but for rounding, in other batches
    source = write(folder / "in", *lines)
    output = folder / "out"
    argv = ("translate", "--model", export, "--input", source, "--output", output)
    assert run(*argv, "--beam_size", 2) == 0
    written = output.read_bytes().decode().split("\n")
    assert written.pop() == ""
    assert len(written) == len(lines)


def test_sentence_piece_knows_every_character(translator):
    """So `<unk>` is in no training data, and there is none to be copied."""
    tokenizer = translator.source_tokenizer
    codes = [c for c in range(0x110000) if c != 10 and not 0xD800 <= c < 0xE000]
    width = 4096
    starts = range(0, len(codes), width)
    lines = ["".join(map(chr, codes[i : i + width])) for i in starts]
    for text, ids in zip(lines, tokenizer.encode_batch(lines), strict=True):
        assert UNK not in ids
        assert tokenizer.decode(ids) == text
    graph = tokenizer.graph()
    encoded = graph.encode(lines[:40])
    assert encoded.to_list() == tokenizer.encode_batch(lines[:40])
