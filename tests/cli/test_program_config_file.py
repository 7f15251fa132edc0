"""`--config FILE` replaces flags, and reports mistakes in one sentence."""

import pytest
from helpers.command_line import parsed, run, run_refused

DATA = ["--data_dir", "d", "--output_dir", "o"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "f.toml") -> list[str]:
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    return ["--config", name]


TOML = """
problem = "translate_text"
data-dir = "d"
output_dir = "o"
hparams_set = "tiny"
hparams = { dropout = 0.2, num_layers = 4 }
change_settings = true
train_source = "x.en"
vocab = ["a", "b"]
train_target = "x.de"

[train]
seed = 3
best_by = "metric"
keep = 7

[datagen]
seed = 4

[translate]
decode_hparams = { protect = ["url", "email"], glossary = { dog = "Hund" } }
ensemble = ["p", "q"]
"""
YAML = """
problem: translate_text
data_dir: d
output_dir: o
hparams_set: tiny
hparams: {dropout: 0.2, num_layers: 4}
change_settings: true
train_source: x.en
train_target: x.de
vocab: [a, b]
train: {seed: 3, best_by: metric, keep: 7}
datagen: {seed: 4}
translate:
  decode_hparams:
    protect: [url, email]
    glossary: {dog: Hund}
  ensemble: [p, q]
"""
SAME = {
    "train": [
        *("--problem", "translate_text", *DATA, "--hparams_set", "tiny"),
        *("--hparams", "dropout=0.2,num_layers=4", "--change_settings", "--seed", "3"),
        *("--best_by", "metric", "--keep", "7"),
    ],
    "datagen": [
        *("--problem", "translate_text", "--data_dir", "d", "--train_source", "x.en"),
        *("--train_target", "x.de", "--vocab", "a", "b", "--seed", "4"),
    ],
    "translate": [
        *("o", "--ensemble", "p", "q"),
        *("--decode_hparams", "protect=[url,email],glossary=[dog=Hund]"),
    ],
}


@pytest.mark.parametrize(("text", "name"), [(TOML, "f.toml"), (YAML, "f.yaml")])
@pytest.mark.parametrize("command", SAME)
def test_a_file_says_what_flags_say(command, text, name):
    assert parsed(command, *write(text, name)) == parsed(command, *SAME[command])


@pytest.mark.parametrize("words", [["p", "x"], ["--model", "p"], ["--output_dir", "p"]])
def test_the_command_line_precedes_the_file(words):
    config = write('model = "a"\nbeam_size = 3\nscores = true\n')
    flags_only = parsed("translate", *words, "--beam_size", "5", "--scores")
    assert parsed("translate", *words, "--beam_size", "5", *config) == flags_only
    assert parsed("translate", *config)["model"] == "a"


@pytest.mark.parametrize(
    ("words", "hparams"),
    [
        (["--hparams", "d_ff=9"], "dropout=0.2,num_layers=4,d_ff=9"),
        (["--hparams=num_layers=6"], "dropout=0.2,num_layers=6"),
        (["--hparams", ""], "dropout=0.2,num_layers=4"),
    ],
)
def test_the_keys_of_a_file_stay_unless_the_command_line_has_them(words, hparams):
    """So a file of `config`, with one change, is not the set with one change."""
    assert parsed("train", *write(TOML), *words)["hparams"] == hparams


def test_decoding_options_of_a_file_stay_as_well():
    words = ["--decode_hparams", "protect=[markup],min_length=3"]
    assert parsed("translate", *write(TOML), *words)["decoding"] == {
        "protect": ("markup",),
        "glossary": (("dog", "Hund"),),
        "min_length": 3,
    }


def test_a_faulty_pair_of_the_file_is_refused(capfd):
    config = write('hparams = "dropout"\n')
    message = "f.toml: hparams: 'dropout' is not key=value"
    assert message in run_refused(capfd, "train", *config, "--hparams", "d_ff=9")


PLACES = {
    "translate x": "translate --model a --input x",
    "translate p x": "translate --model p --input x",
    "score x y": "score --model a --source x --target y",
    "score p x y": "score --model p --source x --target y",
    "export new": "export --model a --export_dir new",
    "export p new": "export --model p --export_dir new",
    "evaluate p": "evaluate --model p",
    "card p": "card --model p",
}


@pytest.mark.parametrize(("line", "same_line"), PLACES.items())
def test_words_are_files_if_the_file_names_the_model(line, same_line):
    same = parsed(*same_line.split())
    assert parsed(*line.split(), *write('output_dir = "a"\n')) == same


def test_a_word_precedes_the_input_of_a_file():
    config = write('output_dir = "a"\n[translate]\ninput = "b"\n')
    values = parsed("translate", "x", *config)
    assert (values["model"], values["input"]) == ("a", "x")


