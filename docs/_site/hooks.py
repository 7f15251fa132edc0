"""What mkdocs does not do by itself for documents that a git hosting page shows, too.

- CHANGELOG.md and CONTRIBUTING.md become pages of the site.
- Links to files outside of docs/ become links into the repository, whose address is in
  pyproject.toml, and each page links to it; without an address there are no such links.
- Blocks of `math` become MathML, which browsers show without a script.
"""

import posixpath
import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

# Documents of the repository's root, and their pages.
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_OUTSIDE = "outside:"  # begins the address of a file that the site does not have
_LINK_OUTSIDE = re.compile(rf"\[((?:[^\[\]]|\[[^\]]*\])*)\]\({_OUTSIDE}[^)]*\)")
_DOCUMENT_OF = {page: document for document, page in ROOT_PAGES.items()}
# A formula; other code, which stays as it is; the path of a link, without its #anchor.
_PARTS = re.compile(
    r"^```math\n(?P<math>.*?)^```$|^ *```.*?^ *```$|"
    r"(?<=\]\()(?P<path>[^)\s#:]+)(?=[)#])",
    re.MULTILINE | re.DOTALL,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Gives the pages a link to the repository, if it has an address."""
    root = Path(config.config_file_path).parent
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    if address := project.get("urls", {}).get("Repository"):
        config.repo_url = address
        config.repo_name = urlsplit(address).path.strip("/")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the documents of the repository's root."""
    root = Path(config.config_file_path).parent
    for document, page in ROOT_PAGES.items():
        text = (root / document).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Rewrites links and formulas."""
    here = page.file.src_uri
    if here.startswith("api/") or here in _DOCUMENT_OF:
        page.meta["search"] = {"boost": 0.001}  # guides come first in a search
    document = _DOCUMENT_OF.get(here, f"docs/{here}")
    root = Path(config.config_file_path).parent
    repository = config.repo_url

    def link(path: str) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
        target = ROOT_PAGES.get(path, path.removeprefix("docs/"))
        if path != target and files.get_file_from_path(target):
            return posixpath.relpath(target, posixpath.dirname(here) or ".")
        kind = "tree" if (root / path).is_dir() else "blob"
        return f"{repository}/{kind}/main/{path}" if repository else _OUTSIDE

    def replaced(part: re.Match[str]) -> str:
        if part["math"]:
            return f"<div>{convert(part['math'].strip(), display='block')}</div>"
        return link(part["path"]) if part["path"] else part[0]

    return _LINK_OUTSIDE.sub(r"\1", _PARTS.sub(replaced, markdown))
