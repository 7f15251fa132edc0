"""Checks that every page must pass in a browser: contrast, size, whole words, Tab."""

from helpers.browser import Page

# For every text that can be seen: its colour and what is behind it, by painting both.
_CONTRASTS = """
(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const paint = (colour, alpha) => {
    context.globalAlpha = alpha;
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = pixel => {
    const [r, g, b] = pixel.map(value => value / 255).map(
      x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const failures = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const element = node.parentElement;
    const style = getComputedStyle(element);
    if (!node.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, noscript, option, :disabled")) continue;
    if (element.closest(".visually-hidden")) continue;
    const parents = [];
    for (let parent = element; parent; parent = parent.parentElement) {
      parents.unshift(getComputedStyle(parent));
    }
    paint(isDark ? "#121212" : "#ffffff", 1);
    let opacity = 1;
    let behind = [];
    for (const parent of parents) {
      opacity *= Number(parent.opacity);
      behind = paint(parent.backgroundColor, opacity);
    }
    const isSvg = element instanceof SVGElement;
    const front = paint(isSvg ? style.fill : style.color, opacity);
    const [low, high] = [luminance(front), luminance(behind)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) {
      failures.push(`${ratio.toFixed(2)}: ${node.textContent.trim().slice(0, 40)}`);
    }
  }
  return failures;
})()
"""

# What can be used must be 24 pixels wide and high (WCAG 2.2, 2.5.8); a label counts for
# its field.
_SMALL_TARGETS = """
[...document.querySelectorAll("button, input, select, summary, textarea, td[tabindex]")]
  .filter(element => element.checkVisibility())
  .map(element => element.closest("label") || element)
  .filter(element => {
    const box = element.getBoundingClientRect();
    return box.width < 24 || box.height < 24;
  })
  .map(element => element.outerHTML.slice(0, 80))
"""

_WIDE = """
[...document.querySelectorAll("body *")]
  .filter(element => !element.closest(".scroll, pre, .visually-hidden, [hidden], .tip"))
  .filter(element => element.getBoundingClientRect().right > innerWidth + 1)
  .map(element => element.outerHTML.slice(0, 80))
"""

# The words of at most 30 letters, such as names, that are in two lines.
_BROKEN_WORDS = r"""
(() => {
  const broken = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const element = node.parentElement;
    if (element.closest("script, style, noscript, option, pre")) continue;
    if (!element.checkVisibility()) continue;
    for (const word of node.textContent.matchAll(/(?<!\w)\w{2,30}(?!\w)/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const tops = [...range.getClientRects()].map(box => box.top);
      if (Math.max(...tops) > Math.min(...tops) + 8) broken.push(word[0]);
    }
  }
  return broken;
})()
"""

# A radio button is one stop with the others of its name.
_FOCUSABLE = """
[...document.querySelectorAll(
  "a[href], button, input, select, summary, textarea, [tabindex='0']")]
  .filter(element => element.checkVisibility() && !element.disabled)
  .filter(element => element.type !== "radio" || element.checked)
  .map((element, index) => element.dataset.stop = String(index)).length
"""

_FOCUSED = """
(() => {
  const element = document.activeElement;
  const shown = element.type === "radio" ? element.closest("label") : element;
  const style = getComputedStyle(shown);
  const isMarked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return [element.dataset.stop, isMarked];
})()
"""


def check_page(page: Page) -> None:
    """Checks the page that is shown, with the size and mode that the browser has."""
    assert page.errors == [], page.errors
    for script in (_CONTRASTS, _SMALL_TARGETS, _WIDE, _BROKEN_WORDS):
        faults = page.run(script)
        assert faults == [], faults
    width = page.run("innerWidth")
    assert page.run("document.documentElement.scrollWidth") <= width


def check_tab_order(page: Page) -> None:
    """Checks that Tab reaches all controls in order, and that the focus is seen."""
    count = page.run(_FOCUSABLE)
    page.run("document.activeElement.blur(); scrollTo(0, 0)")
    for index in range(count):
        page.press("Tab")
        assert page.run(_FOCUSED) == [str(index), True], page.run(
            "document.activeElement.outerHTML.slice(0, 200)"
        )


def check_views(page: Page, url: str) -> None:
    """Opens a page at two widths in both modes, and checks it each time."""
    for width in (1280, 390):
        for dark in (False, True):
            page.open(url, width, dark=dark)
            check_page(page)
