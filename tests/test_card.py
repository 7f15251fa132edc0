"""The verb `card`: facts of a run in Markdown."""

import json

from small_run import trainer

from t2t_keras.cli import main
from t2t_keras.training.run_dir import RunDirectory


def test_card_of_a_run(data_dir, tmp_path, capfd):
    run = tmp_path / "run"
    trainer(data_dir, run).train()
    facts = {"bleu": 12.5, "signature": "nrefs:1"}
    RunDirectory(run).record(
        "evaluation", checkpoint="x", split="dev", sentences=7, metrics=facts
    )
    assert main(["card", "--output_dir", str(run)]) == 0
    head, _, body = capfd.readouterr().out.removeprefix("---\n").partition("\n---\n")
    assert json.loads(head)["library_name"] == "t2t_keras"
    count = RunDirectory(run).build_model().count_params()
    assert f"| parameters | {count:,} |" in body
    assert "step 4 |" in body and "| train examples | " in body
    assert "dev, x, 7 sentences: bleu 12.5, `nrefs:1`" in body
    assert "steps 0 to 4" in body
    file = tmp_path / "card.md"
    assert main(["card", "--output_dir", str(run), "--write", str(file)]) == 0
    assert file.read_text().rstrip("\n").endswith(body.rstrip("\n"))
