"""`t2t compare`: its tests are sacreBLEU's, for any metric; its page; its refusals.

The independent truth is sacreBLEU's own command line, on two real systems.
"""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import run, run_json, run_refused, write
from helpers.errors import refused
from helpers.json_edits import edit_json
from helpers.reference import reference

from t2t_keras.evaluation.bleu import Bleu
from t2t_keras.files.json_files import sha256
from t2t_keras.plugins.reports.compare import Scorer
from t2t_keras.plugins.reports.significance import compare_systems, randomization, seed
from t2t_keras.plugins.reports.systems import System
from t2t_keras.problems.parsing.evalb import evaluate_trees
from t2t_keras.problems.parsing.task import BracketF1

REFERENCES = [f"the dog number {i} sleeps in the house" for i in range(12)]
WORSE = [
    text.replace("the", "a") if i % 3 else text for i, text in enumerate(REFERENCES)
]
BETTER = [
    text.replace("in", "on") if i % 4 else text for i, text in enumerate(REFERENCES)
]


@pytest.fixture(autouse=True)
def fresh(registrations, monkeypatch):
    """No scorer stays registered, and the seed is sacreBLEU's own."""
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """Two systems' outputs and the references."""
    texts = {"a.de": WORSE, "b.de": BETTER, "helpers.reference.de": REFERENCES}
    return [write(tmp_path / name, *lines) for name, lines in texts.items()]


# The tests are sacreBLEU's.


