"""What the command line refuses at once: before TensorFlow is imported."""

import json
import subprocess
import sys

import pytest

RUN = ("translate", "--output_dir", "run")
DECODE = ("--decode_hparams",)
PAIRS = ("score", "--output_dir", "run", "--source", "file", "--target", "file")
TRAIN = ("train", "--data_dir", "d", "--output_dir", "o", "--problem")
BASE = ("translate_ende", "--hparams_set", "base")
EXPORT = ("export", "--output_dir", "run", "--export_dir")
NEW = (*EXPORT, "new")
COMPARE = ("compare", "file", "link", "--references", "file")
INSPECT = ("inspect", "--train_source", "file")
EVALUATE = ("evaluate", "--output_dir", "run")

# What there is: a run directory, an export, and a file that is none of them.
MISTAKES = [
    ((*TRAIN, "translate_endd", "--hparams_set", "base"), "did you mean"),
    ((*TRAIN, "translate_ende", "--hparams_set", "bas"), "there is no 'bas'"),
    ((*TRAIN, *BASE, "--hparams", "d_modle=1"), "did you mean 'd_model'"),
    ((*TRAIN, *BASE), "there is no d/translate"),
    (
        (*TRAIN, *BASE, "--best_by", "metric", "--eval_sentences", "0"),
        "best_by=metric needs --eval_sentences",
    ),
    ((*TRAIN, *BASE, "--init_from", "no_such"), "no_such is neither a run nor a check"),
    ((*TRAIN, *BASE, "--save_minutes", "nan"), "save_minutes must be a"),
    (
        (*TRAIN, *BASE, "--save_every", "9", "--save_minutes", "9"),
        "--save_every and --save_minutes exclude each other",
    ),
    (("translate", "--output_dir", "no_such"), "no_such is not a run directory"),
    (("translate", "served"), "served is neither a run nor an export; give served/10"),
    (
        ("translate", "run", "--export_dir", "export"),
        "there is no flag --export_dir; MODEL may be an export: give its directory as",
    ),
    (("translate", "data"), "data is a data directory; give a run, the --output_dir"),
    (("average", "data", "--last", "2"), "data is a data directory; give a run"),
    (("serve", "data"), "data is a data directory; give a run, the --output_dir of"),
    (("train", "--output_dir", "data"), "--output_dir: data is a data directory"),
    ((*TRAIN, *BASE, "--init_from", "data"), "--init_from: data is a data directory"),
    (
        ("export", "trained/model.ckpt-5", "new"),
        "trained/model.ckpt-5 is a checkpoint; give its run, trained, and the "
        "checkpoint as --checkpoint=model.ckpt-5",
    ),
    (
        ("config", "trained/model.ckpt-5.index"),
        "trained/model.ckpt-5.index is a checkpoint; give its run, trained, and",
    ),
    (
        (*TRAIN, *BASE, "--data_dir", "trained"),
        "--data_dir: trained is a run directory; its data are in /its/data",
    ),
    (
        ("datagen", "--problem", "translate_ende_toy", "--data_dir", "trained"),
        "--data_dir: trained is a run directory; its data are in /its/data; give",
    ),
    (
        (*TRAIN, *BASE, "--output_dir", "served/9"),
        "--output_dir: served/9 is an export; give a directory for the run",
    ),
    (
        ("datagen", "--problem", "translate_ende_toy", "--data_dir", "served/9"),
        "--data_dir: served/9 is an export; give another directory for new data",
    ),
    ((*RUN, "--input", "no_such.txt"), "cannot read no_such.txt"),
    (
        (*RUN, "--input", "A dog."),
        "no file 'A dog.'; to translate a text: echo \"...\" | t2t translate run\n",
    ),
    ((*RUN, "--input", "."), "cannot read ."),
    ((*RUN, "--input", "file", "--output", "no/such"), "--output: there is no direc"),
    ((*RUN, "--input", "file", "--output", "file"), "file is the input; name another"),
    ((*RUN, "--input", "file", "--output", "run"), "run is a directory; name a file"),
    (
        (*RUN, "--input", "file", "--output", "x", "--alignments", "run/../x"),
        "--alignments: it is also --output; name another file",
    ),
    (
        (*RUN, "--input", "x.incomplete", "--output", "x"),
        "x.incomplete, the name that x has while it is written, is the input; name",
    ),
    (
        (*RUN, "--input", "x.incomplete.json", "--output", "x"),
        "x.incomplete.json, the name that x has while it is written, is the input",
    ),
    (
        (*RUN, "--input", "file", "--output", "x", "--alignments", "x.incomplete"),
        "--alignments: it is also --output; name another file",
    ),
    (
        (*RUN, "--input", "file", "--output", "link"),
        "--output: link is the input; name another",
    ),
    (
        (*RUN, "--input", "link", "--alignments", "file"),
        "--alignments: file is the input; name another",
    ),
    (
        (*RUN, *DECODE, "glossary=terms.tsv", "--input", "file", "--output=terms.tsv"),
        "--output: terms.tsv is the input; name another",
    ),
    (
        (*RUN, "--input", "file", "--output", "run/config.json"),
        "--output: run/config.json belongs to run, which the command reads",
    ),
    (
        (*COMPARE, "--page", "file"),
        "--page: file is the input; name another",
    ),
    (
        (*INSPECT, "--train_target", "link", "--page", "file"),
        "--page: file is the input; name another",
    ),
    (
        (*EVALUATE, *DECODE, "forbidden=out.source", "--output", "out"),
        "--output: out.source is the input; name another",
    ),
    ((*PAIRS, "--output", "file"), "file is the input; name another"),
    (
        (*PAIRS, "--gold_alignments", "link", "--alignments", "link"),
        "--alignments: link is the input; name another",
    ),
    ((*PAIRS, "--output", "scores.gz"), "is not compressed; leave out .gz"),
    ((*RUN, "--alpha", "nan"), "alpha must be a finite number"),
    (
        ("evaluate", "--output_dir", "run", "--export_dir", "x", "--checkpoint", "1"),
        "--checkpoint does not go with --export_dir",
    ),
    (
        (*RUN, *DECODE, "sampling=true", "--beam_size", "3"),
        "--beam_size has no effect with sampling=true",
    ),
    ((*RUN, *DECODE, "lenght_penalty=none"), "did you mean 'length_penalty'?"),
    ((*RUN, *DECODE, "truncate=maybe"), "truncate must be true or false, not 'maybe'"),
    ((*RUN, *DECODE, "forbidden=absent"), "forbidden: cannot read absent"),
    (
        (*RUN, *DECODE, "glossary=[a=b,truncate=true"),
        "'glossary=[a=b,truncate=true' has a [ without ]; a list is [a,b]",
    ),
    ((*RUN, *DECODE, "glossary=[a=b]c"), "'[a=b]c' is not a list; write [a,b]"),
    (
        (*EVALUATE, *DECODE, "sampling=true"),
        "error: --decode_hparams: 'sampling' has no effect here",
    ),
    (
        ("translate", "export", *DECODE, "max_source_length=9"),
        "--decode_hparams max_source_length needs a run: the export export has it",
    ),
    ((*PAIRS, "--target", "absent.de"), "cannot read absent.de"),
    ((*PAIRS, "--target", "Hund"), "no file 'Hund'; write the texts into a file, one"),
    (("evaluate", "export"), "export is an export; give its run, and the export as --"),
    ((*EVALUATE, "--data_dir", "no_such"), "--data_dir: there is no directory no_such"),
    (("average", "--output_dir", "no_such", "--last", "5"), "there is no directory"),
    (("export", "--output_dir", "no", "--export_dir", "x"), "no is not a run direct"),
    ((*EXPORT, "export"), "give --overwrite to replace it"),
    ((*EXPORT, "run", "--overwrite"), "run exists and is not an export"),
    ((*EXPORT, "file"), "file exists and is not an export"),
    (
        (*NEW, "--quantization", "int16"),
        "--quantization: --format=savedmodel has no int16; the choice is int8, float16",
    ),
    (
        (*NEW, "--format", "hf-marian", "--beam_size", "5"),
        "--beam_size has no effect with --format=hf-marian",
    ),
    (
        (*PAIRS, "--alignments", "x", "--ensemble", "run"),
        "an ensemble has no alignments; leave out --ensemble",
    ),
]

