"""The documentation site builds without a warning, and is whole and self-contained."""

import html
import itertools
import os
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from helpers.browser import needs_chromium
from helpers.documents import PAGES, ROOT, prose
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig

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


def test_links_into_the_repository_need_its_address(site):
    """Nobody but the owner can set it, in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    has_address = "Repository" in project.get("urls", {})
    paper = (site / "paper.html").read_text(encoding="utf-8")
    assert "residual.py" in paper and ('residual.py"' in paper) == has_address
    assert ('class="md-source"' in paper) == has_address
    assert "outside:" not in paper


def test_pages_link_to_the_repository_once_it_has_an_address(tmp_path):
    hooks = runpy.run_path(str(ROOT / "docs" / "_site" / "hooks.py"))
    project = tmp_path / "pyproject.toml"
    config = MkDocsConfig(config_file_path=str(tmp_path / "mkdocs.yml"))
    for urls, address, name in (
        ("", None, None),
        ("[project.urls]\nRepository = 'https://x/me/t'", "https://x/me/t", "me/t"),
    ):
        project.write_text(f"[project]\n{urls}\n", encoding="utf-8")
        config = hooks["on_config"](config)
        assert (config.repo_url, config.repo_name) == (address, name)


def test_formulas_need_no_script(site):
    paper = (site / "paper.html").read_text(encoding="utf-8")
    assert paper.count("<math ") >= 6
    assert "```" not in re.sub(r"<code>.*?</code>", "", paper, flags=re.DOTALL)
    exports = (site / "exports.html").read_text(encoding="utf-8")
    code = re.sub("<[^>]*>", "", exports)
    assert 'model.signatures["serving_default"](texts=' in html.unescape(code)


def test_links_between_pages_are_called_by_titles():
    for page in PAGES:
        names = re.findall(r"\[[\w/.-]+\.md\]\(", prose(page))
        assert not names or page.parent == ROOT, f"{page}: {names}"


# The blocks of code that are wider than their column.
WIDE_BLOCKS = """[...document.querySelectorAll("pre > code")]
  .filter((block) => block.scrollWidth > block.clientWidth)
  .map((block) => block.textContent)"""


@needs_chromium
def test_pages_suit_desktop_and_phone(site, chromium):
    """At both widths and in both modes; TEST_PICTURES names a folder for pictures."""
    pictures = os.environ.get("TEST_PICTURES")
    with chromium.page() as page:
        # The page before stores the colours that it changes to with the next mode.
        script = "localStorage.clear()"
        page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        for name, width, dark in itertools.product(
            ("index", "cookbook", "cli"), (1280, 390), (False, True)
        ):
            page.open((site / f"{name}.html").as_uri(), width, dark=dark)
            page.wait("document.getAnimations().length === 0")
            scheme = page.run("document.body.dataset.mdColorScheme")
            assert scheme == ("slate" if dark else "default")
            if pictures:
                Path(pictures).mkdir(exist_ok=True)
                mode = "dark" if dark else "light"
                page.picture(Path(pictures) / f"site-{name}-{width}-{mode}.png")
            is_wider = page.run("document.documentElement.scrollWidth > innerWidth")
            assert not is_wider, (name, width)
            assert not page.run(WIDE_BLOCKS), (name, width)
            assert not page.errors, (name, page.errors)


# The visible part of what has the focus; a radio button shows it on its label.
FOCUS = """(() => {
  const active = document.activeElement;
  const shown = active.matches(".md-option") ? active.nextElementSibling : active;
  const box = shown.getBoundingClientRect();
  const hit = document.elementFromPoint(
    box.left + box.width / 2, box.top + box.height / 2
  );
  const is_outlined = getComputedStyle(shown).outlineStyle !== "none";
  return [
    active.ariaLabel || active.title || active.innerText.trim(),
    shown.contains(hit) && (is_outlined || active.matches("input[type=text]")),
  ];
})()"""


def focus_after(page, *keys):
    """The name of what has the focus; it is seen at each key."""
    for key in keys:
        page.press(key)
        page.wait("document.getAnimations().length === 0")
        name, is_seen = page.run(FOCUS)
        assert is_seen, (key, name)
    return name


@needs_chromium
def test_a_phone_is_used_by_keyboard(site, chromium):
    is_checked = "document.getElementById('__{}').checked"
    with chromium.page() as page:
        page.open((site / "concepts.html").as_uri(), 390)
        assert focus_after(page, "Tab") == "Skip to content"
        assert focus_after(page, "Tab") == "Menu"
        assert focus_after(page, "Enter") == "Train"  # a level of the menu
        assert focus_after(page, "Tab", "Tab") == "Concepts"
        assert focus_after(page, "Escape") == "Menu"
        assert not page.run(is_checked.format("drawer"))
        focus_after(page, "Tab", "ArrowRight")
        assert page.run("document.body.dataset.mdColorScheme") == "slate"
        assert focus_after(page, "Tab") == "Search"
        assert focus_after(page, "Enter") == "Search"  # its input
        assert page.run(is_checked.format("search"))
        page.press("Escape")
        assert not page.run(is_checked.format("search"))
        names = [focus_after(page, "Tab") for _ in range(7)]
        assert "Copy to clipboard" in names
        assert not page.errors


@needs_chromium
def test_a_desktop_is_used_by_keyboard(site, chromium):
    with chromium.page() as page:
        page.open((site / "index.html").as_uri(), 1280)
        names = [focus_after(page, "Tab") for _ in range(6)]
        assert names == [
            "Skip to content",
            "t2t_keras",
            "Dark",
            "Search",
            "Home",
            "Cookbook",
        ]
        page.press("Enter")
        page.wait("location.href.endsWith('cookbook.html')")


@needs_chromium
def test_search_works_from_the_disk(site, chromium):
    """Browsers allow neither workers nor requests to pages from the disk."""
    with chromium.page() as page:
        page.open((site / "index.html").as_uri(), 1280)
        page.run("document.querySelector('.md-search__input').focus()")
        result = "document.querySelector('.md-search-result')"
        page.wait(f"{result}.textContent.includes('Type to start searching')")
        page.call("Input.insertText", text="glossary")
        page.press("ArrowLeft")  # the search waits for a key
        page.wait(f"{result}.querySelector('a') !== null")
        address = page.run(f"{result}.querySelector('a').href")
        assert address.startswith(site.as_uri())
        assert "/api/" not in address  # guides come before the reference


def test_the_reference_has_every_public_name_with_its_sections(site):
    page = (site / "api" / "index.html").read_text(encoding="utf-8")
    for name in t2t_keras.__all__:
        assert f'id="t2t_keras.{name}"' in page, name
    assert "Raises:" in page
    assert "inner width of the feed-forward networks (F)" in page  # a field of HParams
    model = (site / "api" / "model.html").read_text(encoding="utf-8")
    assert "[B, S, D]" in model
