"""`t2t inspect` finds seeded faults in their places, and none in clean files."""

import itertools
import json
import random
import re
import sys

import numpy as np
import pytest
from helpers.command_line import run, run_json, write
from helpers.reference import reference
from helpers.small_data import small_data, write_pairs

pytest.importorskip("py3langid", reason="needs the extra [data]")

from t2t_keras.data.sources import ParallelFiles
from t2t_keras.plugins.corpus.inspection import draw, inspect, named_languages
from t2t_keras.plugins.corpus.measurements import Norm, measure

FILES = ["multi30k/train.{}", "news_commentary/train.{}.gz"]


@pytest.fixture(scope="module", params=FILES, ids=["multi30k", "news"])
def corpus(request):
    """The first 2,500 pairs of a real corpus."""
    return first_pairs(request.param, 2_500)


def first_pairs(names, count):
    files = (reference(names.format(side)) for side in ("en", "de"))
    pairs = itertools.islice(ParallelFiles(*files)(), count)
    return [(source.strip(), target.strip()) for source, target in pairs]


def found_in(pairs, fault):
    """The numbers of all pairs that have a fault."""
    norm = Norm(draw(pairs))
    parts = [measure(pairs[i : i + 2000], norm) for i in range(0, len(pairs), 2000)]
    line_numbers = [p.faults[fault] + 2000 * i for i, p in enumerate(parts)]
    return set(np.concatenate(line_numbers).tolist())


def check(pairs, seeded, clean, fault):
    """At least 95% are found; at most 1% of the clean pairs are false alarms."""
    flagged = found_in(pairs, fault)
    assert len(flagged & seeded) >= 0.95 * len(seeded)
    assert len(found_in(clean, fault)) <= 0.01 * len(clean)
    assert len(flagged - seeded) <= 0.01 * len(pairs)


