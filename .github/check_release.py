"""Checks that a tag, the version and the changelog agree.

    python .github/check_release.py v0.1.0 > notes.md

The notes are the changelog's section of the version.
"""

import re
import sys
import tomllib
from pathlib import Path


def release_notes(root: Path, tag: str) -> str:
    """Returns the section of CHANGELOG.md for the version of a tag.

    Raises:
        SystemExit: the tag is not "v" and the version in pyproject.toml, or the
            changelog has no section of that version with a date and entries.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    version = project["project"]["version"]
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag}, but pyproject.toml has version {version}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)"
    section = re.search(heading, changelog, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        raise SystemExit(
            f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD' with entries"
        )
    return section[1].strip()


if __name__ == "__main__":
    print(release_notes(Path(__file__).parents[1], *sys.argv[1:]))
