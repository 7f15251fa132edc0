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

from t2t_keras.blank_text import is_blank
from t2t_keras.data.text_files import read_text
from t2t_keras.errors import UserError, did_you_mean, require_unicode, short_repr
from t2t_keras.options import check_options, option, option_names
from t2t_keras.problem import Problem
from t2t_keras.text.protected import KINDS, UNKNOWN

if TYPE_CHECKING:
    from t2t_keras.decoding.constraint import Constraint


LARGEST_BEAM = 1000

# See `length_penalty`.
LengthPenalty: TypeAlias = Literal["gnmt", "power", "average", "none"]


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
            `is_tensor`: the option is an input of the compiled decoding function, so
            that another value needs no new trace. `is_served`: it is also an input of
            a SavedModel's signature `translate`. `changes_metrics`: the metrics of a
            checkpoint depend on it. `of_sampling`: it has an effect only with
            `sampling`.
        ge: the smallest possible value.
        le: the largest possible value.
        parse: reads the option's text, for options that are neither numbers nor names.
    """
    metadata = dict.fromkeys(uses, True)
    return option(default, help, ge=ge, le=le, parse=parse, **metadata)


# Source terms with their target terms.
Glossary: TypeAlias = tuple[tuple[str, str], ...]


def parse_glossary(text: str) -> Glossary:
    """Returns the glossary that a text gives: `[source=target,...]`, or a file.

    Raises:
        UserError: it is neither terms nor a file of terms.
    """
    if text.startswith("["):
        items = dict(enumerate(_items(text), 1))
        rows = {f"term {n}": item.split("=") for n, item in items.items()}
        origin, form = "glossary", "SOURCE=TARGET"
    else:
        lines = _lines("glossary", text)
        rows = {f"line {n}": line.split("\t") for n, line in lines.items()}
        origin, form = text, "`source TAB target`"
    for place, row in rows.items():
        if len(row) != 2:
            raise UserError(f"{origin}: {place} is not {form}")
    return tuple((source.strip(), target.strip()) for source, target in rows.values())


def parse_forbidden(text: str) -> tuple[str, ...]:
    """Returns the phrases that a text gives: `[phrase,...]`, or a file."""
    if text.startswith("["):
        return _items(text)
    return tuple(_lines("forbidden", text).values())


def _items(text: str) -> tuple[str, ...]:
    """Returns the items of a list `[a,b]`; a single item needs no `[]`."""
    return tuple(map(str.strip, text.removeprefix("[").removesuffix("]").split(",")))


def _lines(name: str, path: str) -> dict[int, str]:
    """Returns the lines of a file that are not blank, by their numbers.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        # `read_lines` would refuse a glossary, which is a table.
        lines = read_text(path).split("\n")
    except UserError as error:
        raise UserError(f"{name}: {error}; a list is [...]") from None
    return {n: line for n, line in enumerate(lines, 1) if not is_blank(line)}


def _phrases(name: str, phrases: Any) -> tuple[str, ...]:
    """Returns phrases as a tuple.

    Raises:
        UserError: they are something else.
    """
    is_list = isinstance(phrases, (list, tuple))
    if not is_list or not all(isinstance(phrase, str) for phrase in phrases):
        raise UserError(f"{name}: give a list of strings, not {short_repr(phrases)}")
    return tuple(phrases)


def _pairs(name: str, pairs: Any) -> Glossary:
    """Returns pairs of terms, which may be given as a dictionary, as tuples.

    Raises:
        UserError: they are something else.
    """
    rows = list(pairs.items()) if isinstance(pairs, Mapping) else pairs
    if not isinstance(rows, (list, tuple)) or not all(
        isinstance(row, (list, tuple))
        and len(row) == 2
        and all(isinstance(term, str) for term in row)
        for row in rows
    ):
        raise UserError(
            f"{name}: give pairs of a source and a target term, not {short_repr(pairs)}"
        )
    return tuple((source, target) for source, target in rows)