def test_swapped_sides(corpus):
    indices = random.Random(1).sample(range(len(corpus)), len(corpus) // 10)
    pairs = list(corpus)
    for i in indices:
        pairs[i] = pairs[i][::-1]
    check(pairs, {i for i in indices if all(corpus[i])}, corpus, "swapped")


@pytest.mark.parametrize("names", FILES)
def test_the_languages_tell_which_pairs_are_swapped(names):
    """Without them, the direction of most pairs is the right one."""
    pairs = first_pairs(names, 300)
    seeded = set(random.Random(1).sample(range(300), 180))
    mixed = [pair[::-1] if i in seeded else pair for i, pair in enumerate(pairs)]
    rest = set(range(300)) - seeded
    for languages, swapped in ((("en", "de_at"), seeded), (None, rest)):
        faults = inspect({"train": lambda: iter(mixed)}, None, languages)
        indices = [
            fault.indices
            for fault in faults.faults["train"]
            if fault.finding.kind == "swapped"
        ]
        found = set(np.concatenate(indices).tolist())
        assert len(found ^ swapped) <= 6 and len(found - swapped) <= 1


LANGUAGE_FAULTS = {"swapped", "source_language", "target_language"}


@pytest.mark.parametrize(
    "languages",
    [("fr", "it"), ("en", "xx"), ("en", "en")],
    ids=["others", "unknown", "one"],
)
def test_languages_that_do_not_tell_the_sides_apart_find_nothing(languages):
    faults = inspect({"train": lambda: first_pairs(FILES[0], 300)}, None, languages)
    kinds = {fault.finding.kind for fault in faults.faults["train"]}
    assert not kinds & LANGUAGE_FAULTS


def test_without_py3langid_nothing_is_said_of_languages(monkeypatch):
    for name in ("py3langid", "py3langid.langid"):
        monkeypatch.setitem(sys.modules, name, None)
    pairs = [pair[::-1] for pair in first_pairs(FILES[0], 300)]
    inspection = inspect({"train": lambda: iter(pairs)}, None, ("en", "de"))
    assert inspection.report["findings"] == []
    assert inspection.report["splits"]["train"]["source"]["languages"] is None


def test_swapped_pairs_of_unlike_lengths(corpus):
    """The length of a swapped pair is compared in the right direction."""
    pairs = [(source, f"{target} " * 4) for source, target in corpus[:200]]
    pairs[::10] = [pair[::-1] for pair in pairs[::10]]
    faults = measure(pairs, Norm(pairs)).faults
    assert set(faults["swapped"].tolist()) == {*range(0, 200, 10)}
    plain = [(source, f"{target} " * 4) for source, target in corpus[:200]]
    assert faults["length"].size == measure(plain, Norm(plain)).faults["length"].size


@pytest.mark.parametrize(
    ("names", "languages"),
    [(("a.en.gz", "a.de"), ("en", "de")), (("a.txt", "b.txt"), None)],
)
def test_the_suffixes_of_files_name_languages(names, languages):
    assert named_languages(ParallelFiles(*names)) == languages


def test_wrong_encodings(corpus):
    pairs = list(corpus)
    seeded = set()
    for i, (source, target) in enumerate(corpus):
        if i % 25 == 0 and not target.isascii():
            encoding = ("cp1252", "latin-1")[i % 2]
            damaged = target.encode().decode(encoding, "ignore")
            pairs[i] = (source, damaged)
            seeded.add(i)
    check(pairs, seeded, corpus, "encoding")


def test_untranslated_targets(corpus):
    """Another sentence of the source language is in the place of the target."""
    pairs = list(corpus)
    seeded = set(range(0, len(corpus), 97))
    for i in seeded:
        pairs[i] = corpus[i][0], corpus[i - 1][0]
    long = {i for i in seeded if min(map(len, pairs[i])) > 30}
    check(pairs, long, corpus, "source_language")


def numbered(count, word="dog"):
    nouns = [f"{word} {i}" for i in range(count)]
    return [(f"it sees the {noun}", f"es sieht den {noun}") for noun in nouns]


def test_duplicates_overlap_and_the_rest():
    """Exactly the seeded ones; the worst comes first."""
    train = numbered(500)
    train[7] = ("", "x")
    train[9] = ("same  words", "same words")
    train[20] = ("A &amp; B", "A &#38; B")
    train[30] = (train[3][0] + " ", train[3][1])
    train[40] = ("bad \x07 bell", "gut")
    train[50] = ("it sees the dog 50", "es sieht den dog " * 9)
    result = inspect(
        {"train": lambda: train, "test": lambda: [train[60], *numbered(4, "cat")]}
    ).report
    findings = {(f["split"], f["kind"]): f["lines"] for f in result["findings"]}
    lines = {"empty": 8, "identical": 10, "entities": 21, "duplicate": 31}
    lines |= {"encoding": 41, "length": 51, "overlap": 61}
    assert findings == {("train", finding): [line] for finding, line in lines.items()}
    weights = [f["weight"] for f in result["findings"]]
    assert weights == sorted(weights, reverse=True)
    assert result["findings"][0]["message"] == "the source is also in test"


def test_statistics():
    pairs = [("ab cd", "где"), ("a", "б в г"), ("x" * 45, "日本")] * 10
    result = inspect({"train": lambda: iter(pairs)}).report["splits"]["train"]
    assert result["pairs"] == 30
    source = result["source"]
    target = result["target"]
    assert (source["words"], source["characters"]) == (40, 510)
    assert (target["words"], target["characters"]) == (50, 100)
    assert list(source["histogram"].values())[:5] == [20, 0, 0, 0, 10]
    assert target["histogram"]["0 to 5"] == 30
    assert source["scripts"] == {"latin": 1.0}
    assert target["scripts"] == {"cyrillic": 0.75, "cjk": 0.25}
    assert set(source["languages"]) and sum(source["languages"].values()) <= 1.01


def test_exchanged_files_are_named(tmp_path, capfd):
    english = ["The old man is reading a long book near the river."] * 20
    german = ["Der alte Mann liest am Fluss ein langes Buch."] * 20
    files = write(tmp_path / "a", *german), write(tmp_path / "b", *english)
    argv = ["inspect", "--train_source", files[0], "--train_target", files[1]]
    findings = run_json(capfd, *argv, "--languages", "en-de")["findings"]
    assert findings[0]["kind"] == "languages"
    assert "the source is in 'de' and the target in 'en'" in findings[0]["message"]
    kinds = [f["kind"] for f in run_json(capfd, *argv)["findings"]]
    assert "languages" not in kinds


def test_the_command_and_its_page(tmp_path, capfd):
    source, target = zip(*numbered(60), strict=True)
    source = ["<b>same</b>", *source[1:]]
    target = ["<b>same</b>", *target[1:]]
    files = write(tmp_path / "a", *source), write(tmp_path / "b", *target)
    argv = ["inspect", "--train_source", files[0], "--train_target", files[1]]
    argv += ["--dev_source", files[0], "--dev_target", files[1]]
    page = tmp_path / "page.html"
    result = run_json(capfd, *argv, "--page", page)
    assert result == json.loads(json.dumps(result))
    kinds = [f["kind"] for f in result["findings"] if f["split"] == "train"]
    assert kinds == ["overlap", "identical"]
    content = page.read_text()
    assert "train: the source is also in dev: 60 pairs (100.00%)</h3>" in content
    assert content.count("<h2>") == 4 and "http" not in content
    assert run(*argv) == 0
    text = capfd.readouterr().out
    assert re.search(r"^train +60 +source +\d", text, re.MULTILINE)
    assert max(map(len, text.split("\n\n")[0].splitlines())) < 80
    assert (
        "train: source and target are the same: 1 pair (1.67%), line 1; drop such "
        "pairs with --clean=identical\n" in text
    )


FILES_OF = ("--train_source", "absent", "--train_target", "absent")
MISTAKES = [
    (FILES_OF, "train cannot be read to the end: .*No such file"),
    ((*FILES_OF, "--data_dir", "."), "has no effect with --data_dir"),
    ((*FILES_OF, "--page", "no/x.html"), "--page: there is no directory"),
    ((*FILES_OF, "--recipe", "x"), "--recipe has no effect without --apply"),
    ((*FILES_OF, "--apply", "."), "--apply: . exists already; name a new directory"),
    (("--data_dir", ".", "--apply", "x"), "--apply has no effect with --data_dir"),
    (("--problem", "translate_text"), "has no examples; give --data_dir"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_mistakes(flags, message, capfd):
    assert run("inspect", *flags) == 2
    assert re.search(message, capfd.readouterr().err.splitlines()[-1])


def test_a_data_directory(tmp_path, capfd):
    """Its texts come from the ids, and its vocabulary is described."""
    small_data(tmp_path / "data")
    files = write_pairs(tmp_path)
    result = run_json(capfd, "inspect", "--data_dir", tmp_path / "data")
    argv = ("--train_source", files.source_path, "--train_target", files.target_path)
    texts = run_json(capfd, "inspect", *argv)
    from_ids, from_texts = (r["splits"]["train"]["source"] for r in (result, texts))
    vocabulary = from_ids.pop("vocabulary")
    for name in ("words", "characters", "histogram"):
        assert from_ids[name] == from_texts[name]
    assert 0 < vocabulary["used"] <= 1 <= vocabulary["per_word"]
    assert vocabulary["unknown"] == 0.0
    page = tmp_path / "page.html"
    assert run("inspect", "--data_dir", tmp_path / "data", "--page", page) == 0
    assert "tokens per word" in page.read_text()
