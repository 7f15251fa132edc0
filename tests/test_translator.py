import logging

import numpy as np
import pytest
from decoding_models import (
    EOS,
    LINES,
    NOT_TEXTS,
    log_probs_of,
    penalty,
    transformer,
)

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.translator import Translator, batches
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, TextForm
from t2t_keras.text.sentence_piece import SentencePieceTokenizer, train_sentence_piece


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.spm"
    train_sentence_piece(LINES * 2, path, 340)
    return SentencePieceTokenizer(path)


@pytest.fixture(scope="module")
def translator(tokenizer):
    problem = Problem(summary="", extra_length=6)
    return Translator(problem, transformer(tokenizer.vocab_size), tokenizer, tokenizer)


def test_order_and_batches_change_nothing(translator):
    together = translator.n_best(LINES, 3)
    assert [len(outputs) for outputs in together] == [
        1 if i in (2, 6) else 3 for i in range(9)
    ]
    for options in ({"batch_tokens": 1}, {"batch_tokens": 30}):
        split = translator.n_best(LINES[::-1], 3, **options)[::-1]
        for ours, theirs in zip(together, split, strict=True):
            assert [o.ids for o in ours] == [o.ids for o in theirs]
            np.testing.assert_allclose(
                [o.score for o in ours], [o.score for o in theirs], atol=1e-4
            )
    assert translator.translate(LINES) == [outputs[0].text for outputs in together]
    assert len({outputs[0].text for outputs in together}) > 5


def test_spaces_may_be_many(translator):
    """Though the words between them are empty."""
    assert len(translator.translate(["a  : 3", " a : "])) == 2


def test_hypotheses(translator, tokenizer):
    """Scores are those of teacher forcing, limits those of the options."""
    for line, outputs in zip(LINES, translator.n_best(LINES, 4), strict=True):
        if not line.strip():
            assert outputs == [("", 0.0, 0.0, (), False)]
            continue
        source = tokenizer.encode(line)
        log_probs = log_probs_of(translator.model, source, [o.ids for o in outputs])
        for output, log_prob in zip(outputs, log_probs, strict=True):
            assert output.log_prob == pytest.approx(log_prob, abs=1e-4)
            assert output.score == pytest.approx(
                log_prob / penalty(len(output.ids), 0.6), abs=1e-4
            )
            assert output.tokens == len(output.ids) <= len(source) + 6
            assert output.ids[-1] == EOS or output.tokens == len(source) + 6
            assert output.text == tokenizer.decode(output.ids).replace("\n", " ")


def test_score(translator, tokenizer):
    sources, targets = LINES, [*LINES[1:], ""]
    scores = translator.score(sources, targets, batch_tokens=40)
    for source, target, score in zip(sources, targets, scores, strict=True):
        ids = tokenizer.encode(target)
        (expected,) = log_probs_of(translator.model, tokenizer.encode(source), [ids])
        assert score.log_prob == pytest.approx(expected, abs=1e-4)
        assert score.tokens == len(ids)
    with pytest.raises(UserError, match="9 sources but 1 targets"):
        translator.score(LINES, ["a"])


def test_prefixes_and_minimum_length(translator, tokenizer):
    prefixes = ["the dog", "", "a", "a book", "", "the", "", "a dog runs .", "the"]
    outputs = translator.n_best(LINES, 2, prefixes, min_length=5)
    for line, prefix, best in zip(LINES, prefixes, outputs, strict=True):
        if line.strip():
            wanted = tokenizer.encode(prefix)[:-1]
            for output in best:
                assert list(output.ids[: len(wanted)]) == wanted
                assert output.text.startswith(prefix)
                assert output.tokens >= 6
    with pytest.raises(UserError, match="9 texts but 1 prefixes"):
        translator.translate(LINES, ["a"])


def test_sampling(translator):
    options = {"sampling": True, "top_k": 20, "temperature": 0.8}
    samples = translator.n_best(LINES, 5, seed=3, **options)
    again = translator.n_best(LINES, 5, seed=3, batch_tokens=20, **options)
    assert [[o.ids for o in best] for best in samples] == [
        [o.ids for o in best] for best in again
    ]
    assert len({o.ids for o in samples[0]}) > 1
    other = translator.n_best(LINES, 5, seed=4, **options)
    assert [o.ids for o in samples[0]] != [o.ids for o in other[0]]
    # The same text at another place of the list has its own samples.
    first, second = translator.n_best(LINES[:1] * 2, 5, seed=3, **options)
    assert [o.ids for o in first] != [o.ids for o in second]


