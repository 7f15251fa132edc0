"""The documentation site builds without a warning, and is whole and self-contained."""

import html
import re

import pytest
from helpers.documents import ROOT
from mkdocs.commands.build import build
from mkdocs.config import load_config

import t2t_keras

CONFIG = ROOT / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site; a warning, such as of a broken link, ends the build."""
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(CONFIG), site_dir=str(folder), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        tags = 'script|link(?! rel="canonical")|img|iframe'
        remote = re.findall(rf'<(?:{tags})[^>]*(?:src|href)="http.*?"', text)
        assert not remote, page
        assert 'data-md-component="source"' not in text  # asks for GitHub's stars


def test_formulas_need_no_script_and_links_to_source_files_no_address(site):
    """Nobody but the owner can set the repository's address, in pyproject.toml."""
    paper = (site / "paper.html").read_text(encoding="utf-8")
    assert "residual.py" in paper and 'residual.py"' not in paper
    assert "outside:" not in paper
    assert paper.count("<math ") >= 6
    assert "```" not in re.sub(r"<code>.*?</code>", "", paper, flags=re.DOTALL)
    home = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="quick-start.html"' in home
    code = re.sub("<[^>]*>", "", home)
    assert 'model.signatures["serving_default"](texts=' in html.unescape(code)


def test_the_reference_has_every_public_name_with_its_sections(site):
    page = (site / "api" / "index.html").read_text(encoding="utf-8")
    for name in t2t_keras.__all__:
        assert f'id="t2t_keras.{name}"' in page, name
    assert "Raises:" in page
    assert "inner width of the feed-forward networks (F)" in page  # a field of HParams
    model = (site / "api" / "model.html").read_text(encoding="utf-8")
    assert "[B, S, D]" in model
