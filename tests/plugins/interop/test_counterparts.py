"""Names of other toolkits, typed here, get what replaces them."""

import dataclasses
import functools
import re
import runpy
from pathlib import Path

import pytest
from helpers.errors import refused

from t2t_keras import registry
from t2t_keras.cli import program
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.hparam import FIELD_ALIASES, HParams
from t2t_keras.options import parse_options, split_pairs
from t2t_keras.plugins.interop.counterparts import Table, explain, in_message, tables
from t2t_keras.plugins.interop.extended_transformer import ExtendedHParams
from t2t_keras.plugins.interop.t2t.names import ALIASES
from t2t_keras.plugins.interop.t2t.t2t_sets import remarks

ROOT = Path(__file__).parents[3]
OPTIONS = {
    "hparams": ExtendedHParams,
    "decode_hparams": DecodingOptions,
}
# Names of other toolkits that are ours but for a letter or a hyphen.
MISSPELT = {
    "reference": "references",
    "user-dir": "usr_dir",
    "vocabs": "vocab",
    "models": "model",
    "alignment": "alignments",
    "max-length": "max_length",
    "beam-size": "beam_size",
    **dict.fromkeys(("nbest", "n-best"), "n_best"),
}
PROBLEMS = ("translate_ende_wmt", "parsing_wsj")  # they have flags


COMMANDS = program.commands()
TABLES = tables()
DOCUMENTS = runpy.run_path(str(ROOT / "docs" / "_site" / "counterparts.py"))
PAGES, block_name, generated, markdown = (
    DOCUMENTS[name] for name in ("PAGES", "block_name", "generated", "markdown")
)


@functools.cache
def flags(command):
    parts = [COMMANDS[command].plugin_flags(problem, None) for problem in PROBLEMS]
    line = program.command_line(command, COMMANDS[command], *parts)
    return frozenset(line.names())


def names(location):
    """The names that are ours at a place."""
    if location == "t2t":
        return frozenset(COMMANDS)
    if location in OPTIONS:
        fields = {field.name for field in dataclasses.fields(OPTIONS[location])}
        return frozenset(
            fields | ({*FIELD_ALIASES} if location == "hparams" else set())
        )
    return flags(location)


def entries():
    for table in TABLES:
        for entry, sentence in table.entries():
            name, _, value = entry.partition("=")
            yield table, name, value, sentence


def typed(name, location):
    """The name as it is typed at a place."""
    if location in OPTIONS or location == "t2t" or name.startswith("-"):
        return name
    return f"--{name}"


def errors(argv, capsys):
    assert program.main(argv) == 2
    return capsys.readouterr().err.splitlines()


def error(argv, capsys):
    (line,) = errors(argv, capsys)
    return line


def refusal(location, name, value, capsys):
    """What the real parser says of a name."""
    if location == "t2t":
        return error([name], capsys)
    if location == "hparams":
        return refused("", HParams().parse, f"{name}={value or 1}")
    if location == "decode_hparams":
        flag = ["translate", "run", "--decode_hparams", f"{name}={value or 1}"]
        return error(flag, capsys)
    return error([location, typed(name, location), *filter(None, [value])], capsys)


@pytest.mark.parametrize("toolkit", sorted({table.toolkit for table in TABLES}))
def test_every_row_is_what_the_parser_says(toolkit, capsys):
    """Names that are also ours keep our meaning; their rows say "the same"."""
    seen = 0
    for table, name, value, sentence in entries():
        if table.toolkit != toolkit:
            continue
        location = table.contexts[0]
        shown = typed(name, location)
        if shown in names(location):
            is_program = table.noun == "program"
            assert is_program or "the same" in sentence or name in sentence
            continue
        message = refusal(location, name, value, capsys)
        ours = typed(MISSPELT.get(name, ""), location)
        if ours in names(location):
            assert re.search(f"did you mean '?{ours}'?\\?", message)
            continue
        assert "did you mean" not in message
        assert f"{shown} is a " in message
        assert f"a {table.noun} of {table.command}" in message
        assert in_message(sentence, location) in message, (table.command, name)
        seen += 1
    assert seen > 100


