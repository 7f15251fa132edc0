"""Every command of README, as it stands there and in its order, on small data.

The files that README names are small ones here, and the problems and hparam sets that
take hours have small stand-ins of the same names. The words of the commands are
README's; they run in this process, in one directory.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest
from command_line import run, write
from small_data import sentence_pairs
from t2t_oracle import SMALL, matrix, synthetic, t2t_checkpoint, write_hparams

from t2t_keras import registry
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.hparam import HParams
from t2t_keras.runs.train_options import TrainOptions

README = Path(__file__).parents[1] / "README.md"

# Not run: they make environments, run the tests, and install.
# `t2t serve` would not end; tests/test_serve.py runs it.
SERVE = "t2t serve --model ende=served/1 --model parser=runs/wsj --languages ende=en-de"
EXCLUDED = ("make demo", "make test", "pip install .", SERVE)

TINY = HParams(
    num_layers=1,
    d_model=16,
    d_ff=16,
    num_heads=2,
    warmup_steps=10,
    batch_tokens=512,
    train_steps=5,
)
STAND_INS = ("base", "multi30k", "parsing")
TREES = [f"(TOP (S (NP (NN dog{i})) (VP (VBZ barks)) (. .)))" for i in range(20)]


def blocks() -> list[tuple[str, str]]:
    """Returns the blocks of code: the language and the text of each."""
    text = README.read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    """Returns the command lines of a block of sh, continued ones as one."""
    lines = block.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [shlex.join(line) for line in words if line]


def steps() -> list[tuple[str, str]]:
    """Returns what README has its reader run: ("sh" or "python", its text)."""
    every = []
    for language, text in blocks():
        assert language in ("sh", "python"), f"README: a block of '{language}'"
        every += (
            [(language, command) for command in commands(text)]
            if language == "sh"
            else [(language, text)]
        )
    return [step for step in every if step[1] not in EXCLUDED]


def name_of(step: tuple[str, str]) -> str:
    language, text = step
    return " ".join(text.split()[:4]) if language == "sh" else text.splitlines()[0]


def write_files() -> None:
    """Writes the files that README names."""
    pairs = sentence_pairs()
    for name, part in (("train", pairs), ("dev", pairs[:6]), ("test", pairs[6:12])):
        for side, language in enumerate(("en", "de")):
            write(Path(f"{name}.{language}"), *(pair[side] for pair in part))
    write(Path("baseline.de"), *(target for _, target in pairs[7:13]))
    write(Path("source.en"), *(source for source, _ in pairs[:3]))
    write(Path("sentences.txt"), "The dog barks.")
    for section in ("02", "22", "23"):
        folder = Path("treebank_3/parsed/mrg/wsj") / section
        folder.mkdir(parents=True)
        trees = TREES if section == "02" else TREES[:3]
        write(folder / f"wsj_{section}01.mrg", *trees)
    write_t2t_model()


def write_t2t_model() -> None:
    """Writes a training directory of tensor2tensor, with its vocabulary."""
    texts = "".join(map("".join, sentence_pairs()))
    characters = sorted({*texts, *"<pad>_<EOS>_", *"\\_u;0123456789"})
    pieces = ["<pad>_", "<EOS>_", *dict.fromkeys(characters)]
    folder = Path("t2t_train/translate_ende_wmt32k/base")
    folder.mkdir(parents=True)
    vocab = folder / "vocab.translate_ende_wmt32k.32768.subwords"
    write(vocab, *(f"'{piece}'" for piece in pieces))
    matrices, _ = matrix("shared", len(pieces))
    t2t_checkpoint(folder, synthetic() | matrices, 250_000)
    write_hparams(folder, **SMALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A directory with README's files, and the stand-ins while the module runs."""
    files = {
        split: ParallelFiles(f"{name}.en", f"{name}.de")
        for split, name in (("train", "train"), ("dev", "dev"), ("test", "test"))
    }
    registry.list_problems(), registry.list_hparams()  # loads them all
    problems = {
        "translate_ende": {"sources": files, "vocab_size": 330, "extra_length": 4},
        "translate_text": {"extra_length": 4},
        "parsing_wsj": {"beam_size": 2, "extra_length": 12},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("readme"))
        for name, changes in problems.items():
            small = registry.problem(name).replace(**changes)
            replace(patch, registry._problems, name, small)
        for name in STAND_INS:
            replace(patch, registry._hparams, name, TINY)
        defaults = TrainOptions.__init__.__kwdefaults__
        for option, value in (("save_every", 1), ("eval_sentences", 0)):
            patch.setitem(defaults, option, value)
        # Another test may have imported a user's file of this name.
        patch.setattr(
            sys, "path", [x for x in sys.path if not Path(x, "captions.py").exists()]
        )
        imported = (
            (sys.modules, "captions"),
            (registry._problems._definitions, "captions_ende"),
        )
        for names, name in imported:
            patch.delitem(names, name, raising=False)
        write_files()
        yield Path.cwd()
        for names, name in imported:
            names.pop(name, None)


def replace(patch, kind, name, value) -> None:
    """Registers a stand-in under a name that has a definition."""
    definitions = kind._definitions
    definition = registry._Definition(lambda: value, definitions[name].place, "")
    patch.setitem(definitions, name, definition)


@pytest.mark.slow
@pytest.mark.parametrize("step", steps(), ids=name_of)
def test_what_readme_runs(step, workplace):
    language, text = step
    if language == "sh":
        program, *words = shlex.split(text)
        assert program == "t2t", f"README: {text}"
        assert run(*words) == 0
    elif file := re.match(r"# (\S+\.py)\n", text):
        Path(file[1]).parent.mkdir()
        Path(file[1]).write_text(text, encoding="utf-8")
    else:
        exec(compile(text, README, "exec"), {})


@pytest.mark.slow
def test_what_readme_promises_is_there(workplace):
    """What the commands above have written."""
    assert len(Path("translation.de").read_text().splitlines()) == 3
    assert len(Path("test.translation").read_text().splitlines()) == 6
    assert "<html" in Path("heads.html").read_text()
    assert "<article" in Path("differences.html").read_text()
    assert {path.name for path in Path("runs/base").glob("average.ckpt-*")}
    assert (Path("runs/base") / "evaluation-test" / "scores.json").exists()
    assert (Path("served/1") / "saved_model.pb").exists()
    assert (Path("runs/t2t") / "config.json").exists()
    for directory in ("base", "mine", "wsj", "captions", "drop"):
        assert (Path("runs") / directory / "metrics.jsonl").exists()


def test_commands_stand_in_blocks():
    """A command with flags in the prose would not be run here."""
    text = README.read_text(encoding="utf-8")
    prose = re.sub("^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`(t2t \w+ [^`]*)`", prose)
    assert set(inline) <= {"t2t VERB --help"}


def test_the_excluded_commands_are_there():
    """An exclusion that excludes nothing is to be taken out."""
    every = [line for _, text in blocks() for line in commands_or_none(text)]
    assert set(EXCLUDED) <= set(every)


def commands_or_none(block: str) -> list[str]:
    try:
        return commands(block)
    except ValueError:  # Python's quotes
        return []
