"""Every number of a model card is one of the records that it was written from."""

import dataclasses
import json
import shutil

import pytest
import tensorflow as tf
from command_line import run, run_json, write
from model_cards import read_card
from small_data import sentence_pairs
from small_run import trainer
from t2t_oracle import SMALL, matrix, synthetic, t2t_checkpoint, write_hparams

from t2t_keras import registry
from t2t_keras.data.files import sha256
from t2t_keras.data.manifest import Manifest
from t2t_keras.plugins.reports.model_card import MODEL_CARD
from t2t_keras.plugins.reports.run_records import HISTORY, record, records, write_card
from t2t_keras.training.run_dir import RunDirectory, config_for

# What Markdown, YAML, HTML and tables could take for something else.
NASTY = "*a* _b_ `c` | <d> [e](f) # g: 'h' \"i\" & &lt; \\ \\| --- $j$ ~~k~~ {l} !m"
LICENSE = "no: # 'CC' | \"BY\" *4*"
PROBLEM = f"""
from t2t_keras import Problem, register_problem
from t2t_keras.evaluation.bleu import Bleu

@register_problem
def nasty_text():
    return Problem(
        summary={NASTY!r}, vocab_size=320, metrics=Bleu(languages=("no", "de")),
        sources={{"dev": ()}},
    )
"""


def number(text: str) -> float:
    return float(text.replace(",", ""))


