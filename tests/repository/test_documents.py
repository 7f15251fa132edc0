"""Every block of code of README and of docs/, as it stands there and in its order.

A page runs from top to bottom in one fresh directory. The files that pages name are
small ones here, and problems and hparam sets that take hours have small stand-ins of
the same names; the words of the commands are the page's, but for numbers of steps.

- `sh`: `t2t` runs in this process, other programs in bash;
- `python`: runs in one namespace for each page;
- `python`, `toml`, `yaml`, `json` with a comment that names a file: is written to it;
- `text`, `console`, `bibtex`, `math` and others: for readers only.

`<!-- not run: reason -->` above a block excepts it; `t2t` commands in it are parsed.
Commands in a comment that begins with `<!-- setup:` run and are not shown: they make
what a page takes for granted, such as a trained run.
"""

import functools
import glob
import gzip
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from helpers import documents
from helpers.command_line import run, write
from helpers.documents import PAGES, Block
from helpers.marian_models import (
    hf_config,
    token_list,
    weights,
    write_hf,
    write_splitters,
)
from helpers.small_data import sentence_pairs
from helpers.t2t_oracle import SMALL, matrix, synthetic, t2t_checkpoint, write_hparams

from t2t_keras import registry
from t2t_keras.cli.program import command_line, commands, parse
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.training.settings import TrainOptions

# Why a block may be left out.
REASONS = (
    *("it installs", "it takes minutes", "it takes hours", "it needs a GPU"),
    *("it needs the internet", "it needs several machines", "it needs a server"),
    *("it needs a new process", "it needs another program", "it needs other files"),
)

TINY = {
    **{"num_layers": 1, "d_model": 16, "d_ff": 16},
    **{"num_heads": 2, "d_k": 0, "d_v": 0},
    **{"warmup_steps": 10, "batch_tokens": 512, "train_steps": 5},
}
# In place of the numbers of steps in commands, also of runs that were imported, and of
# pairs.
STEPS = {"--train_steps": "5", "--save_every": "1", "--eval_every": "5"}
STEPS |= {"--dev_size": "6", "--test_size": "6"}
TREES = [f"(TOP (S (NP (NN dog{i})) (VP (VBZ barks)) (. .)))" for i in range(20)]
# Flags that name what a command has written.
WRITTEN = ("--output", "--output_dir", "--export_dir", "--page", "--alignments")

ALL_BLOCKS = [block for page in PAGES for block in documents.blocks(page)]


@pytest.mark.parametrize("block", ALL_BLOCKS, ids=lambda block: block.location)
def test_a_block_is_run_or_says_why_not(block):
    location = block.location
    language = block.language
    reason = block.reason
    languages = documents.CODE + documents.FOR_READERS
    assert language in languages, f"{location}: '{language}'"
    if reason:
        assert reason.startswith(REASONS), f"{location}: {reason}"
        assert language in documents.CODE, f"{location} would not be run anyway"
    if language == "python":
        compile(block.text, location, "exec")


@pytest.mark.parametrize("page", PAGES, ids=documents.name_of)
def test_setup_comments_end_on_a_line_of_their_own(page):
    """Otherwise their commands would not be found."""
    comments = re.findall(r"<!-- setup:.*?-->", page.read_text(), re.DOTALL)
    assert all(comment.endswith("\n-->") for comment in comments)


SH = [block for block in ALL_BLOCKS if block.language == "sh" and "t2t " in block.text]


@pytest.mark.parametrize("block", SH, ids=lambda block: block.location)
def test_commands_have_the_programs_flags(block, tmp_path, monkeypatch):
    """Also of the blocks that are not run."""
    monkeypatch.chdir(tmp_path)
    page = block.location.partition(":")[0]
    for file_block in ALL_BLOCKS:
        if file_block.language == "toml" and file_block.location.startswith(f"{page}:"):
            run_block(file_block, {})
    for call in documents.t2t_calls(block.text):
        try:
            args = parse(call)
        except SystemExit:  # the help was asked for
            continue
        if name := getattr(args, "hparams_set", None):
            is_own = getattr(args, "usr_dir", None)
            assert is_own or registry.hparams(name), f"{block.location}: {name}"


