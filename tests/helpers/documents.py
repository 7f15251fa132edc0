"""The Markdown documents as data: their blocks of code, their commands, their anchors.

A block of code that is not run has a comment on the line before it:
`<!-- not run: reason -->`. Commands that a page needs before, and that its readers need
not see, are in a comment that begins with `<!-- setup:`.
"""

import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The pages whose blocks of code run.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *PAGES[1:]]

FENCED = re.compile(
    r"^ *<!-- setup:\n(?P<setup>.*?)^ *-->$|"
    r"^(?: *<!-- not run: (?P<reason>[^\n]*) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
# The languages of blocks that run or are written to a file, and of all others.
CODE = ("sh", "python", "toml", "yaml", "json")
FOR_READERS = ("text", "console", "bibtex", "math")
OPERATORS = set("();<>|&")  # of a shell
# A first line that names the file which the block is written to.
FILE = re.compile(r"(?:#|//) ([\w./-]+\.(?:py|toml|yaml|json))\n")


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        location: page and line, for messages.
        language: the word after the fence.
        text: its lines.
        reason: why it is not run; None: it is run.
    """

    location: str
    language: str
    text: str
    reason: str | None

    @property
    def is_run(self) -> bool:
        return self.reason is None and self.language in CODE

    @property
    def file(self) -> str | None:
        """The file that the block is written to, if its first line names one."""
        is_file = self.language in CODE and self.language != "sh"
        named = FILE.match(self.text) if is_file else None
        return named[1] if named else None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """Yields the blocks of code of a page."""
    document = page.read_text(encoding="utf-8")
    for match in FENCED.finditer(document):
        line = document.count("\n", 0, match.start()) + 1
        location = f"{name_of(page)}:{line}"
        if match["setup"]:
            yield Block(location, "sh", match["setup"], None)
            continue
        text = re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        yield Block(location, match["language"], text, match["reason"])


def prose(page: Path) -> str:
    """Returns a document without its blocks of code."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def commands(text: str) -> Iterator[str]:
    """Yields the commands of a block of `sh`, those of several lines as one."""
    command = ""
    for line in text.replace("\\\n", " ").splitlines():
        command = f"{command}\n{line}" if command else line
        try:
            words = shlex.split(command, comments=True)
        except ValueError:  # a quotation goes on in the next line
            continue
        if words:
            yield command.strip()
        command = ""
    assert not command, f"this does not end: {command}"


def words(command: str) -> list[str]:
    """Returns the words of a command, with operators such as `|` by themselves."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def t2t_calls(text: str) -> Iterator[list[str]]:
    """Yields the arguments of each `t2t` in a block of `sh`."""
    for command in commands(text):
        call: list[str] | None = None
        for word in words(command):
            if "\n" in word and "t2t " in word:  # bash -c '...'
                yield from t2t_calls(word)
            if set(word) <= OPERATORS:
                if call is not None:
                    yield call
                call = None
            elif call is not None:
                call.append(word)
            elif word == "t2t":
                call = []
        if call is not None:
            yield call


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a document's headings, as GitHub makes them."""
    counts: dict[str, int] = {}
    for title in re.findall(r"^#+ +(.*?) *#*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        times = counts[slug] = counts.get(slug, -1) + 1
        if times:
            counts[f"{slug}-{times}"] = 0
    return set(counts)