def test_a_directory_in_the_place_of_the_input_is_refused(folder, capfd):
    (folder / "a").mkdir()
    (folder / "a" / "config.json").write_text("{}")
    (folder / "other").mkdir()
    message = run_refused(capfd, "translate", *write('output_dir = "a"\n'), "other")
    assert "other is a directory, but f.toml already names the model a;" in message
    assert "give another model by --model" in message


@pytest.mark.parametrize(
    ("words", "models"),
    [("", "a=x y"), ("p q", "p q"), ("--model p --model q", "p q")],
)
def test_models_to_serve_are_a_list_that_words_replace(words, models):
    config = write('model = ["a=x", "y"]')
    assert parsed("serve", *words.split(), *config)["model"] == (*models.split(),)


def test_a_file_may_have_the_flags_of_a_problem():
    config = write('problem = "parsing_wsj"\ntreebank = "wsj"\ndata_dir = "d"\n')
    assert parsed("datagen", *config)["plugin_values"]["treebank"] == "wsj"
    flags_only = ["train", "--problem", "parsing_wsj", *DATA]
    assert parsed(*flags_only, *config) == parsed(*flags_only)


MISTAKES = {
    'probelm = "x"': "f.toml: there is no flag 'probelm'; did you mean 'problem'?",
    # The keys in these tables are also names of other toolkits.
    "[trian]\nseed = 2": "f.toml: there is no table 'trian'; did you mean 'train'?",
    "[train]\nhparam = {dropout = 0.3}": "there is no table 'hparam'; did you mean",
    "[trainings]\nseed = 2": "f.toml: there is no table 'trainings'",
    "[decoding]\nown = 2": "f.toml: there is no table 'decoding'",
    'model_dir = "x"': "f.toml: model_dir is a flag of onmt-main",
    "train_steps = 0": "f.toml: train_steps must be at least 1, not 0\n",
    'save_every = "x"': "f.toml: save_every must be an integer, not 'x'",
    "eval_every = [1, 2]": "f.toml: eval_every takes one value, not [1, 2]",
    "json = 1": "f.toml: json must be true or false",
    "[hparams]\nd_modle = 1": "did you mean 'd_model'?",
    "[train]\nkep = 1": "f.toml: there is no flag 'kep'; did you mean 'keep'",
    "seed = ": "f.toml is not TOML",
    "": "give --problem, --hparams_set, --data_dir and --output_dir; to resume",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_mistakes(text, message, capfd):
    words = []
    if "d_modle" in text:  # found after the flags that are missing
        words = ["--problem", "translate_text", "--hparams_set", "tiny", *DATA]
    assert message in run_refused(capfd, "train", *write(text), *words)


# 2 ** 60 lists, if each alias stands for its value.
ALIASES = "a0: &a0 [x, x]\n"
ALIASES += "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
ALIASES += "seed: *a59\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("f.yaml", "a: b: c", "f.yaml, line 1 is not YAML"),
        ("f.yaml", "- a", "f.yaml must have lines such as"),
        ("f.json", "{}", "f.json must end in .toml, .yaml or .yml"),
        ("f.toml", "\ufeffseed = ", "f.toml is not TOML: Invalid value"),
        ("f.toml", "a = " + "[" * 9000, "f.toml: its lists or tables are nested too"),
        ("f.toml", "config = 'g.toml'", "f.toml: a file cannot name another one in"),
        ("f.toml", 'usr_dir = "\\u0000"', "f.toml: usr_dir has a NUL character"),
        (
            "f.yaml",
            "a: 1\na: 2",
            "f.yaml, line 2 is not YAML: the key 'a' is there twice",
        ),
        (
            "f.yaml",
            ALIASES,
            "f.yaml, line 2 is not YAML: the alias '*a0' is refused; write its value",
        ),
        ("f.yaml", "a: 2020-99-99", "f.yaml is not YAML: month must be in 1..12"),
        ("f.yaml", "[" * 9000, "f.yaml: its lists or tables are nested too deeply"),
    ],
)
def test_other_files_are_refused(name, text, message, capfd):
    assert message in run_refused(capfd, "train", *write(text, name))


def test_all_names_of_another_toolkit_are_answered(capfd):
    """Those in OpenNMT-tf's tables also; a name that occurs twice has one line."""
    text = "model_dir: m\ndata: {train_labels_file: t, eval_labels_file: e}\n"
    text += "train: {batch_size: 1}\ninfer: {batch_size: 2}\nprobelm: x\n"
    assert run("train", *write(text, "f.yaml")) == 2
    lines = capfd.readouterr().err.splitlines()
    assert "there is no flag 'probelm'; did you mean 'problem'?" in lines.pop()
    keys = ["model_dir", "train_labels_file", "eval_labels_file", "batch_size"]
    for key, line in zip(keys, lines, strict=True):
        assert line.startswith(f"t2t train: error: f.yaml: {key} is a ")
