"""The decoding options, the same for Python, the command line and exports.

Each option is a field of `DecodingOptions`. Its metadata determine whether it is an
input of the compiled decoding function and of a SavedModel, and whether the metrics of
a checkpoint depend on it.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from t2t_keras.errors import UserError, did_you_mean, require_unicode, short_repr
from t2t_keras.files.text_files import read_lines, read_text
from t2t_keras.options import check_options, option, option_names
from t2t_keras.problem import LengthPenalty, Problem
from t2t_keras.text.sentences import is_blank

if TYPE_CHECKING:
    from t2t_keras.decoding.constraint import Constraint


# What an address does not end in, since it belongs to the sentence around it.
_LAST = r"[^\s<>\"'.,;:!?()\[\]{}]"

KINDS = {
    "url": rf"(?:(?:https?|ftp)://|www\.)[^\s<>\"]*{_LAST}",
    "email": r"[\w.%+-]+@[\w-]+(?:\.[\w-]+)+",
    "markup": r"</?[A-Za-z][^<>]*>|&(?:[A-Za-z]+|#\w+);|\{\{[^{}]*\}\}|\{\w*\}|%[sd]",
    "number": r"\p{Nd}+(?:[.,:/-]\p{Nd}+)*",
    "symbol": r"(?:\p{So}[\x{FE0F}\x{200D}\x{1F3FB}-\x{1F3FF}]*)+",
}
UNKNOWN = "unknown"  # characters that the source's vocabulary does not have


# Source terms with their target terms.
Glossary: TypeAlias = tuple[tuple[str, str], ...]


def parse_glossary(text: str) -> Glossary:
    """Returns the glossary in a text: `[source=target,...]`, or the path of a file.

    Raises:
        UserError: the text or a line of the file is not a pair of terms, or the file
            cannot be read.
    """
    if text.startswith("["):
        location = "glossary: term"
        syntax = "SOURCE=TARGET"
        rows = [item.split("=") for item in parse_list(text)]
        items = dict(enumerate(rows, start=1))
    else:
        location = f"{text}: line"
        syntax = "`source TAB target`"
        # `read_lines` would refuse a glossary, which is a table.
        lines = _lines_of_file(
            "glossary", text, lambda path: read_text(path).split("\n")
        )
        items = {line: row.split("\t") for line, row in lines.items()}
    pairs = []
    for index, item in items.items():
        if len(item) != 2:
            raise UserError(f"{location} {index} is not {syntax}")
        pairs.append((item[0].strip(), item[1].strip()))
    return tuple(pairs)


def parse_forbidden(text: str) -> tuple[str, ...]:
    """Returns the phrases in a text: `[phrase,...]`, or the path of a file."""
    if text.startswith("["):
        return parse_list(text)
    return tuple(_lines_of_file("forbidden", text, read_lines).values())


def parse_list(text: str) -> tuple[str, ...]:
    """Returns the items of a list `[a,b]`; a single item needs no `[]`.

    Raises:
        UserError: it has either `[` or `]` only.
    """
    if text.startswith("[") != text.endswith("]"):
        raise UserError(f"'{text}' is not a list; write [a,b]")
    return tuple(map(str.strip, text.removeprefix("[").removesuffix("]").split(",")))


def _lines_of_file(
    name: str, path: str, read: Callable[[str], Iterable[str]]
) -> dict[int, str]:
    """Returns the lines of a file that are not blank, by line number."""
    try:
        lines = list(read(path))
    except UserError as error:
        raise UserError(f"{name}: {error}; a list is [...]") from None
    return {i: line for i, line in enumerate(lines, 1) if not is_blank(line)}


def phrase_tuple(name: str, phrases: object) -> tuple[str, ...]:
    """Returns a list or tuple of phrases as a tuple.

    Raises:
        UserError: it is not a list of strings.
    """
    if not isinstance(phrases, (list, tuple)) or not all(
        isinstance(phrase, str) for phrase in phrases
    ):
        raise UserError(f"{name}: give a list of strings, not {short_repr(phrases)}")
    return tuple(phrases)


def glossary_tuple(pairs: object) -> Glossary:
    """Returns a dictionary of terms, or a list of pairs, as tuples.

    Raises:
        UserError: it is neither.
    """
    rows = list(pairs.items()) if isinstance(pairs, Mapping) else pairs
    if not isinstance(rows, (list, tuple)) or not all(map(_is_pair, rows)):
        raise UserError(
            "glossary: give pairs of a source and a target term, not "
            f"{short_repr(pairs)}"
        )
    return tuple((source, target) for source, target in rows)


def _is_pair(row: object) -> bool:
    if not isinstance(row, (list, tuple)) or len(row) != 2:
        return False
    return all(isinstance(term, str) for term in row)


def require_phrases(name: str, phrases: tuple[str, ...]) -> None:
    """Raises `UserError` if a phrase is blank or cannot be written as UTF-8."""
    for phrase in phrases:
        require_unicode(name, phrase)
    if any(map(is_blank, phrases)):
        raise UserError(f"{name}: a phrase is empty; leave it out")


MAX_BEAM_SIZE = 1000


Use = Literal[
    "from_problem", "is_tensor", "is_served", "changes_metrics", "of_sampling"
]


def _option(
    default: Any,
    help: str,
    *uses: Use,
    ge: float | None = None,
    le: float | None = None,
    parse: Callable[[str], Any] | None = None,
) -> Any:
    """Returns the dataclass field for an option.

    Args:
        default: the default value.
        help: the help text for `--help`.
        *uses: `from_problem`: the problem has a field of this name with the default.
            `is_tensor`: the option is an input of the traced search, so other values
            need no new trace. `is_served`: it is also an input of a SavedModel's
            signature `translate`. `changes_metrics`: the metrics of a checkpoint depend
            on it. `of_sampling`: it has no effect without `sampling`.
        ge: the smallest possible value.
        le: the largest possible value.
        parse: reads the option's text, for options that are neither numbers nor names.
    """
    metadata = dict.fromkeys(uses, True)
    return option(default, help, ge=ge, le=le, parse=parse, **metadata)


# The options that are phrases, with a phrase that is in no text: graphs need at least
# one.
EMPTY_PHRASES: dict[str, tuple[object, ...]] = {
    "glossary": (("", ""),),
    "forbidden": ("",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """The decoding options. Impossible values raise `UserError` at construction."""

    beam_size: int = _option(
        4,
        "hypotheses that the search keeps for each input (K); 1 is greedy search",
        *("from_problem", "is_tensor", "is_served", "changes_metrics"),
        ge=1,
        le=MAX_BEAM_SIZE,
    )
    alpha: float = _option(
        0.6,
        "exponent of the length penalties gnmt and power",
        *("from_problem", "is_tensor", "is_served", "changes_metrics"),
        ge=-10,
        le=10,
    )
    length_penalty: LengthPenalty = _option(  # noqa: RUF009  it makes a field
        "gnmt",
        "what log-probabilities are divided by: gnmt, ((5 + length) / 6) ** alpha; "
        "power, length ** alpha; average, the length; none, 1",
        *("from_problem", "changes_metrics"),
    )
    coverage_penalty: float = _option(
        0.0,
        "factor of GNMT's coverage penalty, which lowers the scores of outputs that "
        "leave parts of the input without attention; Wu et al. (2016) use 0.2",
        *("is_tensor", "changes_metrics"),
        ge=0,
        le=100,
    )
    extra_length: int = _option(
        50,
        "how many more tokens than its input an output may have",
        *("from_problem", "is_tensor", "changes_metrics"),
        ge=0,
        le=100_000,
    )
    n_best: int = _option(
        1,
        "number of outputs to return for each input",
        *("is_tensor", "is_served"),
        ge=1,
        le=MAX_BEAM_SIZE,
    )
    min_length: int = _option(
        0,
        "minimum number of tokens in an output, EOS not counted",
        *("is_tensor", "is_served", "changes_metrics"),
        ge=0,
        le=100_000,
    )
    max_source_length: int = _option(
        1024,
        "longer inputs are split into parts of at most this number of tokens, at "
        "sentence ends where possible, and the outputs are joined; time and memory "
        "grow with the square of the length",
        "changes_metrics",
        ge=1,
    )
    split_sentences: bool = _option(
        False,
        "translate inputs of several sentences sentence by sentence and join the "
        "outputs; by default where nearly all training sources were single sentences",
        *("from_problem", "changes_metrics"),
    )
    truncate: bool = _option(
        False,
        "truncate inputs above max_source_length, with a warning, instead of splitting "
        "them; parsers, whose outputs cannot be joined, always do",
        "changes_metrics",
    )
    no_repeat_ngram: int = _option(
        0,
        "no sequence of this number of tokens occurs in an output more than once, or "
        "more often than the most frequent one does in the input; 0: no such rule",
        "changes_metrics",
        ge=0,
        le=100,
    )
    glossary: Glossary = _option(  # noqa: RUF009  it makes a field
        (),
        "pairs of terms: where an input contains the first, as whole words, its output "
        "contains the second",
        "is_served",
        "changes_metrics",
        parse=parse_glossary,
    )
    protect: tuple[str, ...] = _option(
        (),
        "parts of inputs that their outputs keep: some of url, email, markup, "
        "number, symbol (emoji and the like), unknown (characters that the source's "
        "vocabulary lacks)",
        "changes_metrics",
        parse=parse_list,
    )
    forbidden: tuple[str, ...] = _option(
        (),
        "phrases that no output contains as whole words",
        "is_served",
        "changes_metrics",
        parse=parse_forbidden,
    )
    batch_tokens: int = _option(
        2048,
        "source tokens in a batch, padding included; the memory in use is proportional "
        "to it times the beam size",
        ge=1,
    )
    jit_compile: Literal["auto", "true", "false"] = _option(
        "auto",
        "whether XLA compiles the search, once for each size of batch: true, false, or "
        "auto, where there is a GPU; searches with a constraint, sampling, "
        "no_repeat_ngram, a glossary, protect or forbidden are not compiled",
    )
    constraint: "str | Constraint" = _option(  # noqa: RUF009  it makes a field
        "none",
        "restricts the outputs: the name of the problem's constraint, or none",
        *("from_problem", "changes_metrics"),
    )
    raw: bool = _option(
        False,
        "inputs are raw text, which the problem splits into words; otherwise they look "
        "like the training data",
    )
    sampling: bool = _option(
        False, "draw outputs at random instead of searching for the best"
    )
    temperature: float = _option(
        1.0,
        "divides the logits; beam_size=1 without sampling is the limit at 0",
        *("is_tensor", "of_sampling"),
        ge=0.001,
        le=1000,
    )
    top_k: int = _option(
        0,
        "draw only among the k most likely tokens; 0: among all",
        *("is_tensor", "of_sampling"),
        ge=0,
    )
    top_p: float = _option(
        1.0,
        "draw only among the fewest most likely tokens of this total probability",
        *("is_tensor", "of_sampling"),
        ge=0.0001,
        le=1,
    )
    seed: int = _option(
        0,
        "seed of the samples, which also depend on an input's place in the list",
        "of_sampling",
        ge=0,
        le=2**31 - 1,
    )

    def __post_init__(self) -> None:
        for name, value in self.checked(vars(self)).items():
            object.__setattr__(self, name, value)
        _require_protected(self.protect)
        _require_constraint(self.constraint)
        if not self.sampling and self.n_best > self.beam_size:
            raise UserError(
                f"n_best {self.n_best} is more than beam_size {self.beam_size}; "
                "raise beam_size"
            )
        for name in ("coverage_penalty", "glossary", "protect"):
            if self.sampling and getattr(self, name):
                raise UserError(f"{name} has no effect on samples; leave it out")
        terms = tuple(term for pair in self.glossary for term in pair)
        require_phrases("glossary", terms)
        require_phrases("forbidden", self.forbidden)

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns some options, with phrases as tuples.

        They are tuples because traced functions are found by the values of options.

        Raises:
            UserError: the type of a value is wrong, or it is beyond a limit.
        """
        options = dict(values)
        if "glossary" in options:
            options["glossary"] = glossary_tuple(options["glossary"])
        for name in ("forbidden", "protect"):
            if name in options:
                options[name] = phrase_tuple(name, options[name])
        check_options(cls, options)
        return options

    @property
    def needs_texts(self) -> bool:
        """Whether outputs must contain phrases that depend on the texts of inputs."""
        return bool(self.glossary or self.protect)

    @classmethod
    def of_recorded(cls, recorded: Mapping[str, object], path: Path) -> Self:
        """Returns the options that `recorded` has returned.

        Args:
            recorded: the options.
            path: the file that contains them, for messages.

        Raises:
            UserError: an option is unknown or impossible.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        for name in recorded:
            if name not in names:
                raise UserError(
                    f"{path}: there is no decoding option '{name}'"
                    f"{did_you_mean(name, names)}; export the model again"
                )
        values: dict[str, Any] = dict(recorded)
        try:
            return cls(**values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def recorded(self) -> dict[str, object]:
        """Returns the options, except for sampling, in the types of JSON."""
        of_sampling = ("sampling", *self.names("of_sampling"))
        options = {k: v for k, v in vars(self).items() if k not in of_sampling}
        if not isinstance(self.constraint, str):
            options["constraint"] = type(self.constraint).__name__
        return json.loads(json.dumps(options))  # tuples become lists

    @staticmethod
    def inputs(
        options: Mapping[str, object], names: Iterable[str]
    ) -> dict[str, object]:
        """Returns options as inputs of a graph, the same for all texts.

        Args:
            options: the decoding options, by name.
            names: those that the graph takes.
        """
        inputs: dict[str, object] = {}
        for name in names:
            inputs[name] = options[name]
            if name in EMPTY_PHRASES:
                inputs[name] = [options[name] or EMPTY_PHRASES[name]]
        return inputs

    @classmethod
    def of_problem(cls, problem: Problem) -> Self:
        """Returns a problem's default options."""
        values = {name: getattr(problem, name) for name in cls.names("from_problem")}
        values["split_sentences"] = bool(problem.split_sentences)  # None: no data
        return cls(**values | {"constraint": constraint_name(problem)})

    @classmethod
    def names(cls, use: Use) -> list[str]:
        """Returns the names of the options whose metadata `use` is true."""
        return option_names(cls, use)

    @classmethod
    def dtypes(cls, use: Use) -> dict[str, str]:
        """Returns the names and dtypes of the options whose metadata `use` is true."""
        dtypes: dict[object, str] = {int: "int32", float: "float32"}
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        # Phrases are strings.
        return {name: dtypes.get(types[name], "string") for name in cls.names(use)}


def constraint_name(problem: Problem) -> str:
    """Returns the value of the option for a problem's own constraint."""
    return problem.constraint.__name__ if problem.constraint else "none"


def _require_protected(names: tuple[str, ...]) -> None:
    """Raises `UserError` if `protect` has another name than those of parts."""
    choices = (*KINDS, UNKNOWN)
    for name in names:
        if name not in choices:
            raise UserError(
                f"protect: there is no '{name}'; the choice is {', '.join(choices)}"
            )


def _require_constraint(constraint: object) -> None:
    """Raises `UserError` unless it is a name or has a constraint's methods."""
    if isinstance(constraint, str):
        return
    for method in ("init", "mask", "advance"):
        if not callable(getattr(constraint, method, None)):
            raise UserError(
                "constraint must be a name, or an object with the methods of "
                f"Constraint, not {short_repr(constraint)}"
            )