def sacrebleu_prints(flag: str, *paths: Path) -> list[dict]:
    """Returns what sacreBLEU's command line prints for a reference and systems.

    json cannot write NumPy's float32, with which sacreBLEU 2.6 ends in an error.
    """
    program = (
        "import functools, json; json.dumps = functools.partial(json.dumps, "
        "default=float); from sacrebleu.sacrebleu import main; main()"
    )
    reference, *ours = map(str, paths)
    flags = ("-m", "bleu", "chrf", f"--paired-{flag}", "--format", "json")
    command = [sys.executable, "-c", program, reference, "-i", *ours, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_numbers_of_real_systems_are_what_sacrebleu_prints(capfd, tmp_path):
    paths = []
    for name in (
        "newstest2013/newstest2013.de",
        "bleu/newstest2013.system_a.de",
        "bleu/newstest2013.system_b.de",
    ):
        lines = reference(name).read_bytes().decode().split("\n")[:150]
        paths.append(write(tmp_path / Path(name).name, *lines))
    result = run_json(capfd, "compare", *paths[1:], "--references", paths[0])
    assert result["sentences"] == 150 and result["seed"] == 12345
    assert result["metrics"]["bleu"]["signature"].startswith(
        "nrefs:1|bs:1000|ar:10000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|"
    )
    keys = {"bs": "p_bootstrap", "ar": "p_randomization"}
    for flag, key in keys.items():
        printed = sacrebleu_prints(flag, *paths)
        for name, sacrebleu_name in (("bleu", "BLEU"), ("chrf", "chrF2")):
            systems = result["metrics"][name]["systems"]
            for ours, row in zip(systems, printed, strict=True):
                expected = row[sacrebleu_name]
                assert ours["score"] == expected["score"]
                assert ours.get(key) == expected["p_value"]
                if flag == "bs":
                    assert ours["mean"] == expected["mean"]
                    assert ours["ci"] == expected["ci"]


GOLD = [
    "(S (NP (DT the) (NN dog)) (VP (VBZ sleeps)))",
    "(S (NP (PRP it)) (VP (VBZ sees) (NP (DT a) (NN cat))))",
    "(S (NP (NN time)) (VP (VBZ flies) (PP (IN like) (NP (DT an) (NN arrow)))))",
    "(S (NP (NNS dogs)) (VP (VBP bark)))",
    "(S (VP (VB go) (ADVP (RB home))))",
    "(NP (NP (DT the) (NN end)) (PP (IN of) (NP (NN time))))",
]
FLAT = [
    "(S (DT the) (NN dog) (VBZ sleeps))",
    GOLD[1],
    "(S (NP (NN time)) (VP (VBZ flies) (IN like) (NP (DT an) (NN arrow))))",
    "(S (NP (NNS dogs) (VBP bark)))",
    GOLD[4],
    "(NP (DT the) (NN end) (PP (IN of) (NP (NN time))))",
]
BROKEN = [GOLD[0], GOLD[1], "(S (NP (NN other)))", GOLD[3], "(S", GOLD[5]]


@pytest.mark.parametrize("name", ["f1", "f1_errors_as_zero"])
@pytest.mark.parametrize("part", [slice(6), slice(3), slice(2, 5)])
def test_f1_of_trees_is_computed_from_sums(name, part, monkeypatch):
    """Any part of the corpus has EVALB's F1, which significance tests rely on."""
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    (metric,) = (
        corpus_metric
        for corpus_metric in BracketF1().corpus_metrics()
        if corpus_metric.name == name
    )
    gold = GOLD[part]
    sources = [""] * len(GOLD[part])
    systems = [System("flat", FLAT[part]), System("broken", BROKEN[part])]
    result = compare_systems(systems, sources, gold, [metric], 80, 60).metrics[name]
    for row, system in zip(result["systems"], systems, strict=True):
        expected = evaluate_trees(gold, system.outputs).summary()[name]
        assert row["score"] == pytest.approx(expected)
    assert 0.02 < result["systems"][1]["p_bootstrap"] <= 1
    assert "|evalb:COLLINS|" in result["signature"] and "seed:7|" in result["signature"]


def test_a_scorer_is_tested_by_its_mean(monkeypatch):
    scores = {"a": np.arange(10) % 4 / 4, "b": np.arange(10) % 3 / 3}
    scorer = Scorer(
        name="length", score_sentences=lambda s, outputs, r: scores[outputs[0]]
    )
    systems = [System(name, [name] * 10) for name in scores]
    comparison = compare_systems(systems, [""] * 10, [""] * 10, [scorer], 200, 100)
    second = comparison.metrics["length"]["systems"][1]
    assert second["score"] == pytest.approx(scores["b"].mean())
    assert second["difference"] == pytest.approx((scores["b"] - scores["a"]).mean())
    # The sentences come with the largest difference first.
    sizes = [abs(row.difference) for row in comparison.differences]
    assert sizes == sorted(sizes, reverse=True)
    assert {row.sentence for row in comparison.differences} == set(
        np.flatnonzero(scores["a"] != scores["b"])
    )


def exact_p(metric, baseline, system):
    """The p-value of randomization from all ways to swap the sentences that differ."""
    choices = [
        (False, True) if np.not_equal(*rows).any() else (False,)
        for rows in zip(baseline, system, strict=True)
    ]
    differences = []
    for is_swapped in itertools.product(*choices):
        is_row_swapped = np.array(is_swapped)[:, None]
        samples = (
            np.where(is_row_swapped, system, baseline),
            np.where(is_row_swapped, baseline, system),
        )
        first_score, second_score = (metric.score(rows.sum(0)) for rows in samples)
        differences.append(abs(first_score - second_score))
    return np.mean(np.array(differences) >= differences[0] - 1e-9)


@pytest.mark.parametrize("differing", [1, 3, 8])
@pytest.mark.parametrize("name", ["bleu", "chrf", "mean"])
def test_randomization_matches_all_swaps(name, differing):
    """Also with ties, of which there are many in few sentences."""
    outputs = [*WORSE[:differing], *REFERENCES[differing:10]]
    texts = [""] * 10, REFERENCES[:10]
    metrics = {bleu.name: bleu for bleu in Bleu().corpus_metrics()}
    mean = Scorer(name="mean", score_sentences=lambda s, o, r: [len(x) / 7 for x in o])
    metric = (metrics | {"mean": mean})[name]
    systems = REFERENCES[:10], outputs
    rows = [metric.statistics(texts[0], system, texts[1]) for system in systems]
    p_value = randomization(metric, *rows, 3000)
    assert p_value == pytest.approx(exact_p(metric, *rows), abs=0.03)


def test_a_difference_of_zero_has_p_1(capfd, tmp_path):
    """Also if the counts of n-grams differ, as with a BLEU of 0."""
    lines = {
        "a": ("Shut it", "Store", "Exit", "Open file"),
        "b": ("a", "b", "c d", "e f g h i"),
        "theirs": ("Open the file", "Save", "Quit", "Close it"),
    }
    a, b, references = (write(tmp_path / name, *texts) for name, texts in lines.items())
    argv = ("compare", a, b, a, "--references", references, "--metric", "bleu")
    _, b_row, a_row = run_json(capfd, *argv)["metrics"]["bleu"]["systems"]
    for row in (b_row, a_row):
        assert (row["p_bootstrap"], row["p_randomization"]) == (1, 1)
        assert row["difference"] == row["score"] == 0


def test_systems_below_1_bleu_are_not_compared(capfd, tmp_path):
    references = write(tmp_path / "references", *REFERENCES)
    bad = write(tmp_path / "bad", *["uv wx yz uv wx yz uv wx"] * 11, "the dog 12")
    worse = write(tmp_path / "worse", *["wx yz"] * 12)
    good = write(tmp_path / "good", *WORSE)
    page = tmp_path / "page.html"
    argv = ("--references", references, "--metric", "bleu", "--page", page)
    argv += ("--bootstrap_samples", 9, "--randomization_trials", 9)
    result = run_json(capfd, "compare", bad, good, worse, *argv)
    scores = [row["score"] for row in result["metrics"]["bleu"]["systems"]]
    assert 0 < scores[0] < 1 and scores[2] == 0  # the premise
    reason = (
        f"cannot be compared: bleu {scores[0]:.4g} and 0; below 1 BLEU, outputs have "
        "hardly any words in common with the references."
    )
    assert run("compare", bad, good, worse, *argv) == 0
    lines = capfd.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[-4:-1]}
    assert lines[-1] == f"bad and worse {reason}"
    assert f"bad and worse {reason} The bleu scores" in page.read_text("utf-8")
    assert [len(rows[name]) for name in ("bad", "good", "worse")] == [4, 7, 1]
    assert run("compare", bad, worse, *argv) == 0
    *_, header, bad_row, worse_row, sentence = capfd.readouterr().out.splitlines()
    assert header.split() == ["system", "score"] and sentence == lines[-1]
    assert bad_row.split() == ["bad", f"{scores[0]:.4g}"]
    assert worse_row.split() == ["worse", "0"]