# Runs the program once for each command line, without leaving the process.
PROGRAM = """
import contextlib, io, json, sys
from t2t_keras.cli import main

results = []
for argv in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main(argv)
        except SystemExit as exit:
            code = exit.code
    results.append((code, err.getvalue(), "tensorflow" in sys.modules))
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of each command line: exit code, standard error, whether it had TensorFlow."""
    folder = tmp_path_factory.mktemp("checks")
    for name in ("run/config.json", "export/saved_model.pb", "file"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}\n")
    (folder / "data").mkdir()
    (folder / "data/translate_text.manifest.json").write_text("{}")
    (folder / "trained").mkdir()
    (folder / "trained/config.json").write_text('{"data_dir": "/its/data"}')
    for name in ("hparams.json", "model.ckpt-5.index"):
        (folder / "trained" / name).touch()
    for name in ("x.incomplete", "x.incomplete.json", "out.source"):
        (folder / name).write_text("of the user\n")
    (folder / "terms.tsv").write_text("dog\tHund\n")
    (folder / "link").symlink_to("file")
    for version in ("9", "10"):
        (folder / "served" / version).mkdir(parents=True)
        (folder / "served" / version / "t2t_export.json").touch()
    initial_files = {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    command = [sys.executable, "-c", PROGRAM]
    arguments = json.dumps([argv for argv, _ in MISTAKES])
    printed = subprocess.check_output(command, input=arguments, text=True, cwd=folder)
    final_files = {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    assert final_files == initial_files
    return json.loads(printed)


@pytest.mark.parametrize("index", range(len(MISTAKES)))
def test_a_mistake_is_found_before_tensorflow_is_imported(index, results):
    argv, message = MISTAKES[index]
    code, error, has_tensorflow = results[index]
    assert code == 2
    assert error.startswith(f"t2t {argv[0]}: error: ")
    assert message in error
    assert len(error.splitlines()) == 1
    assert not has_tensorflow


# Standard streams that the shell has closed: `<&-`, `>&-`, `2>&-`.

MAIN = "import sys; from t2t_keras.cli import main; sys.exit(main(sys.argv[1:]))"


def closed(redirection, *argv, cwd):
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh"]
    command = [*shell, sys.executable, "-c", MAIN, *argv]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_standard_output_is_closed(tmp_path):
    done = closed(">&-", "list", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "t2t: error: standard output is closed; redirect it to a file or to /dev/null\n"
    )


def test_standard_input_is_closed(tmp_path):
    done = closed("<&-", *RUN, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "t2t translate: error: standard input is closed; give --input FILE\n"
    )
    # The other commands do not need it.
    assert closed("<&-", "list", cwd=tmp_path).returncode == 0
