import functools
import gzip
import json

import pytest
from helpers.command_line import run, run_json, run_refused, write
from helpers.errors import refused
from helpers.log_messages import messages
from helpers.reference import reference
from sacrebleu.metrics import BLEU, CHRF

from t2t_keras.cli.evaluation import with_scoring
from t2t_keras.evaluation.bleu import Bleu, bleu_scores, paper_tokenize
from t2t_keras.evaluation.moses import (
    replace_unicode_punctuation,
    split_compounds,
    tokenize,
)
from t2t_keras.problem import Problem


def lines(name):
    text = reference(name).read_bytes().decode("utf-8")
    return text.split("\n")


def test_a_text_that_is_too_long_for_ter(capfd):
    """Its time grows with the square of the length."""
    texts = ["a short line", "word " * 5001]
    scores = bleu_scores(texts, texts, tokens="none")
    assert scores["chrf"] == 100 and "ter" not in scores
    assert "TER is left out: line 2 has 5,001 words" in capfd.readouterr().err


def of_tokens(ours, references):
    """BLEU of texts that are already tokenized."""
    bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    return bleu.corpus_score(ours, [references])


@pytest.mark.slow
def test_scores_of_real_systems_match_the_programs(monkeypatch):
    system = "newstest2013.system_a.de"
    # TER takes many seconds, and is not among the expected figures.
    monkeypatch.setattr("sacrebleu.metrics.TER", CHRF)
    expected = json.loads(reference("bleu/expected.json").read_text())[system]
    hypotheses = lines(f"bleu/{system}")[:3000]
    references = lines("newstest2013/newstest2013.de")[:3000]
    scores = bleu_scores(hypotheses, references, "de")
    for name in ("13a", "intl", "13a_lc"):
        name = f"sacrebleu_{name}"
        assert scores[name] == pytest.approx(expected[name], abs=1e-4)
    name = "tokenized_compound_split"
    assert round(scores[name], 2) == expected[name]
    assert "tok:13a" in scores["signature"] and "case:mixed" in scores["signature"]
    # The parts of the last one, as multi-bleu.perl prints them.
    parts = of_tokens(*paper_tokenize(hypotheses, references))
    assert [round(value, 1) for value in parts.precisions] == expected["precisions"]
    assert round(parts.bp, 3) == expected["bp"]
    assert parts.sys_len == expected["hyp_len"]
    assert parts.ref_len == expected["ref_len"]


def with_gaps(texts):
    """Every seventh word is missing."""
    shortened = []
    for text in texts:
        words = text.split(" ")
        del words[3::7]
        shortened.append(" ".join(words))
    return shortened


def test_german_with_unicode_quotes_scores_as_the_perl_scripts(monkeypatch):
    for name in ("CHRF", "TER"):  # they take seconds
        plain = functools.partial(BLEU, tokenize="none")
        monkeypatch.setattr(f"sacrebleu.metrics.{name}", plain)
    path = reference("news_commentary/train.de.gz")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        references = [next(file).removesuffix("\n") for _ in range(2000)]
    hypotheses = with_gaps(references)
    # What get_ende_bleu.sh printed; it printed 63.22 after
    # sed "s/[„“”‟«»]/\"/g; s/[‚‘’‛‹›]/'/g" of both files.
    printed = (
        "BLEU = 62.52, 99.6/84.8/68.6/51.6 (BP=0.846, ratio=0.856, "
        "hyp_len=44676, ref_len=52167)"
    )
    bleu = of_tokens(*paper_tokenize(hypotheses, references))
    precisions = "/".join(f"{x:.1f}" for x in bleu.precisions)
    assert printed == (
        f"BLEU = {bleu.score:.2f}, {precisions} (BP={bleu.bp:.3f}, "
        f"ratio={bleu.sys_len / bleu.ref_len:.3f}, hyp_len={bleu.sys_len}, "
        f"ref_len={bleu.ref_len})"
    )
    scores = bleu_scores(hypotheses, references, "de")
    name = "tokenized_compound_split"
    actual = scores[name], scores[f"{name}_ascii_quotes"]
    assert actual == pytest.approx((62.52, 63.22), abs=0.005)
    assert "tokenized" not in scores


@pytest.mark.parametrize(
    "name",
    ["noisy", "identical", "empty_hyp", "punct", "trigram_none", "shorter", "longer"],
)
def test_international_tokenisation_scores_as_tensor2tensor(name):
    cases = json.loads(reference("t2t/oracle/misc/bleu.json").read_text())["files"]
    (case,) = (case for case in cases if case["name"] == name)
    hypotheses, references = (
        lines(f"t2t/oracle/misc/bleu_{name}.{side}") for side in ("hyp", "ref")
    )
    scores = bleu_scores(hypotheses, references)
    assert scores["sacrebleu_intl"] == pytest.approx(100 * case["cased"], abs=1e-3)