@pytest.mark.parametrize(
    "table", TABLES, ids=lambda table: f"{table.command} {table.noun}"
)
def test_a_counterpart_exists_where_the_sentence_says(table):
    for entry, sentence in table.entries():
        for span in re.findall("`([^`]+)`", sentence):
            check(span, table, entry)


def check(span, table, entry):
    location = f"{table.command} {entry}: {span}"
    words = span.split()
    if re.fullmatch(r"\$?[A-Z_]{6,}(=\S+)?", span):  # a variable of the environment
        return
    commands = [name for name in table.contexts if name in COMMANDS]
    if words[0] == "t2t":
        words = words[1:]
        if words[0] != "--help":
            assert words[0] in COMMANDS, location
        commands = words[:1]
        words = words[1:]
    if commands == ["--help"]:
        return
    for index, word in enumerate(words):
        if word.startswith("--"):
            assert any(
                word in flags(command) for command in commands or ["translate"]
            ), location
            if word == "--hparams_set" and index + 1 < len(words):
                registry.hparams(words[index + 1])
            if word == "--problem" and words[index + 1 :] not in ([], ["NAME"]):
                registry.problem(words[index + 1])
        elif (key := words[index - 1].lstrip("-")) in OPTIONS and index:
            keys = split_pairs(word)
            assert names(key) >= keys.keys(), location
            check_values(key, keys)
    if len(words) == 1 and re.match(r"[a-z]\w+(=|$)", words[0]):
        key = words[0].partition("=")[0]
        counterparts = {"alignment", "translate", "sacrebleu_intl", "sacrebleu_13a_lc"}
        assert key in counterparts or any(key in names(group) for group in OPTIONS), (
            location
        )


def check_values(group, keys):
    """The values are possible, with numbers in the place of letters."""
    values = {k: v for k, v in keys.items() if v not in ("F*G", "NAME", "FILE")}
    examples = {"X": "0.1", "N": "16", "M": "2"}
    text = ",".join(f"{name}={examples.get(v, v)}" for name, v in values.items())
    if group == "hparams":
        is_extended = values.keys() - HParams.descriptions().keys()
        (ExtendedHParams() if is_extended else HParams()).parse(text)
    else:
        OPTIONS[group](**parse_options(OPTIONS[group], text))


def test_all_of_tensor2tensors_names_are_there():
    """211 pairs of a flag and a program, 159 hyper-parameters, 47 keys of decoding."""
    flags_of = [
        (table.command, name)
        for table, name, value, _ in entries()
        if table.toolkit == "tensor2tensor" and table.noun == "flag" and not value
    ]
    assert len(flags_of) == len(set(flags_of)) >= 211
    documented = {
        name
        for table, name, value, _ in entries()
        if table.toolkit == "tensor2tensor" and table.contexts == ("hparams",)
    }
    assert len(documented) >= 159


def test_names_that_both_have_are_taken():
    for name, ours in ALIASES.items():
        (row,) = {
            s for t, n, _, s in entries() if n == name and t.contexts == ("hparams",)
        }
        assert f"`{ours}`" in row
        if ours in HParams.descriptions():
            value = getattr(HParams(), ours)
            assert HParams().parse(f"{name}={value}") == HParams()


