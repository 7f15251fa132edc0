// A sentence of the text with its output, whose words tell where they come from.
import {$, make, percent} from "./request.js";

// Probabilities below which a word is marked, and the classes.
const DOUBT = [[0.3, "unlikely"], [0.6, "doubtful"]];

export class Sentence {
  // `page` has the languages of the model, and is told when a word is opened or a change
  // is taken back.
  constructor(page, source) {
    this.page = page;
    this.source = source;
    this.prefix = "";
    this.forbidden = [];
    this.latest = 0;  // the number of the request whose output is wanted
    this.node = make("article");
  }

  // What the server is asked for this sentence.
  get row() {
    return {texts: this.source, prefixes: this.prefix, forbidden: this.forbidden};
  }

  get output() { return this.explained ? this.explained.texts[0] : ""; }

  // Shows an answer of the signature `explain`.
  show(explained) {
    const hasFocus = this.node.contains(document.activeElement);
    const focused = this.words?.findIndex(word => word.tabIndex === 0) ?? 0;
    this.explained = explained;
    const [from, to] = this.page.languages ?? [];
    const source = make("p", {class: "source", dir: "auto", lang: from});
    this.sourceWords = explained.source_words.map(word => make("span", {}, word));
    addWords(source, this.sourceWords);
    const target = make("p", {class: "target", dir: "auto", lang: to, role: "group",
      "aria-label": "Output; arrow keys go from word to word"});
    this.words = explained.words.map((word, i) => this.word(word, i));
    addWords(target, this.words);
    if (this.words.length) this.words[0].tabIndex = 0;
    else target.append(make("em", {lang: "en"}, explained.scores[0] === null
      ? "No output is possible with these words." : "The output is empty."));
    target.addEventListener("keydown", event => this.move(event));
    for (const [i, word] of this.sourceWords.entries()) {
      word.addEventListener("pointerenter", () => this.linkSource(i));
      word.addEventListener("pointerleave", () => this.unlink());
    }
    this.node.replaceChildren(source, make("div", {}, target, this.tools()));
    this.node.removeAttribute("aria-busy");
    if (hasFocus) this.focusWord(Math.max(focused, 0));
  }

  // Removes an output that is no longer right, and tells why there is none.
  fail(error) {
    this.explained = undefined;
    const message = make("p", {class: "target"}, make("em", {}, error.message));
    const source = make("p", {class: "source", dir: "auto"}, this.source);
    this.node.replaceChildren(source, make("div", {}, message, this.tools()));
    this.node.removeAttribute("aria-busy");
  }

  wait() { this.node.setAttribute("aria-busy", "true"); }

  word(text, i) {
    const node = make("span", {role: "button", tabindex: "-1", "aria-haspopup": "dialog",
      "aria-describedby": "tip"}, text);
    const probability = this.probability(i);
    const [, mark] = DOUBT.find(([bound]) => probability < bound) ?? [];
    if (mark) node.classList.add(mark);
    if (i < this.prefix.split(" ").filter(Boolean).length) node.classList.add("forced");
    for (const event of ["pointerenter", "focus"]) {
      node.addEventListener(event, () => this.link(i));
    }
    for (const event of ["pointerleave", "blur"]) {
      node.addEventListener(event, () => this.unlink());
    }
    node.addEventListener("click", () => this.open(i));
    return node;
  }

  probability(i) { return this.explained.probabilities?.[i]; }

  // The words of the source from which an output's word comes.
  sourceOf(i) {
    const links = (this.explained.alignment ?? []).filter(([, j]) => j === i);
    return links.map(([j]) => j);
  }

  // What is known of a word, in a line.
  facts(i) {
    const words = this.sourceOf(i).map(j => this.explained.source_words[j]);
    const probability = this.probability(i);
    return [
      ...words.length ? [`from ${words.join(" ")}`] : [],
      ...probability === undefined ? [] : [percent(probability)],
    ].join(" · ");
  }

  link(i) {
    this.unlink();
    this.words[i].classList.add("linked");
    for (const j of this.sourceOf(i)) this.sourceWords[j]?.classList.add("linked");
    const tip = $("#tip");
    tip.textContent = this.facts(i);
    tip.hidden = !tip.textContent;
    place(tip, this.words[i]);
  }

  linkSource(i) {
    this.unlink();
    this.sourceWords[i].classList.add("linked");
    for (const [j, k] of this.explained.alignment ?? []) {
      if (j === i) this.words[k]?.classList.add("linked");
    }
  }