QUOTED = "Er rief: „Die EU-Länder, ‚ja‘, ist’s …“ «usw.»"
# Only the hypothesis is replaced, and „ ‚ ‘ « » are not in the script's list.
QUOTED_HYPOTHESIS = (
    "Er rief : „ Die EU ##AT##-##AT## Länder , ‚ ja ‘ , ist &apos; s ... &quot; "
    "« usw. »"
)
QUOTED_REFERENCE = (
    "Er rief : „ Die EU ##AT##-##AT## Länder , ‚ ja ‘ , ist ’ s … “ « usw. »"
)


def test_the_papers_tokens():
    ours, references = paper_tokenize([QUOTED], [QUOTED])
    assert ours == [QUOTED_HYPOTHESIS] and references == [QUOTED_REFERENCE]
    # Of both sides, the quotes only: the ellipsis of the reference remains.
    ours, references = paper_tokenize([QUOTED], [QUOTED], ascii_quotes=True)
    expected = (
        "Er rief : &quot; Die EU ##AT##-##AT## Länder , &apos; ja &apos; , ist "
        "&apos; s {} &quot; &quot; usw. &quot;"
    )
    assert ours == [expected.format("...")] and references == [expected.format("…")]


def test_other_languages_are_tokenised_without_compounds_or_replacements():
    hypothesis = "« Peut-être », dit-il, qu'il vient… demain."
    reference = "“Peut-être”, dit-il, qu’il vient… demain."
    ours = "« Peut-être » , dit-il , qu&apos; il vient … demain ."
    expected = "“ Peut-être ” , dit-il , qu ’ il vient … demain ."
    scores = bleu_scores([hypothesis], [reference], "fr")
    assert scores["tokenized"] == pytest.approx(of_tokens([ours], [expected]).score)
    assert not {name for name in scores if "compound" in name}


@pytest.mark.parametrize(
    "text, tokens",
    [
        # The last full stop is a token, whatever abbreviation it ends.
        ("Er kam z.B. mit Dr. Ei, Nr. 5 usw.", "Er kam z.B. mit Dr. Ei , Nr. 5 usw ."),
        ("Artikel 36.", "Artikel 36 ."),
        ("in den U.S.A. ", "in den U.S.A ."),
        ('"Ja usw."', "&quot; Ja usw. &quot;"),
        # Letters of any script are letters; control characters are not spaces.
        ("BR躍SEL 幸灾乐祸!", "BR躍SEL 幸灾乐祸 !"),
        ("躍.躍. Ja", "躍.躍. Ja"),
        ("a\x1cb\x07c\xa0d", "abc d"),
    ],
)
def test_words_match_the_perl_tokeniser(text, tokens):
    assert tokenize([text], "de") == [tokens]


def test_hyphens_are_split_byte_by_byte():
    # As perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g' prints them.
    at = " ##AT##-##AT## "
    for text, expected in (
        ("vis-à-vis", f"vis{at}à{at}vis"),
        ("a-b-c", f"a{at}b-c"),
        ("ä-ö-ü", f"ä{at}ö{at}ü"),
        ("- -x x- --- a-–-b", f"- -x x- -{at}- a{at}–{at}b"),
        ("a\xa0-b", f"a\xa0{at}b"),
    ):
        assert split_compounds([text]) == [expected]


def test_punctuation_is_replaced_as_by_the_perl_script():
    # Of the full-width digits the 1 becomes a quote.
    (text,) = replace_unicode_punctuation(["１２：（％）！ ‚„‘«»–"])
    assert text == '"2:(%)! ‚„‘«»–'


def test_every_figure_has_its_signature():
    paper = "tok:get_ende_bleu"
    common = (
        ("sacrebleu_13a", "case:mixed|eff:no|tok:13a|"),
        ("sacrebleu_intl", "tok:intl|"),
        ("sacrebleu_13a_lc", "case:lc|eff:no|tok:13a|"),
        ("sacrebleu_none", "tok:none|smooth:exp"),
        ("chrf", "nc:6|nw:0"),
        ("ter", "tok:tercom"),
    )
    german = (
        ("tokenized_compound_split", f"{paper}|smooth:none"),
        ("tokenized_compound_split_ascii_quotes", f"{paper}-ascii-quotes|smooth:none"),
    )
    french = (("tokenized", "tok:moses-fr|smooth:none"),)
    for language, tokenised in (("de", german), ("fr", french)):
        scores = bleu_scores(["Un chien ."], ["Un chat ."], language, "none")
        signatures = scores["signatures"]
        figures = {k for k, v in scores.items() if isinstance(v, float)}
        assert signatures.keys() == figures == dict(common + tokenised).keys()
        assert scores["language"] == language
        for name, part in common + tokenised:
            assert part in signatures[name] and "version:" in signatures[name]