PHRASES: dict[str, Any] = {"glossary": (("", ""),), "forbidden": ("",)}  # empty ones


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """The decoding options. Impossible values raise `UserError` at construction."""

    beam_size: int = _option(
        4,
        "hypotheses that the search keeps for each input (K); 1 is greedy search",
        *("from_problem", "is_tensor", "is_served", "changes_metrics"),
        ge=1,
        le=LARGEST_BEAM,
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
        "changes_metrics",
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
        le=LARGEST_BEAM,
    )
    min_length: int = _option(
        0,
        "the least number of tokens in an output, EOS not counted",
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
        parse=_items,
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
    constraint: "str | Constraint" = _option(  # noqa: RUF009  it makes a field
        "none",
        "restricts the outputs: the name of the problem's constraint, or none",
        *("from_problem", "changes_metrics"),
    )
    raw: bool = _option(
        False,
        "inputs are raw text, which the problem splits into words; otherwise they look "
        "as the training data do",
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
        # The compiled functions are found by the values of options: these are hashable.
        object.__setattr__(self, "glossary", _pairs("glossary", self.glossary))
        for name in ("forbidden", "protect"):
            object.__setattr__(self, name, _phrases(name, getattr(self, name)))
        kinds = (*KINDS, UNKNOWN)
        for kind in self.protect:
            if kind not in kinds:
                raise UserError(
                    f"protect: there is no '{kind}'; the choice is {', '.join(kinds)}"
                )
        check_options(DecodingOptions, vars(self))
        methods = ("init", "mask", "advance")
        is_constraint = all(callable(getattr(self.constraint, x, 0)) for x in methods)
        if not (isinstance(self.constraint, str) or is_constraint):
            raise UserError(
                "constraint must be a name, or an object with the methods of "
                f"Constraint, not {short_repr(self.constraint)}"
            )
        if not self.sampling and self.n_best > self.beam_size:
            raise UserError(
                f"n_best {self.n_best} is more than beam_size {self.beam_size}; "
                "raise beam_size"
            )
        for name in ("coverage_penalty", "glossary", "protect"):
            if self.sampling and getattr(self, name):
                raise UserError(f"{name} has no effect on samples; leave it out")
        terms = [term for pair in self.glossary for term in pair]
        for name, phrases in ("glossary", terms), ("forbidden", self.forbidden):
            for phrase in phrases:
                require_unicode(name, phrase)
            if any(map(is_blank, phrases)):
                raise UserError(f"{name}: a phrase is empty; leave it out")

    @property
    def needs_texts(self) -> bool:
        """Whether outputs must contain phrases that depend on the texts of inputs."""
        return bool(self.glossary or self.protect)

    @classmethod
    def of_recorded(cls, recorded: Mapping[str, Any], path: Path) -> Self:
        """Returns the options that `recorded` has returned.

        Args:
            recorded: the options.
            path: the file that they are from, for the messages.

        Raises:
            UserError: an option is unknown or impossible.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        for name in recorded:
            if name not in known:
                raise UserError(
                    f"{path}: there is no decoding option '{name}'"
                    f"{did_you_mean(name, known)}; export the model again"
                )
        constraint = recorded.get("constraint", "none")
        if not isinstance(constraint, str):
            raise UserError(
                f"{path}: constraint must be a text, not {constraint!r:.80}; export "
                "the model again"
            )
        try:
            return cls(**recorded)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def recorded(self) -> dict[str, Any]:
        """Returns the options that are not of sampling, as JSON has them."""
        left_out = ("sampling", *self.names("of_sampling"))
        options = {k: v for k, v in vars(self).items() if k not in left_out}
        if not isinstance(self.constraint, str):
            options["constraint"] = type(self.constraint).__name__
        return json.loads(json.dumps(options))  # tuples become lists

    @staticmethod
    def inputs(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Returns options as inputs of a graph for all texts; () is an empty phrase.

        Args:
            options: the decoding options, by name.
            names: those that the graph takes.
        """
        return {
            name: [options[name] or PHRASES[name]] if name in PHRASES else options[name]
            for name in names
        }

    @classmethod
    def of(cls, problem: Problem) -> Self:
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
        kinds: dict[str, Any] = {f.name: f.type for f in dataclasses.fields(cls)}
        dtypes = {int: "int32", float: "float32"}  # of phrases: string
        return {name: dtypes.get(kinds[name], "string") for name in cls.names(use)}


def constraint_name(problem: Problem) -> str:
    """Returns the name of a problem's constraint: a value of the option."""
    return problem.constraint.__name__ if problem.constraint else "none"
