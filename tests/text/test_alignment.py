"""Word alignment: against NumPy on a tiny model, and worked examples."""

import numpy as np
import pytest
from helpers.command_line import run, run_json, run_refused, write
from helpers.decoding_models import LINES, run_of, transformer
from helpers.errors import refused
from helpers.tokenizer_checks import ascii_words, assert_words_are_spelled

from t2t_keras.decoding.engine import AlignmentHead
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, TextProcessor
from t2t_keras.text.alignment import (
    alignment_scores,
    format_alignment,
    joined_alignment,
    parse_reference,
    word_starts,
    words_of_tokens,
)
from t2t_keras.text.sentence_piece import SentencePieceTokenizer

TEXTS = [*LINES, "日本 a", "a 日", "  two  spaces ", "dog, cat; the_river?"]
TEXTS += ["ab\tcd\u3000ef", "10\u00a0000 €", "a\u202f! b", "\u2028\u3000 a\x85b"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "v.spm"
    SentencePieceTokenizer.train(LINES * 2, path, 340)
    return SentencePieceTokenizer(path)


@pytest.fixture(scope="module")
def translator(tokenizer):
    """A model with two layers, whose attention differs from token to token."""
    model = transformer(tokenizer.vocab_size, num_layers=2)
    for layer in model.decoder.layers:
        kernel = layer.cross_attention.query_projection.kernel
        kernel.assign(8 * kernel)
    return ModelTranslator(
        Problem(summary="", extra_length=6), model, tokenizer, tokenizer
    )


# Words


def test_words_of_tokens(tokenizer):
    assert_words_are_spelled(tokenizer, TEXTS)


def test_word_starts():
    assert word_starts(" a b.  c d", ["a b.", "c", "d"]) == [0, 2, 3]
    assert word_starts("日本。中国。 a", ["日本。", "中国。", "a"]) == [0, 0, 1]
    assert word_starts("a b", ["a", "", "b"]) == [0, 1, 1]
    assert word_starts("10\u00a0000.\u3000a b", ["10\u00a0000.", "a b"]) == [0, 0]


def test_every_part_of_a_source_begins_with_its_tag():
    source = " <2de> a b. c d"
    parts = ["<2de> a b.", "<2de> c d"]
    links = [((0, 0), (2, 1)), ((0, 0), (1, 1), (2, 2))]
    joined = joined_alignment(links, source, parts, "A B. C D E", ["A B.", "C D E"])
    assert joined == ((0, 0), (2, 1), (3, 2), (4, 3), (5, 4))  # "<2de>" is a word
    target = "A B. C D E", ["A B.", "C D E"]
    joined = joined_alignment(links, source, parts, *target, ["<2fr>", "<2de>"])
    assert joined == ((0, 0), (0, 2), (2, 1), (3, 3), (4, 4))


# Alignments


def expected_alignment(translator, source, target_ids, layer, head):
    """From `attention_maps` and SentencePiece's marks, by a loop over words."""
    tokenizer = translator.source_tokenizer
    source_ids = tokenizer.encode(source)
    maps = translator.model.attention_maps(
        np.array([source_ids]), np.array([target_ids])
    )
    weights = np.asarray(maps.cross[layer - 1])[0]
    weights = weights.mean(0) if head is None else weights[head - 1]
    links = set()
    word_of = words_of_tokens(tokenizer, source_ids)
    for t, word in enumerate(words_of_tokens(tokenizer, target_ids)):
        if word is not None:
            row = [
                w if i is not None else -1
                for w, i in zip(weights[t], word_of, strict=True)
            ]
            links.add((word_of[int(np.argmax(row))], word))
    return tuple(sorted(links))


@pytest.mark.parametrize(
    ("head", "layer", "texts"),
    [(AlignmentHead(), 1, LINES[1:5:3]), (AlignmentHead(2, 2), 2, LINES[1:4])],
)
def test_outputs_and_pairs_are_aligned(translator, head, layer, texts):
    n_best = translator.n_best(texts, 2, alignment=head, batch_tokens=40)
    for source, outputs in zip(texts, n_best, strict=True):
        for output in outputs:
            if not source.strip():
                assert output.alignment == ()
                continue
            assert output.alignment == expected_alignment(
                translator, source, output.ids, layer, head.head
            )
            targets = {j for _, j in output.alignment}
            assert targets == set(range(len(ascii_words(output.text))))
    targets = texts[::-1]
    for source, target, alignment in zip(
        texts, targets, translator.align(texts, targets, head), strict=True
    ):
        ids = translator.target_tokenizer.encode(target)
        expected = expected_alignment(translator, source, ids, layer, head.head)
        assert alignment == expected


def test_parts_of_a_long_input_count_its_words(translator):
    text = " the old dog runs . the dog reads a book .  a dog runs ."
    options = {"max_source_length": 12, "alignment": AlignmentHead(2, 2)}
    ((output,),) = translator.n_best([text], **options)
    parts = ["the old dog runs .", "the dog reads a book .", "a dog runs ."]
    source_start = target_start = 0
    expected = []
    for part in parts:
        ((part_output,),) = translator.n_best([part], **options)
        expected += [
            (i + source_start, j + target_start) for i, j in part_output.alignment
        ]
        source_start += len(part.split())
        target_start += len(ascii_words(part_output.text))
    assert target_start == len(ascii_words(output.text))
    assert output.alignment == tuple(sorted(expected))


def test_what_cannot_be_aligned(translator):
    for head, message in (
        (AlignmentHead(3), "the model has no layer 3; give a number from 1 to 2"),
        (AlignmentHead(0), "the model has no layer 0"),
        (AlignmentHead(head=3), "the model has no head 3; give a number from 1 to 2"),
    ):
        refused(message, translator.n_best, ["a"], alignment=head)
        refused(message, translator.align, ["a"], ["a"], head)

    class Nested(TextProcessor):
        aligns_outputs = False

    problem = Problem(summary="", name="trees", text_processor=Nested())
    tokenizer = translator.source_tokenizer
    trees = ModelTranslator(problem, translator.model, tokenizer, tokenizer)
    with pytest.raises(UserError, match="of problem 'trees' cannot be aligned"):
        trees.n_best(["a"], alignment=AlignmentHead())
    refused("1 source but 2 targets", translator.align, ["a"], ["a", "b"])


def test_alignment_error_rate():
    """The worked definition of Och and Ney (2003)."""
    references = [parse_reference("0-0 1-1 1p2", "x"), parse_reference("", "x")]
    assert references[0].sure == {(0, 0), (1, 1)}
    assert references[0].possible == {(0, 0), (1, 1), (1, 2)}
    alignments = [((0, 0), (1, 2), (2, 2)), ()]
    scores = alignment_scores(alignments, references)
    assert scores == {
        "aer": pytest.approx(100 * (1 - (1 + 2) / (3 + 2))),
        "precision": pytest.approx(100 * 2 / 3),
        "recall": pytest.approx(100 * 1 / 2),
    }
    perfect = [tuple(sorted(x.sure)) for x in references]
    assert alignment_scores(perfect, references)["aer"] == 0
    for line in ("0-", "0:1", "a-b", "-1-0", "0-0,"):
        refused("a file, line 3: '", parse_reference, line, "a file, line 3")


# The command line


@pytest.fixture
def run_dir(translator, monkeypatch, tmp_path):
    return run_of(translator, monkeypatch, tmp_path)


def test_translate_writes_alignments(translator, run_dir, capfd, tmp_path):
    source = write(tmp_path / "in", *LINES)
    output = tmp_path / "out"
    argv = ("translate", *run_dir, "--input", source, "--output", output)
    assert run(*argv, "--alignments", tmp_path / "links") == 0
    n_best = translator.n_best(LINES, alignment=AlignmentHead())
    assert output.read_text() == "".join(f"{x.text}\n" for (x,) in n_best)
    lines = (tmp_path / "links").read_text().split("\n")
    assert lines == [*(format_alignment(x.alignment) for (x,) in n_best), ""]
    argv = (*argv, "--alignments", tmp_path / "x", "--resume")
    message = "--resume does not work with --alignments"
    assert message in run_refused(capfd, *argv)
    assert not (tmp_path / "x").exists()


def test_score_writes_alignments_and_their_error_rate(
    translator, run_dir, capfd, tmp_path
):
    source = write(tmp_path / "a", *LINES)
    target = write(tmp_path / "b", *LINES[::-1])
    argv = ("score", *run_dir, "--source", source, "--target", target)
    scores = run_json(capfd, *argv)
    links = tmp_path / "links"
    assert run_json(capfd, *argv, "--alignments", links) == scores
    alignments = translator.align(LINES, LINES[::-1])
    assert links.read_text() == "".join(f"{format_alignment(x)}\n" for x in alignments)
    perfect = {"aer": 0.0, "precision": 100.0, "recall": 100.0}
    assert run_json(capfd, *argv, "--gold_alignments", links) == scores | perfect
    gold = write(tmp_path / "gold", *["0-0 0p1"] * len(LINES))
    references = [parse_reference("0-0 0p1", "x")] * len(LINES)
    result = run_json(capfd, *argv, "--gold_alignments", gold)
    assert result == scores | alignment_scores(alignments, references)
    assert 0 < result["aer"] <= 100
    assert run(*argv, "--gold_alignments", write(tmp_path / "c", "0-0")) == 2
    assert "differ in their number of lines, 1 and 9" in capfd.readouterr().err
