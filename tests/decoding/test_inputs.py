"""Long inputs: split into sentences or to fit, translated, and joined."""

import logging
import math

import pytest
import tensorflow as tf
from helpers.decoding_models import SHORT, penalty, with_attributes
from helpers.errors import refused
from helpers.log_messages import messages

from t2t_keras.decoding.engine import AlignmentHead, Hypothesis, Source
from t2t_keras.decoding.inputs import InputSplitter, SplitInput, join_hypotheses
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.problem import TextProcessor
from t2t_keras.text.alignment import word_starts
from t2t_keras.text.sentences_graph import join_outputs_graph


def test_very_long_input(translator, caplog):
    options = {"max_source_length": 40, "truncate": True}
    with caplog.at_level(logging.WARNING):
        output, short = translator.translate(["a dog " * 1000, PARTS[0]], **options)
    assert "input 1 has" in caplog.text
    assert short == translator.translate([PARTS[0]])[0] != ""
    assert output == translator.translate(["a dog " * 900], **options)[0]
    # One token is EOS, and nothing can be split into parts of it.
    assert len(translator.translate([PARTS[0]], max_source_length=1)) == 1


PARTS = [
    "the old house stands near the river . a dog runs .",
    "the woman with the green hat reads a",
    "very long book . the dog reads a book .",
]


def test_a_long_input_is_split_and_the_outputs_are_joined(translator, caplog):
    texts = ["a dog", f" {PARTS[0]}  {PARTS[1]} {PARTS[2]}\t", "", PARTS[0]]
    done = []
    with caplog.at_level(logging.INFO):
        scores = {"coverage_penalty": 0.3, "token_scores": True}
        options = SHORT | scores
        n_best = translator.n_best(
            texts, 3, start_index=10, advance=done.append, **options
        )
    assert sum(done) == 4
    (message,) = messages(caplog)
    assert message.startswith("input 12 has ")
    of_text = split_by(translator, texts[1])
    parts = translator.n_best(of_text, 3, **scores)
    assert len(parts) > 2
    for rank, output in enumerate(n_best[1]):
        of_parts = [outputs[rank] for outputs in parts]
        (text,) = join_outputs_graph(tf.ragged.constant([[x.text for x in of_parts]]))
        assert output.text == text.numpy().decode()
        assert_joined(output, of_parts)
        score = output.log_prob / penalty(output.tokens, 0.6)
        added = sum(x.score - x.log_prob / penalty(x.tokens, 0.6) for x in of_parts)
        assert added < -0.1
        assert output.score == pytest.approx(score + added, abs=1e-4)
    # The others are unchanged.
    unsplit = translator.n_best([texts[i] for i in (0, 2, 3)], 3, **options)
    for i, outputs in zip((0, 2, 3), unsplit, strict=True):
        assert [x.ids for x in n_best[i]] == [x.ids for x in outputs]


def assert_joined(output, parts):
    """Tokens and log-probabilities of an output are those of its parts."""
    assert output.ids == sum((x.ids for x in parts), ())
    tokens = [y for x in parts for y in x.token_log_probs]
    assert output.token_log_probs == pytest.approx(tokens, abs=1e-4)
    log_prob = sum(x.log_prob for x in parts)
    assert output.log_prob == pytest.approx(log_prob, abs=1e-3)


def split_by(translator, text):
    """The parts of a text as the translator splits it, as texts."""
    tokenizer = translator.source_tokenizer
    ids = tokenizer.encode(text)
    options = translator.choose(**SHORT)
    splitter = InputSplitter(tokenizer, translator.text_processor, options)
    (split_input,) = splitter.split([ids], [text])
    assert len(split_input.parts) > 1 and split_input.sentences == 1
    assert all(len(part.ids) <= 24 for part in split_input.parts)
    texts = [part.text for part in split_input.parts]
    assert "".join("".join(texts).split()) == "".join(text.split())
    return texts


SEVERAL = "The old dog runs. A woman reads a book!  The river . a hat ."
ONE_BY_ONE = ["The old dog runs.", "A woman reads a book!", "The river .", "a hat ."]