MESSAGES = [
    (
        "train",
        "--nogenerate_data",
        "",
        "a flag of t2t-trainer; here, run `t2t datagen` before",
    ),
    ("train", "-problems", "", ""),
    (
        "train",
        "--hp_hidden_size",
        "3",
        "--hparams: hidden_size is a hyper-parameter of",
    ),
    ("train", "--hp_num_hidden", "3", "here, use --hparams num_hidden=VALUE"),
    ("train", "--arch", "other", "use --hparams_set; `t2t list` prints the sets"),
    (
        "train",
        "--max_tokens",
        "1",
        "--max_tokens is a flag of fairseq-train; here, use",
    ),
    ("train", "--decode_to_file", "", "here, use `t2t translate --output FILE`"),
    ("train", "--lenpen", "1", "here, for `t2t translate`, use `--alpha X"),
    ("decode_hparams", "lenpen", "1", "--decode_hparams length_penalty=power"),
    ("hparams", "lr", "1", "is a flag of fairseq-train; here, use learning_rate=X"),
    ("train", "--transformer-ffn-activation", "swish", "here, use `--hparams model="),
    ("serve", "--normalize", "1", "use `--alpha X --decode_hparams length_penalty=p"),
    ("t2t", "trian", "", ""),
    ("train", "--probelm", "", ""),
    ("list", "--seed", "1", ""),  # a flag of other commands here
]


@pytest.mark.parametrize(("location", "name", "value", "expected"), MESSAGES)
def test_messages(location, name, value, expected):
    message = explain(location, name, value)
    assert expected in message if expected else not message


COMMAND_LINES = {
    "train data-bin --arch transformer_wmt_en_de --adam-betas (0.9,0.98) --lr=1 "
    "--arch transformer_wmt_en_de --clip-norm -1 --probelm x": [
        *("--arch is a ", "--adam-betas is a ", "--lr is a ", "--clip-norm is a "),
        "there is no flag --probelm; did you mean --problem?",
    ],
    "train --model_type Transformer --config absent.yml --auto_config --num_gpus 2": [
        *("--model_type is a ", "--auto_config is a ", "--num_gpus is a "),
        "cannot read absent.yml: ",
    ],
    "datagen --problem absent --t2t_usr_dir d --foo --tmp_dir=t --bar": [
        *("--t2t_usr_dir is a ", "problems: there is no 'absent'", "--tmp_dir is a "),
    ],
}


FOREIGN_LINES = {
    "fairseq-train data-bin --arch transformer_wmt_en_de --lr 5e-4 --clip-norm -1 "
    "--own x --seed 1": [
        "fairseq-train is a program of fairseq; here, use `t2t train`",
        "--arch is a flag of fairseq-train; here, for `t2t train`, use `--hparams_set ",
        "--lr is a flag of fairseq-train; here, for `t2t train`, use `--hparams learn",
        "--clip-norm is a flag of fairseq-train; here, for `t2t train`, use `--hparam",
        "--seed is a flag of fairseq-train; here, for `t2t train`, the same",
    ],
    # Two commands replace it, and other toolkits have flags of these names.
    "marian --vocab-sizes 8 --mini-batch 9 --seed 1": [
        "marian is a program of Marian; here, use `t2t datagen` and `t2t train`",
        "--mini-batch is a flag of marian; here, for `t2t train`, use `--hparams ",
        "--seed is a flag of marian; here, for `t2t train`, the same",
    ],
    "t2t_decoder --decode_to_file=x --hp_hidden_size 8": [
        "t2t_decoder is a program of tensor2tensor; here, use `t2t translate`, or ",
        "--decode_to_file is a flag of t2t-decoder; here, use `t2t translate --outp",
        "--hp_hidden_size is an override of t2t-trainer; here, use --hparams: hidd",
    ],
    "marian-embedder --type s2s": ["marian-embedder is a program of Marian; here, lea"],
}


@pytest.mark.parametrize(("line", "answers"), FOREIGN_LINES.items())
def test_all_flags_of_a_foreign_program_are_answered(line, answers, capsys):
    printed = errors(line.split(), capsys)
    assert len(printed) == len(answers), printed
    for answer, sentence in zip(answers, printed, strict=True):
        assert sentence.startswith(f"t2t: error: {answer}")


@pytest.mark.parametrize(("line", "answers"), COMMAND_LINES.items())
def test_all_flags_of_a_command_line_are_answered(line, answers, capsys):
    """Each once, in the order of the line; an absent file does not hide them."""
    words = line.split()
    for answer, printed in zip(answers, errors(words, capsys), strict=True):
        assert printed.startswith(f"t2t {words[0]}: error: {answer}")