def test_a_problem_says_how_its_bleu_is_tokenised():
    metrics = Problem(summary="tokens", metrics=Bleu(bleu_tokens="none")).metrics
    outputs = ["a b c d e."]
    references = ["a b c d e ."]
    scores = bleu_scores(outputs, references, tokens="none")
    assert metrics.score([""], outputs, references) == {
        "bleu": scores["sacrebleu_none"]
    }
    assert Bleu().score([""], outputs, references)["bleu"] == pytest.approx(100)
    refused("bleu_tokens must be one of 13a, intl", Bleu, bleu_tokens="14a")


def test_what_cannot_be_scored_is_refused():
    refused("2 hypotheses but 1 reference;", bleu_scores, ["a", "b"], ["a"])
    refused("no sentences", bleu_scores, [], [])


def test_bleu_of_a_short_sentence_is_of_the_ngrams_that_it_has():
    metric, _ = Bleu(bleu_tokens="13a").corpus_metrics()
    (counts,) = metric.statistics(["x"], ["two words"], ["two words"])
    assert metric.sentence_score(counts) == pytest.approx(100)
    assert metric.score(counts) == 0


def test_outputs_too_short_for_bleu_are_reported(capfd):
    assert bleu_scores(["a b c"] * 9, ["a b c"] * 9)["sacrebleu_13a"] == 0
    assert "no output has four tokens, so BLEU is 0" in capfd.readouterr().err
    assert bleu_scores(["a b c d"], ["a b c"])["sacrebleu_13a"]
    assert not capfd.readouterr().err


class WithLength(Bleu):
    """A user's metrics, with another one beside BLEU."""

    def score(self, sources, outputs, references):
        length = sum(map(len, outputs))
        return {**super().score(sources, outputs, references), "length": length}


def test_flags_keep_the_class_of_the_metrics():
    changed = with_scoring(
        Problem(summary="", metrics=WithLength()), "char", "fr"
    ).metrics
    assert (changed.bleu_tokens, changed.languages) == ("char", ("", "fr"))
    assert changed.score(["a"], ["abc"], ["abc"])["length"] == 3


# Two files, by the command line.


def test_the_suffix_of_the_references_or_the_flag_says_the_language(capfd, tmp_path):
    line = "Ein Hund läuft über die Wiese ."
    hypotheses = write(tmp_path / "output.txt", line)
    references = {name: write(tmp_path / name, line) for name in ("a.fr", "a.txt")}
    with gzip.open(tmp_path / "a.de.gz", "wt", encoding="utf-8") as file:
        file.write(f"{line}\n")
    references["a.de.gz"] = tmp_path / "a.de.gz"
    german = {"tokenized_compound_split", "tokenized_compound_split_ascii_quotes"}
    for name, flags, language, expected in (
        ("a.de.gz", (), "de", german),
        ("a.fr", (), "fr", {"tokenized"}),
        ("a.txt", ("--language", "cs"), "cs", {"tokenized"}),
        ("a.fr", ("--language", "de"), "de", german),
        ("a.txt", (), None, set()),
    ):
        argv = ("evaluate", "--hypotheses", hypotheses, "--references")
        argv = (*argv, references[name], *flags)
        bleu = run_json(capfd, *argv)["bleu"]
        assert bleu["language"] == language
        assert {name for name in bleu if "tokenized" in name} == expected
        assert run(*argv, "--all") == 0
        shown = capfd.readouterr().out
        assert ("give --language CODE" in shown) == (language is None)
        assert (f"  {language}\n" in shown) == (language is not None)
        assert expected <= set(shown.split())


def test_an_unknown_language_is_refused_before_anything_is_read(capfd, tmp_path):
    absent = tmp_path / "absent"
    for command in (("compare", absent, absent), ("evaluate", "--hypotheses", absent)):
        flags = ("--references", absent, "--language", "xx")
        message = run_refused(capfd, *command, *flags)
        assert "--language: 'xx' has no tokenizer; give one of as, bn, bo," in message


def test_tokenized_periods_are_not_reported(caplog):
    texts = ["a dog runs ."] * 200
    bleu_scores(texts, texts, "de")
    Bleu().score(texts, texts, texts)
    assert not messages(caplog, "sacrebleu")