def test_very_long_input(translator, caplog):
    with caplog.at_level(logging.WARNING):
        output, short = translator.translate(
            ["a dog " * 1000, "a dog"], max_source_length=40
        )
    assert "input 1 has" in caplog.text
    assert short == translator.translate(["a dog"])[0]
    assert output == translator.translate(["a dog " * 900], max_source_length=40)[0]


class Beginnings(TextForm):
    """Outputs are how their sources begin."""

    def output_text(self, source, target):
        return source[:3], False


def test_the_text_form_sees_the_source(translator):
    problem = translator.problem.replace(text_form=Beginnings())
    other = Translator(
        problem,
        translator.model,
        translator.source_tokenizer,
        translator.target_tokenizer,
    )
    assert other.translate(LINES[:2], beam_size=1) == ["the", "a d"]


def test_a_line_break_in_the_output_becomes_a_space(translator, tokenizer):
    class Breaking:
        vocab_size = tokenizer.vocab_size

        def decode(self, ids):
            return "a\nb"

    other = Translator(translator.problem, translator.model, tokenizer, Breaking())
    assert other.translate(["a dog"], beam_size=1) == ["a b"]


@pytest.mark.parametrize(("texts", "message"), NOT_TEXTS)
def test_what_is_no_list_of_texts(texts, message, translator):
    for method in (translator.translate, translator.n_best):
        with pytest.raises(UserError, match=f"^texts.*{message}"):
            method(texts)
    if texts is not None:  # there need not be any prefixes
        with pytest.raises(UserError, match=f"^prefixes.*{message}"):
            translator.translate(["a"], texts)
    with pytest.raises(UserError, match=f"^sources.*{message}"):
        translator.score(texts, ["a"])
    with pytest.raises(UserError, match=f"^targets.*{message}"):
        translator.score(["a"], texts)


def test_texts_may_come_from_any_iterable(translator):
    expected = translator.translate(LINES[:2])
    assert translator.translate(iter(LINES[:2])) == expected
    assert translator.translate(np.array(LINES[:2])) == expected


def test_what_is_done_is_told(translator):
    done = []
    translator.n_best(LINES, advance=done.append, batch_tokens=30)
    assert len(done) > 2
    assert sum(done) == len(LINES)


def test_no_lines(translator):
    assert translator.translate([]) == []
    assert translator.translate(["", " "]) == ["", ""]
    assert translator.score([], []) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size must be at least 1"),
        ({"alpha": float("nan")}, "alpha must be a finite number"),
        ({"n_best": 5}, "n_best 5 is more than beam_size 4; raise beam_size"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"top_p": 1.5}, "top_p must be"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(UserError, match=message):
        DecodingOptions(**options)


def test_decoding_is_the_papers_by_default():
    """Beam 4, alpha 0.6, at most 50 pieces more than the input (6.1)."""
    for record in (Problem(summary=""), DecodingOptions()):
        assert (record.beam_size, record.alpha, record.extra_length) == (4, 0.6, 50)


def test_an_output_without_end_is_cut_at_its_own_limit(translator, tokenizer):
    """So many pieces more than its input, EOS counted: whatever stands beside it."""
    lines = [line for line in LINES if line.strip()]
    for outputs, line in zip(
        translator.n_best(lines, 2, min_length=1000, extra_length=3), lines, strict=True
    ):
        limit = len(tokenizer.encode(line)) + 3
        assert [output.tokens for output in outputs] == [limit] * 2


def test_problems_defaults(translator):
    problem = Problem(summary="", beam_size=21, alpha=0.3, extra_length=300)
    options = DecodingOptions.of(problem)
    assert (options.beam_size, options.alpha, options.extra_length) == (21, 0.3, 300)
    assert translator.options == DecodingOptions(extra_length=6)


def test_batches():
    lengths = [3, 100, 17, 8, 9, 1, 24, 16]
    groups = batches(lengths, 48)
    assert sorted(i for group in groups for i in group) == list(range(8))
    order = [lengths[i] for group in groups for i in group]
    assert order == sorted(lengths, reverse=True)
    for group in groups:
        width = -(-max(lengths[i] for i in group) // 8) * 8
        assert len(group) == 1 or len(group) * width <= 48
    assert groups == [[1], [6, 2], [7, 4, 3], [0, 5]]