CONFIGS = sorted((documents.ROOT / "examples" / "configs").iterdir())


def commands_of(config: Path) -> list[str]:
    """The commands in the comment at the beginning of a file of flags."""
    return re.findall(r"^# (t2t .*)", config.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_examples_of_config_files_have_the_programs_flags(config, monkeypatch):
    monkeypatch.chdir(config.parent)
    assert commands_of(config)
    for command in commands_of(config):
        parse(documents.words(command)[1:])


@pytest.mark.parametrize(
    "page",
    [page for page in documents.DOCUMENTS if page.name != "CHANGELOG.md"],
    ids=documents.name_of,
)
def test_flags_in_the_prose_exist(page):
    """Commands in sentences may be incomplete; their flags exist."""
    text = documents.prose(page)
    for command, arguments in re.findall(r"`t2t (\w+)([^`]*)`", text):
        if command == "COMMAND":
            continue
        assert command in commands(), f"{page.name}: t2t {command}"
        for flag in re.findall(r"--\w+", arguments):
            is_known = flag == "--help" or flag in flags_of(command)
            assert is_known, f"{page.name}: `t2t {command}{arguments}`"
    assert not re.search(r"^ {4}t2t \w+ ", text, re.MULTILINE), "indented, not fenced"


@functools.cache
def flags_of(command: str) -> set[str]:
    part = commands()[command].plugin_flags(None, None)
    return command_line(command, commands()[command], part).names()


def write_files() -> None:
    """Writes the files that pages name."""
    pairs = sentence_pairs()
    sources, targets = zip(*pairs, strict=True)
    parts = {"train": slice(None), "dev": slice(6), "test": slice(6, 12)}
    for name, part in parts.items():
        write(Path(f"{name}.en"), *sources[part])
        write(Path(f"{name}.de"), *targets[part])
    write(Path("mono.de"), *targets[:12])
    links = [" ".join(f"{i}-{4 - i}" for i in range(5))] * len(pairs)
    write(Path("train.links"), *links)
    write(Path("test.links"), *links[6:12])
    for name in ("source.en", "in.en"):
        write(Path(name), *sources[:3])
    write(Path("ref.de"), *targets[:3])
    write(Path("gold.links"), *links[:3])
    for name, shift in (("baseline.de", 1), ("a.de", 0), ("b.de", 2)):
        write(Path(name), *targets[6 + shift : 12 + shift])
    write(Path("sentences.txt"), "The dog barks.")
    for section in ("02", "22", "23"):
        folder = Path("treebank_3/parsed/mrg/wsj") / section
        folder.mkdir(parents=True)
        trees = TREES if section == "02" else TREES[:3]
        write(folder / f"wsj_{section}01.mrg", *trees)
    write(Path("poems.txt"), *sources)
    write_compressed(pairs)
    write_t2t_model()
    write_marian_model()


def write_compressed(pairs: list[tuple[str, str]]) -> None:
    """Writes the corpora of docs/data.md."""
    for side, language in enumerate(("en", "de")):
        with gzip.open(f"captions.{language}.gz", "wt") as file:
            file.writelines(f"{pair[side]}\n" for pair in pairs)
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv>'
        f'<tuv xml:lang="fr"><seg>{target}</seg></tuv></tu>\n'
        for source, target in pairs
    )
    write(Path("memory.tmx"), f"<tmx><body>{units}</body></tmx>")
    folder = Path("wmt14/de-en")
    folder.mkdir(parents=True)
    rows = [{"en": source, "de": target} for source, target in pairs]
    table = pyarrow.table({"translation": rows})
    pyarrow.parquet.write_table(table, folder / "validation-00000-of-00001.parquet")


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


