"use strict";
const $ = selector => document.querySelector(selector);
let latest = 0;

// Texts get into the page by textContent and attributes only.
function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

async function ask(path, body) {
  const answer = await fetch(path, body && {
    method: "POST", body: JSON.stringify(body),
    headers: {"Content-Type": "application/json"},
  }).catch(() => { throw new Error("The server does not answer."); });
  const text = await answer.text();
  let data;
  // The score of an output that does not exist is -Infinity, which JSON lacks.
  const json = text.replace(/("(?:\\.|[^"\\])*")|-Infinity/g, (_, string) => string ?? "null");
  try { data = JSON.parse(json); }
  catch { data = {error: `status ${answer.status}`}; }
  if (!answer.ok) throw new Error(data.error);
  return data;
}

async function attempt(action) {
  $("[role=alert]").textContent = "";
  try { await action(); }
  catch (error) { $("[role=alert]").textContent = error.message; }
}

async function translate() {
  const mine = ++latest;
  const button = $("form button");
  const texts = $("#text").value.split(/\r?\n/).filter(line => line.trim());
  if (!texts.length) { $("#text").focus(); return; }
  const n_best = Number($("#count").value) || 1;
  const beam_size = Math.max(Number($("#beam").value) || 1, n_best);
  button.disabled = true;
  $("[role=status]").textContent = "Translating …";
  try {
    const start = performance.now();
    const {outputs} = await ask(`v1/models/${$("#model").value}:predict`,
      {signature_name: "translate", inputs: {texts, n_best, beam_size}});
    if (mine !== latest) return;
    const seconds = ((performance.now() - start) / 1000).toFixed(2);
    $("#results").replaceChildren(
      ...texts.map((text, i) => result(text, outputs.texts[i], outputs.scores[i])));
    const lines = texts.length === 1 ? "1 line" : `${texts.length} lines`;
    $("[role=status]").textContent = `${lines} in ${seconds} seconds`;
  } catch (error) {
    $("[role=status]").textContent = "";
    throw error;
  } finally { button.disabled = false; }
}

function result(text, outputs, scores) {
  const list = make("ol", {class: "outputs"});
  outputs.forEach((output, i) => {
    if (i && scores[i] === null) return;
    const score = scores[i] === null ? "none" : scores[i].toFixed(3);
    list.append(make("li", {class: i ? "" : "best"},
      make("span", {dir: "auto"}, output),
      make("span", {class: "score", title: "log-probability over length penalty"},
        score)));
  });
  return make("article", {}, make("h2", {dir: "auto"}, text), list);
}

function explain(splitting) {
  const splits = splitting.includes($("#model").value);
  $("#splitting").textContent = splits
    ? "A line of several sentences is translated sentence by sentence." : "";
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
  const {models, split_sentences} = await ask("v1/models");
  if (!models.length) throw new Error("The models are loading; reload the page soon.");
  for (const name of models) $("#model").append(make("option", {value: name}, name));
  $("#model").addEventListener("change", () => explain(split_sentences));
  explain(split_sentences);
  $("#text").focus();
});
