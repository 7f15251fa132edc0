"""The page of a run: its content, its size, and its looks in a browser."""

import dataclasses
import json
import re
import shlex
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.browser import needs_chromium
from helpers.command_line import run, run_json, run_refused
from helpers.page_checks import check_page, check_tab_order, check_views
from helpers.small_run import replace_updates, trainer

from t2t_keras import registry
from t2t_keras.cli import program
from t2t_keras.plugins.reports.attention import SentenceAttention
from t2t_keras.plugins.reports.run_facts import (
    metric_records,
    read_run,
    target_tokens,
    training_seconds,
)
from t2t_keras.plugins.reports.run_page import LIVE_PAGE, PageHook, run_page
from t2t_keras.run.checkpoint import CheckpointDirectory
from t2t_keras.run.history import DevSamples, Sample, read_samples, write_samples

ARABIC = "الكلب يجري في الحديقة"
EVIL = '<img src=x onerror="alert(1)">'

NARROW = """
import t2t_keras

@t2t_keras.register_hparams
def narrow():
    return t2t_keras.registry.hparams("tiny").override(d_model=16)
"""


@pytest.fixture(scope="module")
def live_run(data_dir, tmp_path_factory):
    """A run of four steps with two evaluations, trained with `--page`."""
    path = tmp_path_factory.mktemp("live") / "run"
    options = {"eval_every": 2, "eval_sentences": 12, "log_every": 1}
    training = trainer(
        data_dir, path, options=options, dropout=0.2, plugins=[LIVE_PAGE]
    )
    with pytest.MonkeyPatch.context() as patch:
        replace_updates(patch)
        training.train()
    return path


def long_run(path, config_of, evaluations, texts):
    """Writes the records of a long training beside the settings of another run."""
    path.mkdir()
    for name in ("config.json", "hparams.json", "vocab.*"):
        for file in config_of.glob(name):
            (path / file.name).write_bytes(file.read_bytes())
    with (path / "metrics.jsonl").open("w") as file:
        for n in range(1, evaluations + 1):
            train = {"loss": 9 / n, "nll": 8 / n, "learning_rate": 0.1 / n}
            speeds = {"steps_per_s": 2.0, "target_tokens_per_s": 1000.0}
            step = {"step": 100 * n}
            file.write(json.dumps(step | {"kind": "train"} | train | speeds) + "\n")
            dev = {"nll": 8.5 / n, "bleu": min(n / 10, 40)}
            file.write(json.dumps(step | {"kind": "dev"} | dev) + "\n")
    with (path / "samples.jsonl").open("w", encoding="utf-8") as file:
        for n in range(1, evaluations + 1):
            samples = [
                Sample(i, text, text, f"{n} {text}", 10.0)
                for i, text in enumerate(texts, 1)
            ]
            record = DevSamples(100 * n, "bleu", samples, samples[:5], samples[5:])
            write_samples(file, record)
    return read_run(path)


def change_config(path, **settings):
    """Changes settings in the `config.json` of a run."""
    config = json.loads((path / "config.json").read_text())
    config.pop("sha256")
    config |= {"hparams_sha256": None, **settings}
    (path / "config.json").write_text(json.dumps(config))


def weights(source, target, layers=6, heads=8):
    rng = np.random.default_rng(0)

    def of(rows, columns):
        return rng.random((layers, heads, rows, columns))

    encoder = of(len(source), len(source))
    decoder = of(len(target), len(target))
    cross = of(len(target), len(source))
    return SentenceAttention(source, target, encoder, decoder, cross, ARABIC, "a b")


def test_training_with_a_page_leaves_one_with_all_sections(live_run):
    page = (live_run / "page.html").read_text(encoding="utf-8")
    for name in ("curves", "sentences", "attention", "costs", "settings"):
        assert page.count(f'id="{name}"') == 1, name
    records = read_samples(live_run)
    assert [record.step for record in records] == [2, 4]
    lines = [sample.line for sample in records[0].samples]
    assert [sample.line for sample in records[1].samples] == lines
    assert len(lines) == 10
    assert page.count('class="sample"') == 20  # ten samples, five worst, five best
    assert "ended by train_steps" in page and 'id="live"' not in page
    assert "http" not in page.replace("http://www.w3.org", "") and "url(" not in page