# External metrics.

FAKE = '''
from t2t_keras.plugins.reports.compare import Scorer, register_scorer

@register_scorer
def fake_ter():
    """Words that the reference lacks."""

    def scores(sources, outputs, references):
        assert list(sources) == ["Satz"] * 12
        return [
            len(set(o.split()) - set(r.split()))
            for o, r in zip(outputs, references, strict=True)
        ]

    return Scorer(score_sentences=scores, higher_is_better=False, model="fake-1")
'''


@pytest.fixture
def sources(tmp_path) -> Path:
    return write(tmp_path / "source.en", *["Satz"] * 12)


def test_a_scorer_of_usr_dir(files, sources, capfd, tmp_path):
    a, b, references = files
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "my_scorers_here.py").write_text(FAKE)
    argv = ("compare", a, b, "--references", references, "--usr_dir", folder)
    argv += ("--metric", "fake_ter", "--input", sources)
    scores = run_json(capfd, *argv)["metrics"]["fake_ter"]
    assert "|model:fake-1|" in scores["signature"]
    means = []
    for outputs in (WORSE, BETTER):
        pairs = zip(outputs, REFERENCES, strict=True)
        means.append(np.mean([len(set(o.split()) - set(r.split())) for o, r in pairs]))
    assert [row["score"] for row in scores["systems"]] == pytest.approx(means)
    assert run(*argv) == 0
    assert "(lower is better)" in capfd.readouterr().out


# Refusals.


def test_refusals(files, capfd, tmp_path):
    a, b, references = files
    files_given = (a, b, "--references", references)
    short = write(tmp_path / "short.de", *REFERENCES[:11])
    one_line = write(tmp_path / "one.de", "Ein Hund")
    apart = (
        "differ in their number of lines, {} and 12; line n of one must belong to "
        "line n of the other"
    )
    for argv, message in (
        ((a, short, *files_given[2:]), f"{short} and {references} {apart.format(11)}"),
        (
            (*files_given, "--metric", "chfr"),
            "--metric: there is no 'chfr'; did you mean 'chrf'? (there are: bleu, "
            "chrf)",
        ),
        ((a, b), "give --references FILE, the correct outputs: all systems are files"),
        (
            (one_line, one_line, "--references", one_line),
            "a paired test needs at least two sentences, not 1; "
            "`t2t evaluate` computes scores without a test",
        ),
        (
            (*files_given, "--split", "dev"),
            "--split needs a run, and all systems are files",
        ),
        (
            (*files_given, "--engine", "auto"),
            "--engine needs a run, and all systems are files",
        ),
        (
            (a, tmp_path),
            f"{tmp_path} is not a run directory: it has no config.json (the "
            "--output_dir of `t2t train` is one)",
        ),
    ):
        assert (
            run_refused(capfd, "compare", *argv) == f"t2t compare: error: {message}\n"
        )


