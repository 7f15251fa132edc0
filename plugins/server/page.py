"""The web page of the server: one file, which loads nothing from elsewhere."""

import base64
import hashlib

_STYLE = """
:root { color-scheme: light dark; --line: #8888; --mark: #2563eb; --soft: #8882; }
@media (prefers-color-scheme: dark) { :root { --mark: #7aa7ff; } }
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem;
  max-width: 60rem; }
h1 { font-size: 1.3rem; margin: 0 0 1rem; }
h2 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: .9rem; margin: 1rem 0 .3rem; }
label { font-weight: 600; }
textarea { display: block; width: 100%; min-height: 7rem; margin: .3rem 0 .8rem;
  padding: .6rem; font: inherit; border: 1px solid var(--line); border-radius: .4rem; }
.row { display: flex; flex-wrap: wrap; gap: .6rem 1.2rem; align-items: center; }
select, input, button { font: inherit; min-height: 2.5rem; padding: .2rem .6rem;
  border: 1px solid var(--line); border-radius: .4rem; }
select { max-width: 100%; }
input[type=number] { width: 4.5rem; }
button { cursor: pointer; background: var(--soft); color: inherit; }
button.main { background: var(--mark); color: Canvas; border-color: var(--mark);
  font-weight: 600; }
button:disabled { opacity: .6; cursor: wait; }
:focus-visible { outline: 3px solid var(--mark); outline-offset: 2px; }
kbd { font: .85em monospace; border: 1px solid var(--line); border-radius: .2rem;
  padding: 0 .3rem; }
[role=status] { min-height: 1.5rem; margin: .6rem 0; }
[role=alert]:not(:empty) { border: 2px solid #c33; border-radius: .4rem;
  padding: .5rem .8rem; }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem;
  margin: 0 0 1rem; }
.outputs { list-style: none; margin: .6rem 0 0; padding: 0; }
.outputs > li { display: flex; gap: .8rem; justify-content: space-between;
  padding: .3rem 0; border-top: 1px solid var(--line); }
.outputs > li > :first-child { overflow-wrap: anywhere; min-width: 0; }
.best { font-size: 1.15rem; }
.score { font-variant-numeric: tabular-nums; opacity: .8; white-space: nowrap; }
.tokens { display: flex; flex-wrap: wrap; gap: .3rem; }
.tokens button, .others button { padding: .1rem .45rem; min-height: 2.2rem; }
.tokens button[aria-pressed=true] { border-color: var(--mark); color: var(--mark);
  font-weight: 600; }
.others { list-style: none; padding: 0; margin: .4rem 0; }
.others li { margin: .3rem 0; }
.others button { width: 100%; text-align: start; display: flex; gap: .8rem;
  justify-content: space-between; overflow-wrap: anywhere; }
details { margin-top: .8rem; }
summary { cursor: pointer; padding: .3rem 0; }
.scroll { overflow-x: auto; }
svg { font: 14px system-ui, sans-serif; display: block; margin: .5rem 0; }
svg text { fill: currentColor; }
svg .link { stroke: var(--mark); stroke-width: 3; fill: none; }
svg .edge { stroke: currentColor; stroke-opacity: .5; fill: none; }
svg .label { font-weight: 600; fill: var(--mark); }
svg g[tabindex] { cursor: pointer; }
.hint { opacity: .8; font-size: .9rem; margin: .3rem 0; }
@media (hover: none) { .keys { display: none; } }
"""

_BODY = """
<h1>t2t serve</h1>
<main>
<form>
<label for="text">Text, one sentence per line</label>
<textarea id="text" dir="auto" required spellcheck="false"></textarea>
<div class="row">
<span><label for="model">Model</label> <select id="model"></select></span>
<span><label for="count">Outputs</label>
<input id="count" type="number" min="1" max="32" value="4"></span>
<button class="main">Translate</button>
<span class="hint keys"><kbd>Ctrl</kbd> + <kbd>Enter</kbd></span>
</div>
</form>
<p role="status"></p>
<p role="alert"></p>
<section id="results" aria-label="Results"></section>
</main>
"""

