import json
import logging

import numpy as np
import pytest
from helpers.command_line import run, run_refused, write
from helpers.decoding_models import (
    EOS,
    LINES,
    NOT_TEXTS,
    SHORT,
    log_probs_of,
    penalty,
    run_of,
    token_log_probs,
    with_attributes,
)
from helpers.errors import refused

from t2t_keras.decoding.engine import Hypothesis
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.problem import Problem, TextProcessor


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
        for ours, split_outputs in zip(together, split, strict=True):
            assert [o.ids for o in ours] == [o.ids for o in split_outputs]
            np.testing.assert_allclose(
                [o.score for o in ours], [o.score for o in split_outputs], atol=1e-4
            )
    assert translator.translate(LINES) == [outputs[0].text for outputs in together]
    assert len({outputs[0].text for outputs in together}) > 5


def test_hypotheses(translator, tokenizer):
    """Scores are those of teacher forcing, limits those of the options."""
    for line, outputs in zip(LINES, translator.n_best(LINES, 4), strict=True):
        if not line.strip():
            assert outputs == [Hypothesis("", 0.0, 0.0, ())]
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


def test_prefixes_and_minimum_length(translator, tokenizer):
    prefixes = ["the dog", "", "a", "a book", "", "the", "", "a dog runs .", "the"]
    outputs = translator.n_best(LINES, 2, prefixes, min_length=5)
    for line, prefix, best in zip(LINES, prefixes, outputs, strict=True):
        if line.strip():
            prefix_ids = tokenizer.encode(prefix)[:-1]
            for output in best:
                assert list(output.ids[: len(prefix_ids)]) == prefix_ids
                assert output.text.startswith(prefix)
                assert output.tokens >= 6
    spaced = [f"{prefix} \u3000" for prefix in prefixes]
    assert translator.n_best(LINES, 2, spaced, min_length=5) == outputs
    refused("9 texts but 1 prefix", translator.translate, LINES, ["a"])


def test_texts_of_an_n_best_list_are_distinct(translator, tokenizer):
    """The best of equal texts is kept, and a wider beam replaces the others."""

    class Coarse:
        """Different tokens often decode to one text."""

        vocab_size = tokenizer.vocab_size
        encode_batch = tokenizer.encode_batch

        def decode(self, ids):
            return tokenizer.decode(ids)[:6]

    coarse = with_attributes(translator, target_tokenizer=Coarse())
    n_best = coarse.n_best(LINES, 4)
    replaced = 0
    for plain, outputs in zip(translator.n_best(LINES, 4), n_best, strict=True):
        texts = [output.text for output in outputs]
        assert len(set(texts)) == len(texts)
        assert outputs[0].ids == plain[0].ids
        scores = [output.score for output in outputs if output.ids[-1:] == (EOS,)]
        assert scores == sorted(scores, reverse=True)
        distinct = len({output.text[:6] for output in plain})
        assert len(outputs) >= distinct
        replaced += len(outputs) - distinct
    for line, outputs in zip(LINES[:2], n_best, strict=False):
        ((*alone,),) = coarse.n_best([line], 4)
        assert [x.ids for x in alone] == [x.ids for x in outputs]
    assert replaced > 0
    samples = coarse.n_best(LINES[:1], 30, sampling=True)[0]
    assert len(samples) == 30 > len({output.text for output in samples})


def test_very_long_target(translator, tokenizer, caplog):
    target = "日" * 5000
    with caplog.at_level(logging.WARNING):
        (score,) = translator.score(["a dog"], [target], max_source_length=40)
    assert "target 1 has" in caplog.text
    assert score.ids == (*tokenizer.encode(target)[:39], EOS)
    assert score.tokens == 40


def test_outputs_are_lines_that_the_text_processor_has_changed(translator, tokenizer):
    class Form(TextProcessor):
        def postprocess(self, source, target):
            return f"{source}: {target}", False

    class Breaking:
        vocab_size = tokenizer.vocab_size

        def decode(self, ids):
            return "a\nb"

    changing = with_attributes(
        translator, text_processor=Form(), target_tokenizer=Breaking()
    )
    assert changing.translate(["a dog"], beam_size=1) == ["a dog: a b"]
    text = " ".join(LINES[:4])  # is split
    assert changing.translate([text], beam_size=1, **SHORT)[0].startswith(
        f"{text}: a b"
    )


@pytest.mark.parametrize(("texts", "message"), NOT_TEXTS)
def test_arguments_that_are_not_lists_of_texts(texts, message, translator):
    for method in (translator.translate, translator.n_best):
        refused(f"^texts.*{message}", method, texts)
    if texts is not None:  # there need not be any prefixes
        refused(f"^prefixes.*{message}", translator.translate, ["a"], texts)
    refused(f"^sources.*{message}", translator.score, texts, ["a"])
    refused(f"^targets.*{message}", translator.score, ["a"], texts)


def test_lone_surrogates(translator):
    message = r"\[0\]: character 2 is a lone surrogate, which is not text; remove it"
    for call, name in (
        (lambda text: translator.translate([text]), "texts"),
        (lambda text: translator.translate(["a"], [text]), "prefixes"),
        (lambda text: translator.score([text], ["a"]), "sources"),
        (lambda text: translator.score(["a"], [text]), "targets"),
    ):
        refused(f"^{name}{message}", call, "a\udc80")