@pytest.mark.parametrize("text", ["0", "-1", "x", ""])
def test_an_impossible_seed_is_refused(text, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", text)
    refused(f"SACREBLEU_SEED: '{text}' is not a seed", seed)


# Runs.

FAST = ("--decode_hparams", "beam_size=1,extra_length=1", "--eval_sentences", 6)
FAST = (*FAST, "--split", "dev", "--engine", "auto")


@pytest.mark.slow
def test_runs_are_decoded_as_evaluate_decodes_them(trained_run, capfd, tmp_path):
    flags = ("--output_dir", trained_run, *FAST, "--output")
    for name, which in (("a", ("--checkpoint", "1")), ("b", ())):
        run_json(capfd, "evaluate", *flags, tmp_path / name, *which)
    texts = [tmp_path / f"{name}.hypothesis" for name in "ab"]
    argv = ("--references", tmp_path / "a.reference", "--metric", "chrf")
    source = tmp_path / "a.source"
    expected = run_json(capfd, "compare", *texts, source, texts[1], *argv)
    # A checkpoint, a run with its best weights, a file, and an export.
    pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
    served = ("--export_dir", tmp_path / "served", "--format", "ctranslate2")
    assert run("export", "--output_dir", trained_run, *served) == 0
    systems = [trained_run / "model.ckpt-1", trained_run, source, tmp_path / "served"]
    argv = ("--metric", "chrf", "--page", tmp_path / "page.html")
    capfd.readouterr()
    assert run("compare", *systems, *FAST, *argv) == 0
    shown, printed = capfd.readouterr()
    row = next(line for line in shown.splitlines() if "model.ckpt-1 " in line)
    assert row.split()[1] == "ctranslate2"
    # Each model is named, with the engine that `evaluate` takes.
    for system in (*systems[:2], systems[3]):
        assert printed.count(f"decoding with {system}\n") == 1
    assert printed.count("\nengine: ctranslate2, with ") == 2
    result = run_json(capfd, "compare", *systems, *FAST, *argv)
    assert result["problem"] == "translate_text" and result["sentences"] == 6
    engines = []
    for rows in zip(
        *(report["metrics"]["chrf"]["systems"] for report in (result, expected)),
        strict=True,
    ):
        run_row, file_row = (row | {"system": ""} for row in rows)
        engines.append(run_row.pop("engine", None))
        assert run_row == file_row
    assert engines == ["ctranslate2", "ctranslate2", None, "ctranslate2"]
    assert result["metrics"]["chrf"]["systems"][2]["difference"]
    sentence = run_refused(capfd, "compare", source, tmp_path / "served")
    assert "is an export, which has no data; compare it with a run" in sentence
    assert "<dt>source</dt>" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.fixture
def other_run(trained_run, data_dir, tmp_path):
    """A copy of a run, with data of its own that have a test split, too."""
    data = shutil.copytree(data_dir, tmp_path / "data")
    manifest = data / "translate_text.manifest.json"
    fields = json.loads(manifest.read_text())
    for name in ("examples", "text_sha256"):
        fields[name]["test"] = fields[name]["dev"]
    edit_json(manifest, **fields)
    for file in data.glob("translate_text-dev*"):
        shutil.copy(file, data / file.name.replace("-dev", "-test"))
    path = shutil.copytree(trained_run, tmp_path / "other")
    edit_json(path / "config.json", data_dir=str(data))
    return path


def test_data_that_differ_are_refused_before_decoding(
    trained_run, data_dir, other_run, capfd
):
    runs = (trained_run, other_run)
    data = other_run.parent / "data"
    message = f"--split: there is no test split: {data_dir} has only train and dev"
    refusal = run_refused(capfd, "compare", *runs, "--split", "test")
    assert refusal == f"t2t compare: error: {message}; `t2t datagen` adds one\n"
    paths = [data / f"translate_text-dev.{side}" for side in ("sources", "targets")]
    paths[1].write_text(paths[1].read_text().upper())
    checksums = {"dev": [sha256(path) for path in paths]}
    edit_json(data / "translate_text.manifest.json", text_sha256=checksums)
    refusal = run_refused(capfd, "compare", *runs, *FAST)
    message = f"{other_run} and {trained_run} have data with different dev sentences"
    assert refusal.startswith(f"t2t compare: error: {message}; give a --data_dir")
    assert refusal.count("\n") == 1


@pytest.mark.slow
def test_runs_are_compared_on_the_split_that_all_have(
    trained_run, data_dir, other_run, capfd
):
    fast = [word for word in FAST if word not in ("--split", "dev")]
    assert run("compare", trained_run, other_run, *fast) == 0
    lines = capfd.readouterr().err.splitlines()
    split = f"evaluating the dev split: {data_dir} has no test split"
    decoding = f"decoding with {trained_run}"
    assert lines.index(split) < lines.index(decoding)
    assert sum(line.startswith("evaluating the ") for line in lines) == 1
