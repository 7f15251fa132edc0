import logging
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from decoding_models import (
    EOS,
    LINES,
    NOT_TEXTS,
    log_probs_of,
    penalty,
    text_translator,
)

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.translator import Translator, batches
from t2t_keras.option import UserError
from t2t_keras.problem import Problem, TextForm
from t2t_keras.text.sentences import join_outputs


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return text_translator(tmp_path_factory.mktemp("vocab"))


@pytest.fixture(scope="module")
def tokenizer(translator):
    return translator.source_tokenizer


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
            assert outputs == [("", 0.0, 0.0, (), False, (), ())]
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


def test_batches_are_smaller_only_where_several_are_decoded_at_once():
    """Widths are multiples of 8; the first batch alone has 48 positions."""
    assert batches([9, 1, 1], 2048) == [[0, 1, 2]]
    assert batches([9, 1, 1], 2048, 2) == [[0], [1, 2]]
    assert batches([9, 1, 1], 16, 2) == [[0], [1, 2]]
    assert batches([9], 2048, 2) == [[0]]


def test_score(translator, tokenizer):
    sources, targets = LINES, [*LINES[1:], ""]
    scores = translator.score(sources, targets, batch_tokens=40)
    for source, target, score in zip(sources, targets, scores, strict=True):
        source, target = source.strip(), target.strip()
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
    options = {"max_source_length": 40, "truncate": True}
    with caplog.at_level(logging.WARNING):
        output, short = translator.translate(["a dog " * 1000, "a dog"], **options)
    assert "input 1 has" in caplog.text
    assert short == translator.translate(["a dog"])[0]
    assert output == translator.translate(["a dog " * 900], **options)[0]


PARTS = [
    "the old house stands near the river . a dog runs .",
    "the woman with the green hat reads a",
    "very long book . the dog reads a book .",
]
SHORT = {"max_source_length": 24}


def test_a_long_input_is_split_and_the_outputs_are_joined(translator, caplog):
    texts = ["a dog", f" {PARTS[0]}  {PARTS[1]} {PARTS[2]}\t", "", PARTS[0]]
    done = []
    with caplog.at_level(logging.INFO):
        found = translator.n_best(texts, 3, before=10, advance=done.append, **SHORT)
    assert sum(done) == 4
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("input 12 has ")
    parts = translator.n_best(split_by(translator, texts[1]), 3)
    assert len(parts) > 2
    for rank, output in enumerate(found[1]):
        of_parts = [outputs[rank] for outputs in parts]
        (text,) = join_outputs(tf.ragged.constant([[x.text for x in of_parts]]))
        assert output.text == text.numpy().decode()
        assert output.ids == sum((x.ids for x in of_parts), ())
        log_prob = sum(x.log_prob for x in of_parts)
        assert output.log_prob == pytest.approx(log_prob, abs=1e-3)
        score = output.log_prob / penalty(output.tokens, 0.6)
        assert output.score == pytest.approx(score, abs=1e-4)
    # Beside it, all others are as ever.
    alone = translator.n_best([texts[i] for i in (0, 2, 3)], 3, **SHORT)
    for i, outputs in zip((0, 2, 3), alone, strict=True):
        assert [x.ids for x in found[i]] == [x.ids for x in outputs]


def split_by(translator, text):
    """The parts of a text as the translator splits it, as texts."""
    ids, texts, later = translator._split(
        [translator.source_tokenizer.encode(text)],
        [text],
        [0],
        0,
        translator.choose(**SHORT),
    )
    assert later == {0: range(1, len(texts))}
    assert all(len(part) <= 24 for part in ids)
    assert "".join("".join(texts).split()) == "".join(text.split())
    return texts


def test_split_inputs_are_sampled_and_begin_with_their_prefixes(translator):
    text = " ".join(PARTS)
    options = {"sampling": True, "top_k": 20, "seed": 3} | SHORT
    samples = translator.n_best([text, "a dog"], 4, **options)
    assert len(samples[0]) == 4
    assert samples == translator.n_best([text, "a dog"], 4, **options)
    (again,) = translator.n_best(["a", "a dog"], 4, **options)[1:]
    assert [x.ids for x in samples[1]] == [x.ids for x in again]
    (forced,) = translator.n_best([text], 2, ["the dog"], **SHORT)
    (free,) = translator.n_best([text], 2, **SHORT)
    assert all(output.text.startswith("the dog") for output in forced)
    assert forced[0].text != free[0].text


def test_a_text_form_may_refuse_that_inputs_are_split(translator, caplog):
    class Whole(TextForm):
        splits_long_sources = False

    other = Translator(
        translator.problem.replace(text_form=Whole()),
        translator.model,
        translator.source_tokenizer,
        translator.target_tokenizer,
    )
    text = " ".join(PARTS)
    (output,) = other.translate([text], **SHORT)
    assert "input 1 has" in caplog.text
    assert output == translator.translate([text], truncate=True, **SHORT)[0]
    # One token is EOS, and nothing can be split into parts of it.
    assert other.translate([text], max_source_length=1) == translator.translate(
        [text], max_source_length=1
    )


def test_the_text_form_sees_a_long_source_as_a_whole(translator):
    other = with_beginnings(translator)
    (output,) = other.translate([" ".join(PARTS)], **SHORT)
    assert output == "the"


@pytest.mark.parametrize("n", [1, 2])
def test_no_ngram_is_repeated(translator, n):
    """But as often as the input or the prefix repeats one."""
    texts = [line for line in LINES if line.strip()]
    prefixes = ["a a a a" if line == "a" else "" for line in texts]
    source = translator.source_tokenizer

    def largest(ids):
        ids = [i for i in ids if i != EOS]
        return max(Counter(zip(*(ids[i:] for i in range(n)), strict=False)).values())

    free = False
    for options in ({}, {"sampling": True, "top_k": 5}):
        options |= {"extra_length": 15, "min_length": 6, "n_best": 3}
        found = translator.n_best(texts, None, prefixes, no_repeat_ngram=n, **options)
        for text, prefix, outputs in zip(texts, prefixes, found, strict=True):
            given = [source.encode(text), source.encode(prefix)]
            most = max(1, *(largest([*ids, *range(-n, 0)]) for ids in given))
            assert all(largest(output.ids) <= most for output in outputs)
            assert all(output.text.startswith(prefix) for output in outputs)
        for outputs in translator.n_best(texts, None, prefixes, **options):
            free |= any(largest(output.ids) > 1 for output in outputs)
    assert free


class Beginnings(TextForm):
    """Outputs are how their sources begin."""

    def output_text(self, source, target):
        return source[:3], False


def with_beginnings(translator):
    """The translator with that text form."""
    return Translator(
        translator.problem.replace(text_form=Beginnings()),
        translator.model,
        translator.source_tokenizer,
        translator.target_tokenizer,
    )


def test_the_text_form_sees_the_source(translator):
    other = with_beginnings(translator)
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
        ({"beam_size": "4"}, "beam_size must be an integer, not '4'"),
        ({"raw": 1}, "raw must be true or false, not 1"),
        ({"alpha": "much"}, "alpha must be a number, not 'much'"),
        ({"length_penalty": "x"}, "length_penalty must be one of gnmt, power, average"),
        # 2 ** 31 would be negative in the graph, which has integers of 32 bits.
        ({"extra_length": 2**31}, "extra_length must be at most 1000000000"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(UserError, match=message):
        DecodingOptions(**options)


def test_options_that_do_not_exist(translator):
    with pytest.raises(UserError, match="no option 'bean_size'; did you mean 'beam_si"):
        translator.translate(["A man."], bean_size=4)


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
