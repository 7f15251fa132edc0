"""Multi30k: prepared as the dataset's own files, downloaded or from a folder."""

import gzip
import json
import re
from pathlib import Path

import pytest
from helpers.command_line import run, run_json, run_refused, write
from helpers.file_server import FileServer
from helpers.reference import reference

from t2t_keras import UserError, registry
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.problems import multi30k
from t2t_keras.problems.multi30k import prepare

# Raw captions of the dataset, and the same in its folder `tok`.
PREPARED = {
    "en": {
        "A boy wearing headphones sits on a woman's shoulders.": (
            "a boy wearing headphones sits on a woman &apos;s shoulders ."
        ),
        "Two young, White males are outside near many bushes.": (
            "two young , white males are outside near many bushes ."
        ),
    },
    "de": {
        "Ein Boston Terrier läuft über saftig-grünes Gras vor einem weißen Zaun.": (
            "ein boston terrier läuft über saftig-grünes gras vor einem weißen zaun ."
        ),
        # A later tokenizer.perl separates this full stop.
        "Ein Oklahoma-Sooners-Football-Spieler trägt sein Trikot mit der Nummer 28.": (
            "ein oklahoma-sooners-football-spieler trägt sein trikot mit der nummer 28."
        ),
        # The quotation mark and the full stop change places, ’ becomes a quote.
        "Ein Mann hält ein Schild: „Come on now ... what's gayer than tea.“": (
            "ein mann hält ein schild : &quot; come on now ... what &apos; s gayer "
            "than tea &quot; ."
        ),
        "Ein Mann mit gelber Krawatte macht das „Hook ’em Horns“-Zeichen. ": (
            "ein mann mit gelber krawatte macht das &quot; hook &quot; em horns &quot; "
            "-zeichen ."
        ),
    },
    "fr": {
        "Des gens admirent une œuvre d'art.": (
            "des gens admirent une œuvre d&apos; art."
        ),
    },
}


@pytest.mark.parametrize("language", PREPARED)
def test_captions_are_prepared_as_the_datasets_own(language):
    raw, prepared = PREPARED[language].keys(), PREPARED[language].values()
    assert list(prepare(iter(raw), language)) == list(prepared)


@pytest.mark.parametrize(
    "others", [("train",), pytest.param(("dev", "test"), marks=pytest.mark.slow)]
)
def test_the_real_captions_are_prepared_as_the_datasets_own(others, tmp_path, capfd):
    folder = reference("multi30k")
    problem = registry.problem("translate_multi30k")
    given = dict.fromkeys(others, tuple)  # splits that have another source
    problem = problem.replace(raw_dir=folder, sources=given).in_data_dir(tmp_path)
    assert "warning" not in capfd.readouterr().err  # they are the published ones
    assert problem.sources.keys() == multi30k.NAMES.keys()
    paths = list((tmp_path / "multi30k").iterdir())
    assert len(paths) == 2 * (3 - len(others))
    for path in paths:
        name = path.name.replace("_2016_flickr", "2016").replace(".lc.norm.tok", "")
        assert path.read_bytes() == (folder / "lc_tok" / name).read_bytes()


ENGLISH = [f"A man's dog {i} sees {i % 7} “trees”." for i in range(60)]
GERMAN = [f"Der Hund Nummer {i} sieht „{i % 7} Bäume.“" for i in range(60)]
FRENCH = [f"Le chien n° {i} voit l'arbre {i % 7}." for i in range(60)]
ENGLISH_TOKENS = [
    f"a man &apos;s dog {i} sees {i % 7} &quot; trees . &quot;" for i in range(60)
]
GERMAN_TOKENS = [
    f"der hund nummer {i} sieht &quot; {i % 7} bäume &quot; ." for i in range(60)
]
TEXTS = {"en": ENGLISH, "de": GERMAN, "fr": FRENCH}
RANGES = {"train": range(40), "val": range(40, 50), "test_2016_flickr": range(50, 60)}


def raw_texts() -> dict[str, str]:
    """The texts of all published files."""
    texts = {}
    for name, indices in RANGES.items():
        for language, lines in TEXTS.items():
            text = "".join(f"{lines[i]}\n" for i in indices)
            texts[f"{name}.{language}"] = text
    return texts


def hand_made(data_dir: Path, capfd) -> dict[str, bytes]:
    """The data of files that were prepared by hand, by the ends of their names."""
    flags: list[str | Path] = []
    for split, indices in zip(("train", "dev", "test"), RANGES.values(), strict=True):
        for side, lines in (("source", ENGLISH_TOKENS), ("target", GERMAN_TOKENS)):
            path = data_dir.with_name(f"{split}.{side}")
            write(path, *(lines[i] for i in indices))
            flags += [f"--{split}_{side}", path]
    argv = ["datagen", "--problem", "translate_text", "--data_dir", data_dir]
    run_json(capfd, *argv, "--vocab_size", "350", *flags)
    return contents(data_dir, "translate_text")