def numbers(row):
    return [number(text) for text in row]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose paths and texts have special characters, with all its records."""
    folder = tmp_path_factory.mktemp("cards") / "a |*b*` _c_"
    folder.mkdir()
    (folder / "usr").mkdir()
    write(folder / "usr" / "nasty_problem.py", PROBLEM)
    pairs = [*sentence_pairs()[:60], ("", "no source"), ("long " * 99, "too long")]
    files = []
    for split, part in (("train", pairs), ("dev", pairs[:4]), ("test", pairs[4:7])):
        for side, name in enumerate(("source", "target")):
            path = write(folder / f"{split}.{name}", *(pair[side] for pair in part))
            files += [f"--{split}_{name}", path]
    problem = ("--problem", "nasty_text", "--usr_dir", folder / "usr")
    data = ("--data_dir", folder / "data")
    datagen = (*files, "--workers", 1, "--max_length", 12, "--license", LICENSE)
    assert run("datagen", *problem, *data, *datagen) == 0
    run_dir = ("--output_dir", folder / "run")
    sizes = "num_layers=1,d_model=8,d_ff=8,num_heads=2,batch_tokens=200,ema_decay=0.9"
    train = (*problem, *data, *run_dir, "--hparams_set", "tiny", "--hparams", sizes)
    often = ("--save_every", 2, "--eval_every", 2, "--eval_sentences", 2)
    assert run("train", *train, *often, "--train_steps", 4) == 0
    shutil.copy(folder / "run" / MODEL_CARD, folder / "trained.md")
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    return read_card(folder / "trained.md")


def json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_texts_of_users_are_shown_as_they_are(folder, trained):
    front, sections = trained
    assert front["language"] == ["no", "de"]
    assert list(sections)[1] == "nasty_text"
    (task, _) = sections["nasty_text"].texts
    assert task == f"Task: {NASTY} (no to de)"
    assert (
        f"The licence of the data, as it was given: {LICENSE}."
        in (sections["Data"].texts[-1])
    )
    assert sections["Training"].named["data_dir"] == str((folder / "data").resolve())


def test_head_is_that_of_a_hub(trained):
    front, _ = trained
    assert front["library_name"] == "t2t_keras"
    assert front["pipeline_tag"] == "translation"
    assert front["metrics"] == ["bleu"]


def test_model_and_vocabulary(folder, trained):
    _, sections = trained
    run_dir = folder / "run"
    hparams = json.loads((run_dir / "hparams.json").read_text())
    rows = sections["Model"].named
    reader = tf.train.load_checkpoint(str(run_dir / "model.ckpt-4"))
    shapes = reader.get_variable_to_shape_map()
    weights = [n for n in shapes if n.startswith("model/")]
    assert number(rows["parameters"]) == sum(reader.get_tensor(n).size for n in weights)
    for name in ("num_layers", "d_model", "d_ff", "num_heads"):
        assert number(rows[name]) == hparams[name]
    assert rows["hparams_set"] == "tiny"
    tiny = vars(registry.hparams("tiny"))
    changed = {
        name: here for name, _, here in sections["Model"].rows("hyper-parameter")
    }
    assert changed == {k: str(v) for k, v in hparams.items() if v != tiny[k]}
    manifest = Manifest.open(folder / "data", "nasty_text")
    for side, file, size, digest in sections["Vocabulary"].rows("side"):
        assert number(size) == manifest.vocab_sizes[side]
        assert file == manifest.vocab_files[side]
        assert digest == manifest.vocab_sha256[side] == sha256(run_dir / file)


def test_data_are_those_of_the_manifest(folder, trained):
    _, sections = trained
    manifest = Manifest.open(folder / "data", "nasty_text")
    data = sections["Data"]
    (examples, dropped) = (t[1:] for t in data.tables if t[0][0] == "split")
    assert {split: number(count) for split, count, *_ in examples} == manifest.examples
    for split, _, source, target, sources in examples:
        assert numbers([source, target]) == list(manifest.tokens[split].values())
        assert sources == manifest.sources[split]
    assert {(s, reason): number(n) for s, reason, n in dropped} == {
        ("train", "empty"): 1,
        ("train", "over_length"): 1,
    }
    assert manifest.dropped["train"] == {"empty": 1, "over_length": 1}
    assert number(data.named["max_length"]) == manifest.max_length == 12
    assert "at most 12 tokens on each side" in " ".join(sections["Limits"].texts)


def test_training_and_scores_on_dev(folder, trained):
    _, sections = trained
    config = json.loads((folder / "run" / "config.json").read_text())
    rows = sections["Training"].named
    assert rows["step"] == "4" and number(rows["seed"]) == config["seed"]
    assert rows["data_sha256"] == config["data_sha256"]
    (line,) = json_lines(folder / "run" / HISTORY)
    ((steps, devices, minutes, ended, on),) = sections["Training"].rows("steps")
    assert steps == f"{line['first_step']} to {line['last_step']}" == "0 to 4"
    assert (devices, ended) == (line["devices"], "train_steps")
    assert number(minutes) == round(line["minutes"], 4) > 0
    assert line["date"] in on and line["version"] in on

    table = next(t for t in sections["Scores"].tables if t[0][0] == "checkpoint")
    head, *found = table
    measured = {
        (r["kind"], r["step"]): r for r in json_lines(folder / "run" / "metrics.jsonl")
    }
    assert {row[0] for row in found} >= {"model.ckpt-4", "ema"}
    for row in found:
        name, _, step = row[0].rpartition("-")
        kind = {"average.ckpt": "dev_average", "": "dev_ema"}.get(name, "dev")
        expected = measured[kind, int(step) if name else 4]
        for metric, text in zip(head[1:], row[1:], strict=True):
            if text:
                assert number(text) == pytest.approx(expected[metric], abs=5e-5)
    assert any("at most 2 sentences" in text for text in sections["Scores"].texts)


def test_decoding_options_and_limits_are_the_problem_s(trained):
    _, sections = trained
    problem = registry.problem("nasty_text")
    rows = sections["Decoding"].named
    for name in ("beam_size", "alpha", "extra_length"):
        assert number(rows[name]) == getattr(problem, name)
    text = " ".join(sections["Limits"].texts)
    assert f"at most {number(rows['max_source_length']):,.0f} tokens at a time" in text
    assert "do not tell from which domains" in text


def test_code_of_the_card_runs(folder, monkeypatch, trained):
    _, sections = trained
    command, code = sections["Use"].code
    monkeypatch.chdir(folder / "run")
    write(folder / "run" / "source.txt", "a dog sees the house")
    assert run(*command.split()[1:]) == 0
    assert (folder / "run" / "output.txt").exists()
    exec(compile(code, "card", "exec"), {})


def scores(sections):
    """Returns what the tables of evaluations have, and the texts before them."""
    return [
        {name: (number(score), signature) for name, score, signature in table[1:]}
        for table in sections["Scores"].tables
        if table[0] == ["metric", "score", "signature"]
    ]


def test_evaluations_stay_until_the_checkpoint_is_another_one(folder, capfd):
    """And the card keeps what it had of the data when they are gone."""
    path = folder / "run"
    flags = ("--output_dir", path, "--usr_dir", folder / "usr", "--beam_size", 2)
    result = run_json(capfd, "evaluate", *flags)
    _, sections = read_card(path / MODEL_CARD)
    (found,) = scores(sections)
    for name, signature in result["bleu"]["signatures"].items():
        score = round(result["bleu"][name], 4)
        assert found[f"bleu {name}"] == (score, signature)
    for name in ("loss", "perplexity", "accuracy"):
        assert found[name] == (pytest.approx(result[name], abs=5e-5), "")
    text = " ".join(sections["Scores"].texts)
    assert "on test, 3 sentences decoded" in text
    assert "Decoding: beam_size 2, alpha 0.6" in text

    run_json(capfd, "evaluate", *flags)  # the same once more
    assert len(scores(read_card(path / MODEL_CARD)[1])) == 1
    run_json(capfd, "evaluate", *flags, "--checkpoint", "latest", "--sentences", 0)
    _, sections = read_card(path / MODEL_CARD)
    kept = [t for t in sections["Scores"].texts if "sentences decoded" in t]
    before = next(t.split(" ")[0] for t in kept if "3 sentences" in t)

    data = shutil.move(folder / "data", folder / "moved")
    assert run("average", "--output_dir", path, "--last", 2) == 0
    shutil.move(data, folder / "data")
    _, sections = read_card(path / MODEL_CARD)
    texts = " ".join(sections["Training"].texts)
    assert (
        "average.ckpt-4 is the average of the checkpoints at the steps 2, 4." in texts
    )
    assert sections["Data"].rows  # from the run's copy of the manifest
    assert number(sections["Data"].named["max_length"]) == 12
    table = next(t for t in sections["Scores"].tables if t[0][0] == "checkpoint")
    assert "average.ckpt-4" not in {row[0] for row in table}
    names = [t for t in sections["Scores"].texts if "sentences decoded" in t]
    assert len(names) == (1 if before == "average.ckpt-4" else 2)

    points = run_json(capfd, "evaluate", *flags, "--all_checkpoints")
    text = " ".join(read_card(path / MODEL_CARD)[1]["Scores"].texts)
    assert f"Best of 2 checkpoints on test, at step {points['best']['step']}" in text


def test_an_export_has_the_records_of_the_run(folder, capfd, tmp_path):
    path = tmp_path / "export"
    flags = ("--output_dir", folder / "run", "--usr_dir", folder / "usr")
    export = ("--format", "ctranslate2", "--quantization", "int8", "--verify", 2)
    result = run_json(capfd, "export", *flags, "--export_dir", path, *export)
    front, sections = read_card(path / MODEL_CARD)
    known = records(RunDirectory(folder / "run"))
    assert front["library_name"] == "ctranslate2"
    rows = sections["Model"].named
    assert rows["weights"] == "int8"
    assert number(rows["parameters"]) == known["parameters"]
    identical = f"{result['identical']} of {result['verified']}"
    assert rows["outputs as in the run"] == identical
    assert sections["Training"].named["checkpoint"] == known["checkpoint"]
    _, of_run = read_card(folder / "run" / MODEL_CARD)
    assert sections["Data"] == of_run["Data"]
    assert sections["Scores"] == of_run["Scores"]
    for name, _ in sections["Files"].rows("file"):
        assert (path / name).exists()


def test_an_imported_run(tmp_path, capfd):
    texts = "".join(map("".join, sentence_pairs()))
    characters = sorted({*texts, *"<pad>_<EOS>_", *"\\_u;0123456789"})
    pieces = ["<pad>_", "<EOS>_", *dict.fromkeys(characters)]
    write(tmp_path / "vocab.some.subwords", *(f"'{piece}'" for piece in pieces))
    matrices, _ = matrix("shared", len(pieces))
    t2t_checkpoint(tmp_path, synthetic() | matrices, 250_000)
    write_hparams(tmp_path, **SMALL)
    path = tmp_path / "run"
    result = run_json(capfd, "import", tmp_path, "--output_dir", path)
    front, sections = read_card(path / MODEL_CARD)
    assert "language" not in front and "license" not in front
    assert "The records do not name the languages." in sections["translate_text"].texts
    model = RunDirectory(path).build_model()
    assert number(sections["Model"].named["parameters"]) == model.count_params()
    for _, _, size, _ in sections["Vocabulary"].rows("side"):
        assert number(size) == len(pieces)
    assert sections["Data"].texts == ["There are no records of the data."]
    assert sections["Scores"].texts == ["There are no records of scores."]
    training = sections["Training"]
    assert number(training.named["step"]) == 250_000
    assert "seed" not in training.named
    assert training.named["problem"] == result["took"]["problem"]
    assert set(result["left_out"]) <= set(training.texts)


@pytest.mark.parametrize("sentences", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_a_run_of_an_earlier_version(earlier, capfd, sentences):
    """It is a parser, and has no history and no licence."""
    path = earlier / "run-parsing_wsj"
    flags = ("--output_dir", path, "--data_dir", earlier / "data", "--split", "dev")
    result = run_json(capfd, "evaluate", *flags, "--sentences", sentences)
    front, sections = read_card(path / MODEL_CARD)
    assert front["metrics"] == ["f1_errors_as_zero"]
    assert front["pipeline_tag"] == "text2text-generation"
    assert "There are no records of hardware and time." in sections["Training"].texts
    found = scores(sections)[-1]
    assert found["loss"][0] == pytest.approx(result["loss"], abs=5e-5)
    for name, value in result.get("f1", {}).get("all", {}).items():
        assert found[f"f1 all {name}"][0] == round(value, 4)


def test_a_card_that_cannot_be_written_stops_nothing(data_dir, tmp_path, capfd):
    (tmp_path / MODEL_CARD).mkdir()
    (tmp_path / HISTORY).mkdir()
    trainer(data_dir, tmp_path).train()
    assert capfd.readouterr().err.count("the model card is not written") == 2
    assert (tmp_path / "model.ckpt-4.index").exists()


def test_history_survives_a_broken_line(data_dir, tmp_path):
    trainer(data_dir, tmp_path, options={"average_last": 0}).train()
    with (tmp_path / HISTORY).open("a") as file:
        file.write('{"kind": "eval\n[]\n\n')
    record(RunDirectory(tmp_path), "average", checkpoint="average.ckpt-4", steps=[4])
    _, sections = read_card(tmp_path / MODEL_CARD)
    assert len(sections["Training"].rows("steps")) == 1
    assert "is the average" in " ".join(sections["Training"].texts)
    # The set "none" is not registered.
    assert "The set is not registered" in " ".join(sections["Model"].texts)


def test_other_data_in_the_data_directory_are_not_described(folder, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(folder / "run", path)
    (path / "manifest.json").unlink()
    config = json.loads((path / "config.json").read_text())
    config["data_sha256"] = "0" * 64
    (path / "config.json").write_text(json.dumps(config))
    assert records(RunDirectory(path))["data"] is None


def test_the_licence_is_no_part_of_the_data(folder):
    manifest = Manifest.open(folder / "data", "nasty_text")
    assert manifest.license == LICENSE
    fields = json.loads((folder / "data" / "nasty_text.manifest.json").read_text())
    del fields["license"]
    path = folder / "without.json"
    path.write_text(json.dumps(fields))
    earlier = Manifest.load(path)
    assert earlier.license == ""
    assert earlier.fingerprints("train") == manifest.fingerprints("train")


def test_a_new_run_in_the_other_direction(folder, tmp_path):
    """Its sources are the data's targets; it has no checkpoint yet."""
    manifest = Manifest.open(folder / "data", "nasty_text")
    tokens = {split: {"source": 11, "target": 22} for split in manifest.tokens}
    data, path = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    dataclasses.replace(manifest, tokens=tokens).save(Manifest.path(data, "nasty_text"))
    for name in manifest.vocab_files.values():
        shutil.copy(folder / "data" / name, data)
    config = config_for(registry.problem("nasty_text_rev"), "tiny", data, 1)
    run_dir = RunDirectory.create(path, config, registry.hparams("tiny"))
    write_card(run_dir)
    front, sections = read_card(path / MODEL_CARD)
    assert front["language"] == ["de", "no"]
    for row in sections["Data"].tables[0][1:]:
        assert row[2:4] == ["22", "11"]
    assert not {"parameters", "step", "checkpoint"} & records(run_dir).keys()
    assert "All hyper-parameters are those of the set." in sections["Model"].texts