def test_all_keys_of_a_flag_are_answered(capsys):
    line = error(
        ["translate", "run", "--decode_hparams", "beam=5,alpha=1,nbest=2"], capsys
    )
    assert (
        "beam is a flag of fairseq-generate; here, use --beam_size; there is no o"
        in line
    )
    assert line.endswith("'nbest'; did you mean 'n_best'?")
    sentence = refused("", HParams().parse, "lr=1,dropout=0.1,update-freq=2")
    assert "hparams: lr is a flag of " in sentence and "; update-freq is a " in sentence


def test_a_launched_command_keeps_its_flags(capsys):
    line = error(["launch", "--masters=a", "--processes", "2"], capsys)
    assert "--masters is a flag of t2t-make-tf-configs" in line
    assert program.main(["launch", "--processes", "2", "list", "--masters", "a"]) == 2
    assert "only `train` runs in several processes" in capsys.readouterr().err


REMARKS = [
    ("transformer_base", "learning_rate", "transformer_base ignores learning_rate"),
    (
        "transformer_big",
        "learning_rate",
        "are the factor of the schedule, 2 in this set",
    ),
    ("transformer_base_v1", "learning_rate", "multiplies learning_rate by 10; "),
    ("transformer_base_v2", "learning_rate_constant", "its schedule is 'legacy'"),
    ("transformer_tiny", "dropout", "Transformer ignores dropout; here, dropout is"),
    ("transformer_base", "weight_decay", "adds squared weights to the loss"),
    ("transformer_base", "hidden_size", None),
    ("transformer_base", "learning_rate_constant", None),
    ("base", "learning_rate", None),
    ("ExtendedHParams", "dropout", None),
]


@pytest.mark.parametrize(("hparams_set", "name", "expected"), REMARKS)
def test_changes_that_mean_something_else_in_tensor2tensor(hparams_set, name, expected):
    messages = remarks(hparams_set, [name, "num_heads", name])
    assert len(messages) == (expected is not None)
    assert all(expected in sentence for sentence in messages)


def test_describe_explains_the_change_of_a_set(capsys):
    argv = ["describe", "--hparams_set", "transformer_base", "--hparams", "dropout=0.2"]
    assert program.main(argv) == 0
    assert "Transformer ignores dropout" in capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_the_tables(page):
    """`python docs/_site/counterparts.py` writes them."""
    text = page.read_text(encoding="utf-8")
    assert generated(text) == text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_every_table_of_a_toolkit(page):
    text = page.read_text(encoding="utf-8")
    (toolkit,) = {table.toolkit for table in TABLES if block_name(table) in text}
    for table in TABLES:
        if table.toolkit == toolkit:
            assert f"<!-- generated: {block_name(table)} -->" in text


def test_a_page_lists_each_other_name_once():
    rows = {"use `--output_dir`": "-m model", "use `--hparams_set big`": "arch=big"}
    own_tables = []
    for command, names in (
        ("train", rows),
        ("train", {"leave it out: there are none": "tpu", "the same": "out"}),
        ("train", {"use `--hparams d_ff=N`": "d-ff", "use `--seed`": "seed -s"}),
        ("train", {"use `t2t datagen --length N`": "length"}),
        ("train", {"the same as `d_ff`": "width"}),
        ("score", rows),
        ("decode", {**rows, "use `--output_dir`": "-m model m"}),
    ):
        pairs = [(sentence, text.split()) for sentence, text in names.items()]
        table = Table(
            toolkit="T", command=command, noun="flag", contexts=(), rows=pairs
        )
        own_tables.append(table)
    assert markdown(own_tables).splitlines() == [
        "| train | here |",
        "|---|---|",
        "| `-m`, `--model` | `--output_dir` |",
        "| `--arch big` | `--hparams_set big` |",
        "| `--length` | `t2t datagen --length N` |",
        "",
        "| decode | here |",
        "|---|---|",
        "| `--m` | `--output_dir` |",
    ]