  unlink() {
    for (const word of this.node.querySelectorAll(".linked")) word.classList.remove("linked");
    $("#tip").hidden = true;
  }

  open(i) {
    this.focusWord(i);
    this.page.openWord(this, i);
  }

  focusWord(i) {
    for (const word of this.words) word.tabIndex = -1;
    const word = this.words[Math.min(i, this.words.length - 1)];
    if (word) { word.tabIndex = 0; word.focus(); }
  }

  // Arrow keys go to the word that is next on the screen.
  move(event) {
    const i = this.words.indexOf(event.target);
    if (i < 0) return;
    const isRightToLeft = getComputedStyle(event.currentTarget).direction === "rtl";
    const forward = isRightToLeft ? "ArrowLeft" : "ArrowRight";
    const back = isRightToLeft ? "ArrowRight" : "ArrowLeft";
    if (event.key === forward) this.focusWord(i + 1);
    else if (event.key === back) this.focusWord(Math.max(i - 1, 0));
    else if (event.key === "Home") this.focusWord(0);
    else if (event.key === "End") this.focusWord(this.words.length - 1);
    else if (event.key === "Enter" || event.key === " ") this.open(i);
    else if (event.key === "Escape") this.unlink();
    else return;
    event.preventDefault();
  }

  // The words before a word, with another one in its place.
  prefixWith(i, word) { return [...this.explained.words.slice(0, i), word].join(" "); }

  tools() {
    const tools = make("div", {class: "tools"});
    if (this.explained) tools.append(...scoreParts(this.explained));
    const changes = [];
    if (this.prefix) changes.push(`your words: “${this.prefix}”`);
    for (const phrase of this.forbidden) changes.push(`without “${phrase}”`);
    if (changes.length) {
      const undo = make("button", {type: "button", class: "undo"}, "Undo");
      undo.addEventListener("click", () => this.page.undo(this));
      const sentence = make("span", {}, changes.join(", "));
      tools.append(make("div", {class: "changes"}, undo, sentence));
    }
    if (this.explained?.is_truncated) tools.append(make("span", {}, "The source was truncated."));
    return tools;
  }
}

function addWords(line, words) {
  for (const [i, word] of words.entries()) line.append(...i ? [" ", word] : [word]);
}

function number(value) { return value.toFixed(3).replace("-", "−"); }

// The score and what it means, how it is computed, and the outputs that scored lower.
function scoreParts({texts, scores, log_prob, tokens, length_penalty}) {
  if (scores[0] === null) return [];
  const meaning = make("p", {class: "meaning"}, make("b", {}, `Score ${number(scores[0])}`));
  const parts = [meaning];
  const ranking = "Among translations of the same sentence, a higher score is better; " +
    "scores of different sentences cannot be compared.";
  if (log_prob !== null && tokens) {
    const average = percent(Math.exp(log_prob / tokens));
    meaning.append(`: the model gave each token ${average} on average.`);
    const other = scores[0] - log_prob / length_penalty;
    const coverage = Math.abs(other) > 0.002
      ? `, plus a coverage penalty of ${number(other)}` : "";
    parts.push(details("How it is computed", make("p", {},
      `The log-probability of the translation, ${number(log_prob)}, is divided by the ` +
      `length penalty for ${tokens} ${tokens === 1 ? "token" : "tokens"}, ` +
      `${number(length_penalty)}${coverage}. The average is a geometric mean. ${ranking}`)));
  } else {
    meaning.append(`: the log-probability divided by the length penalty. ${ranking}`);
  }
  const others = make("ol", {start: "2"});
  for (const [i, text] of texts.entries()) {
    if (!i || scores[i] === null) continue;
    others.append(make("li", {}, make("span", {dir: "auto"}, text), " ",
      make("span", {class: "score"}, number(scores[i]))));
  }
  const count = others.children.length;
  if (count) {
    parts.push(details(`${count} other ${count === 1 ? "translation" : "translations"}`, others));
  }
  return parts;
}

function details(title, content) {
  return make("details", {}, make("summary", {}, title), content);
}

// Puts a node below another one, or above it, inside the window.
export function place(node, anchor) {
  const box = anchor.getBoundingClientRect();
  const {width, height} = node.getBoundingClientRect();
  const left = Math.min(box.left, document.documentElement.clientWidth - width - 8);
  const above = box.top - height - 4;
  const below = box.bottom + 4;
  const fitsBelow = below + height < window.innerHeight - 8;
  node.style.left = `${Math.max(left, 8)}px`;
  node.style.top = `${fitsBelow ? below : Math.max(above, 8)}px`;
}