def test_the_command_writes_the_same_sections(live_run, data_dir, tmp_path, capfd):
    page = tmp_path / "page.html"
    result = run_json(capfd, "page", "--output_dir", live_run, "--output", page)
    text = page.read_text(encoding="utf-8")
    assert result == {"page": str(page), "bytes": page.stat().st_size}
    assert text.count('class="sample"') == 20 and 'id="attention-data"' in text
    # A run that has recorded no sentences: they are decoded now.
    (live_run / "samples.jsonl").rename(tmp_path / "samples.jsonl")
    capfd.readouterr()
    assert run("page", "--output_dir", live_run, "--output", page) == 0
    printed = capfd.readouterr()
    assert printed.out == "" and printed.err.count(str(page)) == 1  # named once
    early_page = tmp_path / "early.html"
    flags = ("--checkpoint", 2, "--output", early_page)
    run_json(capfd, "page", "--output_dir", live_run, *flags)
    (tmp_path / "samples.jsonl").rename(live_run / "samples.jsonl")
    text = page.read_text(encoding="utf-8")
    assert text.count('class="sample"') == 20 and "earlier output" not in text
    assert "Worst and best at step 4<" in text
    assert "Worst and best at step 2<" in early_page.read_text(encoding="utf-8")
    sentence = run_refused(capfd, "page", "--output_dir", tmp_path)
    assert "is not a run" in sentence or "config.json" in sentence


def test_a_model_without_attention_maps_does_not_end_its_training(
    live_run, tmp_path, capfd
):
    long_run(tmp_path / "run", live_run, 2, ["a"])
    checkpoints = CheckpointDirectory(tmp_path / "run")
    hook = PageHook(checkpoints, SimpleNamespace(translator=None))
    for step in (100, 200):
        hook.on_eval(step, "dev", {})
    hook.close()
    warnings = capfd.readouterr().err.splitlines()
    assert len(warnings) == 1 and warnings[0].startswith("the page has no attention: ")
    page = (tmp_path / "run" / "page.html").read_text(encoding="utf-8")
    assert 'id="sentences"' in page and 'id="attention"' not in page


def test_a_page_that_cannot_be_written_does_not_end_the_training(
    live_run, tmp_path, capfd
):
    long_run(tmp_path / "run", live_run, 2, ["a"])
    page = tmp_path / "run" / "page.html"
    page.mkdir()
    hook = PageHook(CheckpointDirectory(tmp_path / "run"), None)
    hook.on_train_begin()
    hook.on_eval(100, "dev", {})
    lines = capfd.readouterr().err.splitlines()
    warnings = [line for line in lines if "file:" not in line]
    assert len(warnings) == 1 and warnings[0].startswith("the page is not written: ")
    page.rmdir()
    hook.close()
    assert 'id="sentences"' in page.read_text(encoding="utf-8")


def test_only_the_logs_are_reread(live_run, tmp_path):
    run = tmp_path / "run"
    long_run(run, live_run, 2, ["a"])
    hook = PageHook(CheckpointDirectory(run), None)
    hook.on_train_begin()
    for file in (run / "config.json", run / "hparams.json", *run.glob("vocab.*")):
        file.unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 300, "kind": "train", "nll": 1.0}) + "\n")
    hook.close()
    page = (run / "page.html").read_text(encoding="utf-8")
    assert "<dt>step</dt><dd>300 " in page


def test_the_command_that_repeats_a_run_has_its_settings(live_run):
    facts = read_run(live_run)
    words = shlex.split(facts.training_command().replace("\\\n", ""))
    assert words[:2] == ["t2t", "train"]
    flags = dict(zip(words[2::2], words[3::2], strict=True))
    assert flags["--problem"] == "translate_text" and flags["--seed"] == "1"
    assert flags["--data_dir"] == facts.config.data_dir
    # The set of this run is not registered, so its hparams cannot be told apart.
    assert facts.changed_hparams() == {}


def test_the_command_repeats_what_the_run_changed(live_run, tmp_path):
    path = tmp_path / "a run"
    long_run(path, live_run, 2, ["a"])
    options = {"keep": 3, "save_minutes": 7.5, "best_by": "metric"}
    settings = {"accumulate": 2, "train_options": options}
    change_config(path, hparams_set="tiny", init_from="another", **settings)
    facts = read_run(path)
    words = shlex.split(facts.training_command().replace("\\\n", ""))
    command = program.parse(words[1:])
    hparams = registry.hparams("tiny").parse(command.hparams)
    assert hparams.override(train_steps=command.train_steps) == facts.hparams
    assert command.output_dir == f"{path}-again"
    assert (command.accumulate, command.init_from, command.seed) == (2, "another", 1)
    assert command.options == options


def test_the_settings_tell_how_many_sentences_were_decoded(live_run):
    facts = read_run(live_run)
    count = int(facts.data_rows()["dev examples"])
    for decoded, row in ((count - 1, f"the first {count - 1} of dev"), (count, None)):
        history = [{"kind": "training", "eval_sentences": decoded}]
        rows = dataclasses.replace(facts, history=history).data_rows()
        assert rows.get("decoded in training") == row


@pytest.mark.usefixtures("registrations")
def test_changes_of_a_set_of_the_users(live_run, tmp_path):
    usr_dir = tmp_path / "mine"
    usr_dir.mkdir()
    (usr_dir / "narrow_sets.py").write_text(NARROW)
    path = tmp_path / "run"
    long_run(path, live_run, 2, ["a"])
    change_config(path, hparams_set="narrow", usr_dir=str(usr_dir))
    facts = read_run(path)
    assert facts.changed_hparams()["batch_tokens"] == 256
    assert "d_model" not in facts.changed_hparams()
    assert f"--usr_dir {usr_dir}" in facts.training_command()