def contents(data_dir: Path, problem: str) -> dict[str, bytes]:
    """The content of the data, but for the manifest, which names the problem."""
    files = {}
    for path in sorted(data_dir.iterdir()):
        if path.is_file() and "manifest" not in path.name:
            files[path.name.replace(problem, "")] = path.read_bytes()
    return files


ARGV = ["datagen", "--problem", "translate_multi30k", "--vocab_size", "350"]


def test_downloaded_captions_make_the_data_of_prepared_ones(
    tmp_path, capfd, monkeypatch
):
    texts = raw_texts()
    files = {
        f"/{name}.gz": gzip.compress(text.encode()) for name, text in texts.items()
    }
    data_dir = tmp_path / "data"
    with FileServer(files) as server:
        monkeypatch.setattr(multi30k, "ADDRESS", server.address)
        server.breaks = [20]
        assert run(*ARGV, "--data_dir", data_dir) == 2
        error = capfd.readouterr().err.splitlines()[-1]  # below the bar
        assert "train.en.gz: the connection was closed too early; run the" in error
        run_json(capfd, *ARGV, "--data_dir", data_dir)
        assert server.ranges[:2] == ["bytes=0-", "bytes=20-"]
        assert len(server.ranges) == 7  # six files
        expected = hand_made(tmp_path / "by_hand", capfd)
        assert contents(data_dir, "translate_multi30k") == expected
        french = ["datagen", "--problem", "translate_multi30k_enfr"]
        run_json(capfd, *french, "--data_dir", data_dir, "--vocab_size", "350")
        assert len(server.ranges) == 7 + 3  # English is there
    manifest = json.loads((data_dir / "translate_multi30k.manifest.json").read_text())
    assert manifest["languages"] == ["en", "de"]


@pytest.mark.parametrize(
    ("suffix", "test_name"), [("", "test2016"), (".gz", "test_2016_flickr")]
)
def test_captions_in_a_folder(tmp_path, capfd, suffix, test_name):
    folder = tmp_path / "captions"
    folder.mkdir()
    for name, text in raw_texts().items():
        path = folder / f"{name.replace('test_2016_flickr', test_name)}{suffix}"
        content = text.encode()
        path.write_bytes(gzip.compress(content) if suffix else content)
    data_dir = tmp_path / "data"
    argv = [*ARGV, "--raw_dir", folder, "--data_dir", data_dir]
    assert run(*argv) == 0
    names = [f"{x}.{y}{suffix}" for x in ("train", "val", test_name) for y in TEXTS]
    english_and_german = ", ".join(name for name in names if ".fr" not in name)
    warning = f"warning: {english_and_german} in {folder}: not the text that was publ"
    assert warning in capfd.readouterr().err
    expected = hand_made(tmp_path / "by_hand", capfd)
    assert contents(data_dir, "translate_multi30k") == expected

    other = tmp_path / "other"
    path = folder / f"val.de{suffix}"
    for content, sentence in (
        (
            b"Ein Hund.\n",
            "val.de{} has only 1 line and .*val.en{} has 10: line",
        ),
        ("Bäume\n".encode("latin-1") * 10, "val.de{}, line 1: byte 0xe4 is not valid"),
    ):
        path.write_bytes(gzip.compress(content) if suffix else content)
        capfd.readouterr()
        assert run(*ARGV, "--raw_dir", folder, "--data_dir", other) == 2
        error = capfd.readouterr().err.splitlines()[-1]
        assert re.search(f"error: {folder}/{sentence.format(suffix, suffix)}", error)
        assert not other.exists()

    path.unlink()
    error = run_refused(capfd, *ARGV, "--raw_dir", folder, "--data_dir", other)
    assert f"{folder} has no val.de or val.de.gz; download https://raw.git" in error
    assert "/multi30k/dataset/master/data/task1/raw/val.de.gz, or" in error
    assert not other.exists()


@pytest.mark.parametrize("name", ["translate_multi30k", "translate_multi30k_enfr"])
def test_scores_are_those_of_the_published_comparison(name):
    problem = registry.problem(name)
    assert (problem.vocab_size, problem.beam_size, problem.alpha) == (10_000, 5, 1.4)
    references = ["ein hund sieht vier bäume ."]
    for scored in (problem, problem.reversed()):
        report = metrics_of(scored).report(["a"], references, references)["bleu"]
        main_score, signature = next(iter(report["signatures"].items()))
        assert main_score == "sacrebleu_none"
        assert report[main_score] == pytest.approx(100)
        assert "|case:mixed|" in signature and "|tok:none|" in signature


def test_raw_inputs_are_prepared():
    processor = registry.problem("translate_multi30k").text_processor
    raw, prepared = next(iter(PREPARED["en"].items()))
    assert processor.preprocess(f" {raw} ", raw=True) == prepared
    assert processor.preprocess(f" {prepared} ") == prepared
    assert processor.preprocess_graph([f" {prepared} "], raw=False) == prepared.encode()
    with pytest.raises(UserError, match="raw: Moses' tokenizer does not run in"):
        processor.preprocess_graph([raw], raw=True)