def test_an_input_of_several_sentences_is_translated_one_by_one(translator, caplog):
    scores = {"token_scores": True, "alignment": AlignmentHead()}
    texts = ["a dog", SEVERAL, "", "the old house"]
    done = []
    with caplog.at_level(logging.INFO):
        n_best = translator.n_best(
            texts, 3, split_sentences=True, advance=done.append, **scores
        )
    (message,) = messages(caplog)
    assert message == (
        "1 of 4 inputs has several sentences, which are translated one by one; "
        "split_sentences=false turns this off"
    )
    assert sum(done) == 4
    assert [outputs[0].sentences for outputs in n_best] == [1, 4, 1, 1]
    parts = translator.n_best(ONE_BY_ONE, 3, **scores)
    for rank, output in enumerate(n_best[1]):
        of_parts = [outputs[rank] for outputs in parts]
        assert output.text == " ".join(x.text for x in of_parts if x.text)
        assert_joined(output, of_parts)
        score = output.log_prob / penalty(output.tokens, 0.6)
        assert output.score == pytest.approx(score, abs=1e-4)
        starts = [0, 4, 9, 12]
        links = set()
        target_starts = word_starts(output.text, [x.text for x in of_parts])
        for part, source_start, target_start in zip(
            of_parts, starts, target_starts, strict=True
        ):
            links |= {(i + source_start, j + target_start) for i, j in part.alignment}
        assert set(output.alignment) == links
    # A single sentence is what it was, and so is everything with the option off.
    other_rows = [0, 2, 3]
    plain = translator.n_best(texts, 3, **scores)
    for i in other_rows:
        assert [x.ids for x in n_best[i]] == [x.ids for x in plain[i]]
        assert [x.alignment for x in n_best[i]] == [x.alignment for x in plain[i]]
    alone = translator.n_best(["a dog"], 3, **scores)
    assert alone == translator.n_best(["a dog"], 3, split_sentences=True, **scores)
    assert plain[1][0].sentences == 1 and plain[1][0].ids != n_best[1][0].ids


def test_options_apply_to_the_sentences_of_an_input(translator, caplog):
    splitting = {"split_sentences": True}
    prefixed = translator.translate([SEVERAL], ["a dog"], **splitting)[0]
    assert prefixed.startswith(translator.translate(ONE_BY_ONE[:1], ["a dog"])[0])
    continuation = " ".join(filter(None, translator.translate(ONE_BY_ONE[1:])))
    assert prefixed.endswith(continuation)
    glossary = {"glossary": {"dog": "Hund", "river": "Fluss"}}
    required = translator.n_best([SEVERAL], 1, **splitting, **glossary)[0][0]
    alone = translator.translate(ONE_BY_ONE, **glossary)
    assert "Hund" in alone[0] and "Fluss" in alone[2]
    assert required.text == " ".join(filter(None, alone))
    # A sentence that is too long is split as well, or truncated.
    long = " ".join([SEVERAL, "the dog runs and " * 9])
    options = {"max_source_length": 24} | splitting
    parts = [*ONE_BY_ONE, "the dog runs and " * 9]
    joined = " ".join(filter(None, translator.translate(parts, **options)))
    assert translator.translate([long], **options) == [joined]
    with caplog.at_level(logging.WARNING):
        (cut,), (limited,) = translator.n_best(
            [long, "a dog"], 1, start_index=4, truncate=True, **options
        )
    assert cut.is_truncated and not limited.is_truncated
    assert [message[:8] for message in messages(caplog)] == ["input 5 "]
    # Targets are scored with the whole source.
    score = translator.score([SEVERAL], ["a dog"], **splitting)
    assert score == translator.score([SEVERAL], ["a dog"])
    samples = translator.n_best([SEVERAL, "a"], 3, sampling=True, **splitting)
    assert [len(outputs) for outputs in samples] == [3, 3]


def test_every_sentence_gets_the_tag_of_its_input(translator):
    problem = translator.problem.with_tags(["<2de>"])
    tagged = with_attributes(translator, text_processor=problem.text_processor)
    parts = tagged.translate([f"<2de> {text}" for text in ONE_BY_ONE])
    translations = tagged.translate([f"<2de> {SEVERAL}"], split_sentences=True)
    assert translations == [" ".join(filter(None, parts))]


def test_outputs_that_cannot_be_joined_are_not_split(translator):
    class Whole(TextProcessor):
        splits_long_sources = False

    whole_texts = with_attributes(translator, text_processor=Whole())
    message = "split_sentences: the outputs for the sentences of an input of problem ''"
    refused(message, whole_texts.translate, [SEVERAL], split_sentences=True)


def test_split_inputs_are_sampled_and_begin_with_their_prefixes(translator):
    text = " ".join(PARTS)
    options = {"sampling": True, "top_k": 20, "seed": 3} | SHORT
    samples = translator.n_best([text, "a dog"], 4, **options)
    assert len(samples[0]) == 4
    assert samples == translator.n_best([text, "a dog"], 4, **options)
    (sampled_again,) = translator.n_best(["a", "a dog"], 4, **options)[1:]
    assert [x.ids for x in samples[1]] == [x.ids for x in sampled_again]
    (forced,) = translator.n_best([text], 2, ["the dog"], **SHORT)
    (free,) = translator.n_best([text], 2, **SHORT)
    assert all(output.text.startswith("the dog") for output in forced)
    assert forced[0].text != free[0].text


@pytest.mark.parametrize("formula", ["gnmt", "power", "average", "none"])
def test_parts_without_a_possible_output_are_joined_to_none(formula):
    options = DecodingOptions(length_penalty=formula, alpha=0.6)
    impossible = Hypothesis("", -math.inf, -math.inf)
    split_input = SplitInput("a b", [Source([3, 1], "a"), Source([4, 1], "b")])
    (joined,) = join_hypotheses(split_input, [[impossible], [impossible]], options)
    assert joined.score == joined.log_prob == -math.inf and not joined.ids