def test_time_and_tokens_are_sums_over_reports(live_run, tmp_path):
    facts = long_run(tmp_path / "run", live_run, 3, ["a"])
    # Three reports of 100 steps, at 2 steps and 1000 tokens a second.
    assert training_seconds(facts.records["train"]) == pytest.approx(150)
    assert target_tokens(facts.records["train"]) == pytest.approx(150_000)
    costs = facts.costs()
    assert costs["target tokens"] == "150,000"
    assert costs["target tokens a second"] == "1,000"


def test_figures_are_those_of_the_costs_in_short_numbers(live_run, tmp_path):
    facts = long_run(tmp_path / "run", live_run, 3, ["a"])
    # The speed of the last report differs from the mean: 120,000 in 150 seconds.
    facts.records["train"][-1]["target_tokens_per_s"] = 400.0
    facts.records["dev"][-1]["nll"] = 9.89
    page = run_page(facts)
    figures = dict(re.findall(r"<dt>([^<]*)</dt><dd>(.*?)</dd>", page))
    assert figures["target tokens/s"] == "800 <small>mean of all steps</small>"
    assert facts.costs()["target tokens a second"] == "800"
    assert figures["best BLEU on dev"] == "0.3 <small>at step 300</small>"
    del facts.records["dev"][:-1]
    assert "<dd>9.89 <small>perplexity 19,732</small></dd>" in run_page(facts)


def test_a_resumed_training_has_each_step_once(tmp_path):
    lines = [(1, 0.9), (2, 0.8), (3, 0.7), (2, 0.6)]
    text = "".join(
        json.dumps({"step": step, "kind": "train", "nll": nll}) + "\n"
        for step, nll in lines
    )
    (tmp_path / "metrics.jsonl").write_text(f'{text}{{"step": 3, "ki\n[1]\n')
    records = metric_records(tmp_path)
    assert [(x["step"], x["nll"]) for x in records["train"]] == [(1, 0.9), (2, 0.6)]
    assert records["dev"] == []


@pytest.fixture(scope="module")
def large_page(live_run, tmp_path_factory):
    """A page of 1,000 evaluations, of which many texts have 5,000 characters."""
    texts = [f"{ARABIC} {EVIL} " * 80, "a" * 5000, "ü b c " * 800, *["d"] * 7]
    folder = tmp_path_factory.mktemp("large")
    facts = long_run(folder / "run", live_run, 1000, texts)
    attention = weights(["▁الكلب"] * 40, ["▁Hund"] * 40)
    page = folder / "page.html"
    text = run_page(facts, attention, is_live=True)
    page.write_text(text, encoding="utf-8")
    return page


def test_a_page_of_a_long_training_is_below_a_megabyte(large_page):
    assert 100_000 < large_page.stat().st_size < 1_000_000
    text = large_page.read_text(encoding="utf-8")
    assert EVIL not in text and "100,000" in text
    assert 'id="live"' in text and "in training" in text


@needs_chromium
def test_a_large_page_in_a_browser(large_page, chromium):
    with chromium.page() as page:
        check_views(page, large_page.as_uri())
        page.run("for (const d of document.querySelectorAll('details')) d.open = true")
        check_page(page)
        assert page.run("document.images.length") == 0
        direction = "getComputedStyle(document.querySelector('.sample dd')).direction"
        assert page.run(direction) == "rtl"


@needs_chromium
def test_a_page_in_a_browser(live_run, tmp_path, chromium):
    path = tmp_path / "run"
    long_run(path, live_run, 4, ["the dog .", ARABIC])
    # `check_views` sees that it is not broken.
    change_config(path, hparams_set="transformer_base_of_our_own")
    facts = read_run(path)
    attention = weights(["▁the", "</s>"], ["▁der", "</s>"], layers=2, heads=2)
    file = tmp_path / "page.html"
    file.write_text(run_page(facts, attention, is_live=True), encoding="utf-8")
    with chromium.page() as page:
        check_views(page, file.as_uri())
        check_tab_order(page)
        # The values of a curve, by mouse and by keyboard.
        shown = "document.querySelector('.chart output').textContent"
        page.point(".chart .cursor")
        page.run("document.querySelector('.plot').focus()")
        assert page.run(shown) == "step 400: train 2, dev 2.125"
        page.press("ArrowLeft")
        page.press("ArrowLeft")
        assert page.run(shown) == "step 200: train 4, dev 4.25"
        # What is open stays open when the page loads itself again.
        assert page.run("document.getElementById('live').checked")
        page.run("document.getElementById('live').click()")
        page.open(file.as_uri(), 390)
        assert not page.run("document.getElementById('live').checked")


@needs_chromium
def test_the_page_of_a_real_training_in_a_browser(live_run, chromium):
    with chromium.page() as page:
        check_views(page, (live_run / "page.html").as_uri())