def write_marian_model() -> None:
    """Writes a model of OPUS-MT as transformers has it."""
    folder = Path("opus-mt-en-de")
    write_splitters(folder)
    tokens = token_list(folder, "source", "target")
    sizes = len(tokens), len(tokens)
    config = hf_config(len(tokens) + 1, share_encoder_decoder_embeddings=True)
    write_hf(folder, weights(sizes, "all", pre_norm=False), config, tokens)


@pytest.fixture
def workplace(tmp_path, monkeypatch, registrations):
    """A directory with the files, and the stand-ins while a page runs."""
    monkeypatch.chdir(tmp_path)
    write_files()
    modules = set(sys.modules)
    files = {
        split: ParallelFiles(f"{split}.en", f"{split}.de")
        for split in ("train", "dev", "test")
    }
    small = {"sources": files, "vocab_size": 330, "extra_length": 4}
    problems = {
        "translate_ende": small,
        "translate_enfr": small,
        "translate_text": {"extra_length": 4},
        "translate_ende_toy": {"extra_length": 4, "sources": files},
    } | {
        name: {"beam_size": 2, "extra_length": 12}
        for name in ("parsing_wsj", "parsing_wsj_notags", "parsing_wsj_semi")
    }
    for name, changes in problems.items():
        small_problem = registry.problem(name).replace(**changes)
        registrations.replace("problems", name, small_problem)
    for name in registry.list_hparams():
        small_set = registry.hparams(name).override(**TINY)
        registrations.replace("hparams", name, small_set)
    defaults = TrainOptions.__init__.__kwdefaults__
    for option, value in (("save_every", 1), ("eval_sentences", 0)):
        monkeypatch.setitem(defaults, option, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    yield tmp_path
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


def run_command(command: str) -> None:
    """Runs a command: a single `t2t` in this process, anything else in bash."""
    program, *arguments = documents.words(command)
    if program != "t2t" or any(set(word) <= documents.OPERATORS for word in arguments):
        subprocess.run(["bash", "-c", command], check=True)
        return
    argv = [
        STEPS.get(flag, name)
        for flag, word in itertools.pairwise([program, *arguments])
        for name in (sorted(glob.glob(word)) or [word])
    ]
    if argv[0] == "train" and "--train_steps" not in argv:
        argv += ["--train_steps", STEPS["--train_steps"]]
    assert run(*argv) == 0
    for flag, word in itertools.pairwise(argv):
        if (argv[0], flag) == ("evaluate", "--output"):
            word += ".hypothesis"  # one of the files whose prefix it is
        if flag in WRITTEN and not word.startswith("--"):  # `train --page` has no value
            assert Path(word).exists(), f"{word} was not written"


def run_block(block: Block, namespace: dict) -> None:
    """Runs a block, or writes its file."""
    if block.file:
        text = block.text
        if block.language == "json":  # has no comments
            _, text = text.split("\n", 1)
        Path(block.file).parent.mkdir(parents=True, exist_ok=True)
        Path(block.file).write_text(text, encoding="utf-8")
    elif block.language == "sh":
        for command in documents.commands(block.text):
            try:
                run_command(command)
            except BaseException as error:
                error.add_note(f"{block.location}: {command}")
                raise
    elif block.language == "python":
        exec(compile(block.text, block.location, "exec"), namespace)


@pytest.mark.slow
def test_examples_of_config_files_run(workplace):
    own_text_first = sorted(CONFIGS, key=lambda path: path.name != "own_text.yaml")
    for config in own_text_first:
        Path(config.name).write_bytes(config.read_bytes())
        for command in commands_of(config):
            run_command(command)
    for run_dir in ("mine", "domain", "base", "toy"):
        assert Path("runs", run_dir, "config.json").exists()


def has_code(page: Path) -> bool:
    return any(block.is_run for block in documents.blocks(page))


@pytest.mark.slow
@pytest.mark.parametrize("page", filter(has_code, PAGES), ids=documents.name_of)
def test_blocks_run(page, workplace):
    namespace = {"__name__": "__page__"}
    for block in documents.blocks(page):
        if block.is_run:
            run_block(block, namespace)