def test_no_texts(translator):
    assert translator.translate([]) == []
    assert translator.translate(["", " "]) == ["", ""]
    invisible = ["\u200b", "\0", "\ufeff \u2060", "\x7f\xad"]
    empty = Hypothesis("", 0.0, 0.0, ())
    assert translator.n_best(invisible, 3) == [[empty]] * len(invisible)
    assert translator.score([], []) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 10**6}, "beam_size must be at least 1 and at most 1000"),
        ({"n_best": 5}, "n_best 5 is more than beam_size 4; raise beam_size"),
        ({"temperature": 1e-38}, "temperature must be at least 0.001"),
        ({"top_p": 1e-38}, "top_p must be at least 0.0001 and at most 1"),
        ({"forbidden": ["a\ud800"]}, "forbidden: character 2 is a lone surrogate"),
        ({"glossary": {"\ud800": "a"}}, "glossary: character 1 is a lone surrogate"),
        # 2 ** 31 would be negative in the graph, which has integers of 32 bits.
        ({"extra_length": 2**31}, "extra_length must be at least 0 and at most 100000"),
    ],
)
def test_impossible_options(options, message):
    refused(message, DecodingOptions, **options)


def test_decoding_is_the_papers_by_default():
    """Beam 4, alpha 0.6, at most 50 pieces more than the input (6.1)."""
    for record in (Problem(summary=""), DecodingOptions()):
        assert (record.beam_size, record.alpha, record.extra_length) == (4, 0.6, 50)


def test_an_endless_output_is_cut_at_its_limit(translator, tokenizer):
    """`extra_length` tokens more than its input, EOS included, in any batch."""
    lines = [line for line in LINES if line.strip()]
    for outputs, line in zip(
        translator.n_best(lines, 2, min_length=1000, extra_length=3), lines, strict=True
    ):
        limit = len(tokenizer.encode(line)) + 3
        assert [output.tokens for output in outputs] == [limit] * 2


def test_problems_defaults(translator):
    problem = Problem(summary="", beam_size=21, alpha=0.3, extra_length=300)
    options = DecodingOptions(beam_size=21, alpha=0.3, extra_length=300)
    assert DecodingOptions.of_problem(problem) == options
    assert translator.options == DecodingOptions(extra_length=6)


# Log-probabilities of tokens, against NumPy.


@pytest.mark.parametrize(
    "options", [{"n_best": 3, "batch_tokens": 20}, {"sampling": True, "n_best": 2}]
)
def test_outputs_have_the_log_probability_of_each_token(translator, options):
    plain = translator.n_best(LINES, **options)
    n_best = translator.n_best(LINES, token_scores=True, **options)
    for line, outputs, plain_outputs in zip(LINES, n_best, plain, strict=True):
        assert plain_outputs == [x._replace(token_log_probs=()) for x in outputs]
        source = translator.source_tokenizer.encode(line)
        if not line.strip():
            assert not any(output.token_log_probs for output in outputs)
            continue
        targets = [output.ids for output in outputs]
        rows = token_log_probs([translator.model], source, targets)
        for output, expected in zip(outputs, rows, strict=True):
            assert output.token_log_probs == pytest.approx(expected, abs=1e-4)
            assert sum(output.token_log_probs) == pytest.approx(
                output.log_prob, abs=1e-4
            )


def test_score_of_given_targets(translator, tokenizer):
    targets = [*LINES[1:], ""]
    for source, target, score in zip(
        LINES, targets, translator.score(LINES, targets, batch_tokens=40), strict=True
    ):
        assert list(score.ids) == tokenizer.encode(target.strip())
        (expected,) = token_log_probs(
            [translator.model], tokenizer.encode(source.strip()), [score.ids]
        )
        assert score.token_log_probs == pytest.approx(expected, abs=1e-4)
        assert sum(score.token_log_probs) == pytest.approx(score.log_prob, abs=1e-4)
        assert score.tokens == len(score.ids)
    refused("9 sources but 1 target:", translator.score, LINES, ["a"])


# The command line


@pytest.fixture
def run_dir(translator, monkeypatch, tmp_path):
    return run_of(translator, monkeypatch, tmp_path)


def tokens_of(translator, scored):
    pieces = translator.target_tokenizer.pieces
    pairs = zip(scored.ids, scored.token_log_probs, strict=True)
    return [[pieces[i], pytest.approx(x, abs=1e-4)] for i, x in pairs]


def test_verbs_write_tokens(translator, run_dir, capfd, tmp_path):
    source = write(tmp_path / "in", *LINES[:4])
    output = tmp_path / "out"
    flags = (*run_dir, "--output", output, "--token_scores")
    assert run("translate", *flags, "--input", source, "--n_best", 2) == 0
    n_best = translator.n_best(LINES[:4], 2, token_scores=True)
    ranked = [(i, k, x) for i, r in enumerate(n_best, 1) for k, x in enumerate(r, 1)]
    lines = output.read_text().split("\n")[:-1]
    for line, (line_number, rank, best) in zip(lines, ranked, strict=True):
        *line_and_rank, score, tokens_text = line.split("\t", 3)
        text, tokens = tokens_text.rsplit("\t", 1)  # an output may have a TAB
        assert (line_and_rank, text) == ([str(line_number), str(rank)], best.text)
        assert float(score) == pytest.approx(best.score, abs=1e-4)
        assert json.loads(tokens) == tokens_of(translator, best)
    pair = "--source", source, "--target", write(tmp_path / "target", *LINES[3::-1])
    assert run("score", *flags, *pair) == 0
    lines = output.read_text().splitlines()
    scores = translator.score(LINES[:4], LINES[3::-1])
    for line, score in zip(lines, scores, strict=True):
        total, *_, tokens = line.split("\t")
        assert float(total) == pytest.approx(score.log_prob, abs=1e-4)
        assert json.loads(tokens) == tokens_of(translator, score)
    message = run_refused(capfd, "score", *run_dir, *pair, "--token_scores")
    assert "--token_scores needs --output FILE" in message