_SCRIPT = """
"use strict";
const $ = selector => document.querySelector(selector);
const models = new Map();
let latest = 0;

// Texts get into the page by textContent and attributes only.
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "text", "title"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

async function ask(path, body) {
  const answer = await fetch(path, body && {
    method: "POST", body: JSON.stringify(body),
    headers: {"Content-Type": "application/json"},
  }).catch(() => { throw new Error("The server does not answer."); });
  const data = await answer.json().catch(() => ({error: `status ${answer.status}`}));
  if (!answer.ok) throw new Error(data.error);
  return data;
}

async function attempt(action) {
  $("[role=alert]").textContent = "";
  try { await action(); }
  catch (error) { $("[role=alert]").textContent = error.message; }
}

const score = output => output.score === null ? "none" : output.score.toFixed(3);
const shown = token => token.replaceAll("\\u2581", " ").trim() || "\\u2423";

async function translate() {
  const mine = ++latest;
  const button = $("form button");
  const texts = $("#text").value.split(/\\r?\\n/).filter(line => line.trim());
  if (!texts.length) { $("#text").focus(); return; }
  const model = models.get($("#model").value);
  button.disabled = true;
  $("[role=status]").textContent = "Translating \\u2026";
  try {
    const start = performance.now();
    const found = await ask("api/translate",
      {model: model.name, texts, n_best: Number($("#count").value) || 1});
    if (mine !== latest) return;
    const seconds = ((performance.now() - start) / 1000).toFixed(2);
    $("#results").replaceChildren(
      ...texts.map((text, i) => result(model, text, found.outputs[i])));
    const sentences = texts.length === 1 ? "1 sentence" : `${texts.length} sentences`;
    $("[role=status]").textContent = `${sentences} in ${seconds} seconds`;
  } catch (error) {
    $("[role=status]").textContent = "";
    throw error;
  } finally { button.disabled = false; }
}

function result(model, text, outputs) {
  const list = make("ol", {class: "outputs"});
  outputs.forEach((output, i) => list.append(
    make("li", {class: i ? "" : "best"}, make("span", {dir: "auto"}, output.text),
      make("span", {class: "score", title: "log-probability over length penalty"},
        score(output)))));
  const article = make("article", {}, make("h2", {dir: "auto"}, text), list);
  if (model.nested || model.nested === undefined) {
    const drawing = diagram(outputs[0].text);
    if (drawing) article.append(make("div", {class: "scroll", tabindex: 0,
      role: "region", "aria-label": "Diagram"}, drawing));
  }
  if (model.kind === "run" && outputs[0].tokens.length) {
    article.append(attention(model, text));
  } else if (model.kind === "export") {
    article.append(make("p", {class: "hint"},
      "An export has no alternatives and no attention; serve the run directory."));
  }
  return article;
}

// One stop of the Tab key for a group; the arrow keys move inside of it.
function arrows(group) {
  group.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const all = [...group.querySelectorAll("[tabindex]")];
    const next = all[all.indexOf(document.activeElement) + (step || 0)];
    if (!step || !next) return;
    event.preventDefault();
    all.forEach(node => node.setAttribute("tabindex", node === next ? 0 : -1));
    next.focus();
  });
  return group;
}

function attention(model, text) {
  const area = make("details", {}, make("summary", {}, "Attention to the source"));
  area.addEventListener("toggle", () => {
    if (area.open && area.children.length === 1) attempt(async () => {
      const found = await ask("api/attention", {model: model.name, text});
      const layer = make("select", {onchange: () => draw()});
      found.cross.forEach((_, i) => layer.append(make("option", {value: i}, i + 1)));
      layer.value = found.cross.length - 1;
      const head = make("select", {onchange: () => draw()},
        make("option", {value: "mean"}, "mean of all"));
      found.cross[0].forEach((_, i) => head.append(make("option", {value: i}, i + 1)));
      const place = make("div", {class: "scroll"});
      const draw = () => {
        const heads = found.cross[layer.value];
        const mean = (t, s) =>
          heads.reduce((sum, h) => sum + h[t][s], 0) / heads.length;
        const weights = head.value !== "mean" ? heads[head.value]
          : heads[0].map((row, t) => row.map((_, s) => mean(t, s)));
        place.replaceChildren(links(found.source, found.target, weights));
      };
      const query = new URLSearchParams({model: model.name, text});
      area.append(make("div", {class: "row"}, make("label", {}, "Layer ", layer),
        make("label", {}, "Head ", head),
        make("a", {href: `attention?${query}`}, "All layers and heads")), place);
      draw();
    });
  });
  return area;
}

// Source tokens on the left, target tokens on the right, a line for every weight.
function links(source, target, weights) {
  const longest = Math.max(...source.map(x => shown(x).length)) * 9 + 12;
  const widest = Math.max(...target.map(x => shown(x).length)) * 9 + 60;
  const right = longest + 120, height = 26 * Math.max(source.length, target.length) + 8;
  const y = i => 26 * i + 18;
  const svg = make("svg", {width: right + widest, height, role: "group",
    "aria-label": "Attention of target tokens (right) to source tokens (left)"});
  const percents = source.map((token, s) => {
    svg.append(make("text", {x: longest - 4, y: y(s) + 5, "text-anchor": "end"},
      shown(token)));
    return svg.appendChild(
      make("text", {x: longest + 2, y: y(s) + 4, "font-size": 11}));
  });
  const all = [];
  target.forEach((token, t) => {
    const ranked = weights[t].map((w, s) => [w, s]).sort((a, b) => b[0] - a[0]);
    const told = ranked.slice(0, 3).map(([w, s]) =>
      `${shown(source[s])} ${Math.round(100 * w)}%`).join(", ");
    const group = make("g", {tabindex: t ? -1 : 0, role: "img",
      "aria-label": `${shown(token)}: ${told}`}, make("title", {}, told));
    for (const [w, s] of ranked) if (w >= .01) group.append(make("path", {class: "link",
      d: `M${longest} ${y(s)} L${right} ${y(t)}`, "stroke-opacity": w}));
    group.append(make("text", {x: right + 6, y: y(t) + 5}, shown(token)));
    const show = on => {
      all.forEach(other => other.style.opacity = !on || other === group ? 1 : .1);
      percents.forEach((text, s) => text.textContent =
        on && weights[t][s] >= .01 ? `${Math.round(100 * weights[t][s])}%` : "");
    };
    for (const [event, on] of [["mouseenter", true], ["mouseleave", false],
      ["focus", true], ["blur", false]]) group.addEventListener(event, () => show(on));
    all.push(group);
    svg.append(group);
  });
  return arrows(svg);
}

// A nested expression such as (S (NP it) (VP works)) as a diagram; null if a text is
// none.
function diagram(text) {
  const parts = text.match(/[()]|[^\\s()]+/g) || [];
  let at = 0;
  const read = () => {
    if (parts[at++] !== "(") return {label: parts[at - 1], children: []};
    const node = {label: "", children: []};
    if (parts[at] !== "(" && parts[at] !== ")") node.label = parts[at++] || "";
    while (at < parts.length && parts[at] !== ")") node.children.push(read());
    if (parts[at++] !== ")") throw new Error("not nested");
    return node;
  };
  let root;
  try { root = read(); } catch { return null; }
  if (at !== parts.length || !root.children.length) return null;
  let left = 8, depth = 0;
  const words = [];
  const place = (node, level) => {
    node.level = level;
    depth = Math.max(depth, level);
    const width = [...node.label].length * 9 + 14;
    const start = left;
    if (node.children.length) {
      node.children.forEach(child => place(child, level + 1));
      left = Math.max(left, start + width);
      node.x = (node.children[0].x + node.children.at(-1).x) / 2;
    } else {
      words.push(node);
      node.x = start + width / 2;
      left = start + width;
    }
  };
  place(root, 0);
  words.forEach(word => word.level = depth);
  const svg = make("svg", {width: left + 8, height: 44 * depth + 30, role: "img"},
    make("title", {}, text));
  const y = level => 44 * level + 20;
  const draw = node => {
    for (const child of node.children) {
      svg.append(make("path", {class: "edge",
        d: `M${node.x} ${y(node.level) + 6} L${child.x} ${y(child.level) - 16}`}));
      draw(child);
    }
    svg.append(make("text", {x: node.x, y: y(node.level), "text-anchor": "middle",
      class: node.children.length ? "label" : ""}, node.label));
  };
  draw(root);
  return svg;
}

$("form").addEventListener("submit", event => {
  event.preventDefault();
  attempt(translate);
});
$("#text").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    $("form").requestSubmit();
  }
});
attempt(async () => {
  const found = await ask("api/models");
  for (const model of found.models) {
    models.set(model.name, model);
    const pair = model.languages ? ` (${model.languages.join(" \\u2192 ")})` : "";
    $("#model").append(make("option", {value: model.name}, model.name + pair));
  }
  $("#count").max = found.limits.max_beam_size;
  $("#text").focus();
});
"""


def _hash(text: str) -> str:
    """Returns a script or style as a Content-Security-Policy names it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


PAGE = f"""\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>t2t serve</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
<body>{_BODY}</body>
<script>{_SCRIPT}</script>
</html>
"""

# The page runs its own script and asks its own server; nothing else is allowed.
POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
