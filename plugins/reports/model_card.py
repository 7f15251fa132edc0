"""The model card of a run and of an export: their records, in Markdown for people.

It begins with the YAML that Hugging Face's model cards have. All in it stands in the
records (`runs.run_records`, `serving.contents`); it says what they do not have.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

MODEL_CARD = "model_card.md"

_SIZES = ("num_layers", "d_model", "d_ff", "num_heads", "norm", "compute_dtype")
_SIZES_IF_SET = ("num_decoder_layers", "target_space")

# How to use a model in the directory of the card, in Python; {suffix} is that of the
# vocabulary.
_IN_PYTHON = {
    "run": 'import t2t_keras\n\ntranslator = t2t_keras.load(".")\n'
    'print(translator.translate(["..."]))',
    "ids": "import tensorflow as tf\n\n"
    'model = tf.saved_model.load(".")\n'
    'outputs = model.signatures["serving_default"](ids=tf.constant([[2, 3, 1]]))',
    "ctranslate2": "import ctranslate2\n\n"
    'model = ctranslate2.Translator(".")\n'
    'results = model.translate_batch([["a", "list", "of", "tokens"]])',
    "hf-marian": "from transformers import MarianMTModel, MarianTokenizer\n\n"
    'model = MarianMTModel.from_pretrained(".")\n'
    'tokenizer = MarianTokenizer.from_pretrained(".")\n'
    'outputs = model.generate(**tokenizer(["..."], return_tensors="pt"))\n'
    "print(tokenizer.batch_decode(outputs, skip_special_tokens=True))",
}
_IN_PYTHON["savedmodel"] = _IN_PYTHON["run"]
_LIBRARIES = {"ctranslate2": "ctranslate2", "hf-marian": "transformers"}

_PLAIN = re.compile(r"[\w./-]+")

_UNKNOWN = (
    "The records do not tell from which domains the texts are, whether they were "
    "lower-cased or otherwise changed before, and what biases they have.",
)


def model_card(run: Mapping[str, Any], export: Mapping[str, Any] | None = None) -> str:
    """Returns the card of a run or of an export, in Markdown.

    Args:
        run: the records of the run, see `runs.run_records.records`; may be empty for an
            export.
        export: the settings of the export, see `serving.contents.ExportSettings`, with
            "format" and "files"; None: it is the card of a run.
    """
    # Of an export, the run knows better whether the languages are known.
    facts = {**run, **(export or {}), **({} if not run else _only(run, "languages"))}
    kind = "run" if export is None else export["format"]
    if facts.get("ids_only"):
        kind = "ids"
    sections = {
        "Use": _use(kind),
        "Model": _model(facts),
        "Vocabulary": _vocabulary(facts),
        "Data": _data(facts),
        "Training": _training(facts),
        "Scores": _scores(facts),
        "Decoding": _decoding(facts),
        "Limits": _list(_limits(facts, kind)),
    }
    if export is not None:
        files = ((_Code(name), text) for name, text in export["files"].items())
        sections["Files"] = _table(("file", "content"), files)
    origin = "the run" if export is None else f"the export ({export['format']})"
    parts = [
        f"---\n{_front_matter(facts, kind)}---",
        f"# {_text(facts['problem'] or 'Model')}",
        f"Task: {_text(facts['summary'])}{_direction(facts)}",
        f"t2t_keras {_text(facts['version'])} has written this card from the records "
        f"of {origin}; it contains no other information.",
    ]
    parts += [f"## {title}\n\n{text}" for title, text in sections.items()]
    return "\n\n".join(parts) + "\n"


def _only(facts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: facts[name] for name in names if name in facts}


def _front_matter(facts: Mapping[str, Any], kind: str) -> str:
    """Returns the YAML by which model hubs find models."""
    import yaml

    languages = facts.get("languages")
    values = {
        "library_name": _LIBRARIES.get(kind, "t2t_keras"),
        "language": languages and list(dict.fromkeys(languages)),
        "pipeline_tag": "translation" if languages else "text2text-generation",
        "tags": ["t2t_keras", "transformer"],
        "metrics": facts.get("metrics"),
    }
    given = {name: value for name, value in values.items() if value}
    return yaml.safe_dump(given, allow_unicode=True, sort_keys=False)


def _direction(facts: Mapping[str, Any]) -> str:
    languages = facts.get("languages")
    if not languages:
        return "\n\nThe records do not name the languages."
    return f" ({_text(languages[0])} to {_text(languages[1])})"


def _use(kind: str) -> str:
    flag = {"run": "--output_dir", "savedmodel": "--export_dir"}.get(kind)
    command = "t2t translate {} . --input source.txt --output output.txt"
    parts = ["In the directory of this card:"]
    if flag:
        parts.append(f"```sh\n{command.format(flag)}\n```")
    return "\n\n".join([*parts, f"```python\n{_IN_PYTHON[kind]}\n```"])


def _model(facts: Mapping[str, Any]) -> str:
    rows: dict[str, Any] = {"architecture": "Transformer (Vaswani et al., 2017)"}
    if "parameters" in facts:
        rows["parameters"] = f"{facts['parameters']:,}"
    if "quantization" in facts:
        rows["weights"] = facts["quantization"] or "float32"
    rows |= _only(facts["hparams"], *_SIZES)
    rows |= {n: facts["hparams"][n] for n in _SIZES_IF_SET if facts["hparams"].get(n)}
    rows |= _only(facts, "hparams_set")
    if facts.get("verified"):
        identical = f"{facts['identical']} of {facts['verified']}"
        rows["outputs as in the run"] = identical
    parts = [named_table(rows)]
    changed = facts.get("changed")
    if changed:
        values = ((name, *pair) for name, pair in changed.items())
        head = ("hyper-parameter", facts["hparams_set"], "here")
        parts.append(_table(head, values))
    elif changed is not None:
        parts.append("All hyper-parameters are those of the set.")
    elif "hparams_set" in facts:
        parts.append(
            "The set is not registered, so the records do not tell what differs from "
            "it; `hparams.json` of the run has all values."
        )
    if signatures := facts.get("signatures"):
        inputs = "ids" if facts["ids_only"] else "text"
        names = ", ".join(f"`{name}`" for name in signatures)
        parts.append(f"It maps {inputs} to {inputs} with the signatures {names}.")
    if members := facts.get("ensemble"):
        parts.append(
            f"It is an ensemble with {', '.join(map(_text, members))}. Data, training "
            "and scores below are those of the first run alone."
        )
    return "\n\n".join(parts)


def _vocabulary(facts: Mapping[str, Any]) -> str:
    hashes = facts.get("vocab_sha256", {})
    rows = [
        (side, _Code(facts["vocabularies"][side]), f"{size:,}", hashes.get(side, ""))
        for side, size in facts["vocab_sizes"].items()
    ]
    return _table(("side", "file", "tokens", "SHA-256"), rows)


def _data(facts: Mapping[str, Any]) -> str:
    data = facts.get("data")
    if not data:
        return "There are no records of the data."
    parts = []
    rows = [
        (
            split,
            f"{count:,}",
            *(f"{data['tokens'][split][side]:,}" for side in ("source", "target")),
            data["sources"][split],
        )
        for split, count in data["examples"].items()
    ]
    head = ("split", "examples", "source tokens", "target tokens", "sources")
    parts.append(_table(head, rows))
    if corpora := data.get("corpora"):
        values = (
            (split, name, f"{c['pairs']:,}", f"{c['examples']:,}", _number(c["share"]))
            for split, by_name in corpora.items()
            for name, c in by_name.items()
        )
        head = ("split", "corpus", "pairs", "examples", "share")
        parts.append(_table(head, values))
    dropped = [
        (split, reason, f"{count:,}")
        for split, reasons in data["dropped"].items()
        for reason, count in reasons.items()
        if count
    ]
    if dropped:
        parts.append("Pairs that were dropped:")
        parts.append(_table(("split", "reason", "pairs"), dropped))
    elif any(data["dropped"].values()):
        parts.append("No pairs were dropped.")
    else:
        parts.append("The records do not tell whether pairs were dropped.")
    names = ("cleaning", "bpe_dropout", "copies", "tags", "seed")
    settings = {k: v for k, v in _only(data, *names).items() if v or k == "seed"}
    if data["max_length"]:  # 0: other programs' data, whose limit is not known
        settings["max_length"] = data["max_length"]
    parts.append(named_table(settings))
    if data.get("license"):
        license_ = (
            f"The licence of the data, as it was given: {_text(data['license'])}."
        )
    else:
        license_ = "No licence of the data was given."
    parts.append(f"{license_} The records name no licence of the model itself.")
    return "\n\n".join(parts)


def _training(facts: Mapping[str, Any]) -> str:
    names = ("checkpoint", "step", "seed", "init_from", "data_dir", "data_sha256")
    rows = _only(facts, *names)
    if facts.get("step"):
        rows["step"] = f"{facts['step']:,}"
    parts = [named_table(rows)] if rows else ["There are no records of it."]
    if origin := facts.get("import"):
        parts.append(
            f"The model was imported; {_text(origin['program'])} has trained it. Taken:"
        )
        took = origin["took"].items()
        parts.append(named_table({k: _joined(v) for k, v in took}))
        if origin["left_out"]:
            parts += ["Left out:", _list(map(_text, origin["left_out"]))]
    for average in facts.get("averages", ()):
        steps = ", ".join(f"{step:,}" for step in average["steps"])
        parts.append(
            f"{_Code(average['checkpoint'])} is the average of the checkpoints at the "
            f"steps {steps}."
        )
    if trainings := facts.get("trainings"):
        values = (
            (
                f"{t['first_step']:,} to {t['last_step']:,}",
                t["devices"],
                _number(t["minutes"]),
                t["stopped_by"],
                f"{t['date']}, t2t_keras {t['version']}",
            )
            for t in trainings
        )
        head = ("steps", "devices", "minutes", "ended by", "ended on")
        parts.append(_table(head, values))
    elif rows and not origin:
        parts.append("There are no records of hardware and time.")
    return "\n\n".join(parts)


def _scores(facts: Mapping[str, Any]) -> str:
    parts = []
    if dev := facts.get("dev"):
        names = list(dict.fromkeys(name for row in dev for name in row["metrics"]))
        rows = (
            (
                _Code(row["checkpoint"]),
                *(_number(row["metrics"].get(name, "")) for name in names),
            )
            for row in dev
        )
        parts += [
            "During training, on dev, with the decoding options below"
            f"{_dev_sentences(facts)}:",
            _table(("checkpoint", *names), rows),
        ]
        if settings := facts.get("metrics_settings"):
            parts.append(f"Settings of the metrics: {_options(settings)}.")
    for curve in facts.get("curves", ()):
        best = {k: v for k, v in curve["best"].items() if k != "step"}
        parts += [
            f"Best of {curve['checkpoints']:,} checkpoints on {curve['split']}, "
            f"at step {curve['best']['step']:,} ({_options(curve['settings'])}):",
            _table(("metric", "score"), ((k, _number(v)) for k, v in best.items())),
        ]
    for one in facts.get("evaluations", ()):
        parts += [
            f"{_Code(one['checkpoint'])} (step {one['step']:,}) on "
            f"{_text(one['split'])}, {one['sentences']:,} sentences decoded, "
            f"{_text(one['date'])}, t2t_keras "
            f"{_text(one['version'])}:",
            _table(("metric", "score", "signature"), _score_rows(one["metrics"])),
            f"Decoding: {_options(one['decoding'])}.",
            *(
                [f"Settings of the metrics: {_options(s)}."]
                if (s := one["settings"])
                else []
            ),
        ]
    return "\n\n".join(parts) or "There are no records of scores."


def _dev_sentences(facts: Mapping[str, Any]) -> str:
    counts = {t["eval_sentences"] for t in facts.get("trainings", ())}
    if len(counts) == 1:
        (count,) = counts
        return f", at most {count:,} sentences" if count else ""
    return "; the records do not tell of how many sentences"


def _score_rows(
    metrics: Mapping[str, Any], prefix: str = ""
) -> Iterable[tuple[str, str, str]]:
    """Yields name, score and signature of each metric of a report."""
    signatures = metrics.get("signatures", {})
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            if name != "signatures":
                yield from _score_rows(value, f"{prefix}{name} ")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", _number(value), signatures.get(name, "")


def _decoding(facts: Mapping[str, Any]) -> str:
    per_request = facts.get("per_request", ())
    rows = {
        name: f"{value}{' (per request)' if name in per_request else ''}"
        for name, value in facts["decoding"].items()
    }
    return named_table(rows)


def _limits(facts: Mapping[str, Any], kind: str) -> Iterable[str]:
    """Yields what the records tell of what the model cannot do."""
    decoding = facts["decoding"]
    if kind == "ids":
        yield "Inputs are ids."
    elif kind == "ctranslate2":
        yield "Inputs are tokens."
    elif decoding.get("raw"):
        yield "Inputs are raw text."
    else:
        yield "Inputs are text in the form of the training data's."
    longest = (facts.get("data") or {}).get("max_length")
    if longest:
        yield (
            f"Training pairs had at most {longest:,} tokens on each side: the model "
            "has seen no longer ones."
        )
    yield (
        f"An input has at most {decoding['max_source_length']:,} tokens at a time, and "
        f"an output at most {decoding['extra_length']:,} more than its input."
    )
    yield (
        "A score is a log-probability over a length penalty: it is comparable between "
        "outputs for one input, and it is no measure of correctness."
    )
    yield "Outputs may be wrong, above all for inputs unlike the training data."
    if facts.get("quantization"):
        yield (
            f"The weights were rounded to {facts['quantization']}, so that some "
            "outputs differ from those of the run."
        )
    yield from _UNKNOWN


def _number(value: Any) -> str:
    """Formats a score with at most four decimals, and others as they are."""
    return str(round(value, 4)) if isinstance(value, float) else str(value)


def _joined(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{_text(k)} {_text(v)}" for k, v in options.items())


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def named_table(rows: Mapping[str, Any]) -> str:
    """Returns a table of names and values."""
    return _table(("", ""), rows.items())


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table; cells that are not `_Code` are texts of users."""
    cells = [[_cell(value) for value in row] for row in (head, *rows)]
    lines = [cells[0], ["---"] * len(head), *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    return value if isinstance(value, _Code) else _text(value)


class _Code(str):
    """The name of a file or a checkpoint, in Markdown."""

    def __new__(cls, name: str) -> Self:
        return super().__new__(
            cls, f"`{name}`" if _PLAIN.fullmatch(name) else _text(name)
        )


def _text(value: Any) -> str:
    """Returns a text of a user so that Markdown shows it as it is, in one line."""
    line = "".join(c if c.isprintable() else " " for c in str(value))
    escaped = re.sub(r"([\\`*\[\]<>|~&$])", r"\\\1", line)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", escaped).strip()
