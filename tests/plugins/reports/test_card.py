"""`t2t card` writes the facts of a run in Markdown."""

import dataclasses
import json
import re
import shutil

from helpers.command_line import write

from t2t_keras import registry
from t2t_keras.cli import main
from t2t_keras.plugins.reports.card import model_card
from t2t_keras.plugins.reports.run_facts import set_rows
from t2t_keras.run.config import config_for
from t2t_keras.run.directory import RunDirectory
from t2t_keras.run.history import record_event


def test_card_of_a_run(trained_run, tmp_path, capfd, monkeypatch):
    run = shutil.copytree(trained_run, tmp_path / "runs" / "a run")
    facts = {"bleu": 12.5, "signature": "nrefs:1", "nll": 9.5, "perplexity": 19720.4}
    evaluation = {"checkpoint": "x", "split": "dev", "sentences": 7, "metrics": facts}
    for _ in range(2):
        record_event(run, "evaluation", **evaluation, decoding={"beam_size": 1})
    monkeypatch.chdir(tmp_path)
    assert main(["card", "--output_dir", str(run)]) == 0
    head, _, body = capfd.readouterr().out.removeprefix("---\n").partition("\n---\n")
    assert json.loads(head)["library_name"] == "t2t_keras"
    count = RunDirectory(run).build_model().count_params()
    assert f"| parameters | {count:,} |" in body
    assert "step 4 |" in body and "| train examples | " in body
    score = (
        "dev, x, beam_size=1, 7 sentences: bleu 12.5, `nrefs:1`; whole split: nll "
        "9.5, perplexity 19,720"
    )
    assert body.count(score) == 1
    assert "t2t translate 'runs/a run' source.txt" in body
    assert 'load("runs/a run").translate' in body
    assert "| 0 |" not in body and not re.search(r"[ \"]/\w", body)  # absolute paths
    assert re.search(r"steps 0 to 4 in \d+ s on ", body)
    with (run / "history.jsonl").open("ab") as log:
        log.write(b'{"kind": "evalu\xff\n')
    file = tmp_path / "card.md"
    assert main(["card", "--output_dir", str(run), "--output", str(file)]) == 0
    assert file.read_text().rstrip("\n").endswith(body.rstrip("\n"))
    assert "history.jsonl: damaged lines are passed over" in capfd.readouterr().err
    monkeypatch.chdir(run)
    assert main(["card", ".", "--checkpoint", "latest"]) == 0
    body = capfd.readouterr().out
    assert ": a run\n" in body
    assert "t2t serve 'a run' --checkpoint latest" in body
    assert 'load("a run", "latest")' in body


def test_a_resolved_auto_is_not_a_change(data_dir):
    config = config_for(registry.problem("translate_text"), "tiny", data_dir, 1)
    tiny = registry.hparams("tiny")
    assert set_rows(config, tiny) == {"hparam set": "tiny"}
    resolved = tiny.override(bucketing="exact", jit_compile=False)
    auto = {"auto hyper-parameters": "bucketing=exact, jit_compile=false"}
    assert set_rows(config, resolved) == {"hparam set": "tiny"} | auto
    changed = resolved.override(dropout=0.2, norm="pre", train_steps=7)
    changes = {"changed hyper-parameters": "norm=pre, dropout=0.2, train_steps=7"}
    assert set_rows(config, changed) == {"hparam set": "tiny"} | changes | auto
    unknown = dataclasses.replace(config, hparams_set="removed")
    assert set_rows(unknown, tiny) == {"hparam set": "removed"}


def test_evaluations_during_training_have_labels(trained_run, tmp_path):
    run = shutil.copytree(trained_run, tmp_path / "run")
    records = [
        *({"step": step, "kind": "dev", "nll": 9.0 - step} for step in (1, 2, 3, 4)),
        {"step": 4, "kind": "dev_best", "nll": 5.0},
        {"step": 4, "kind": "dev_average", "checkpoints": 2, "nll": 5.5},
    ]
    lines = [json.dumps(record) for record in records]
    write(run / "metrics.jsonl", *lines)
    record_event(run, "training", eval_sentences=2)
    _, _, section = model_card(RunDirectory(run)).partition("during training\n\n")
    assert section.partition("\n\n")[0].splitlines() == [
        "- scores are of the first 2 sentences, nll of all",
        "- step 2: nll 7",
        "- step 3: nll 6",
        "- step 4 (the best checkpoint): nll 5",
        "- step 4 (the average of the last checkpoints): nll 5.5",
    ]
