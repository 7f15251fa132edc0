// The page of `t2t serve`: texts are translated and explained, and may be changed.
import {$, ask, attempt, copy, make, predict} from "./request.js";
import {Sentence} from "./sentence.js";
import {WordMenu, bare, missingSentence} from "./word_menu.js";

const page = {
  details: {},  // of the models
  splitting: [],  // the names of models that split texts into sentences
  lines: [],  // for each line of the text its sentences; a blank line has none
  terms: [],  // the glossary
  latest: 0,  // the number of the request whose results are wanted

  get model() { return this.details[$("#model").value] ?? {missing: {}}; },
  get missing() { return this.model.missing; },
  get languages() { return this.model.languages; },

  // The options that all sentences share.
  options() {
    const n_best = Number($("#count").value) || 1;
    const beam_size = Math.max(Number($("#beam").value) || 1, n_best);
    const options = {n_best, beam_size};
    return "glossary" in this.missing ? options : {...options, glossary: this.terms};
  },

  row(sentence) {
    const row = {...sentence.row, ...this.options()};
    if ("forbidden" in this.missing) delete row.forbidden;
    return row;
  },

  // Translates the whole text; changes of sentences are forgotten.
  async translate() {
    const texts = $("#text").value.split(/\r?\n/);
    const rows = texts.filter(text => text.trim());
    if (!rows.length) { $("#text").focus(); return; }
    await this.work(async isWanted => {
      const options = this.options();
      const answers = await predict("explain", rows.map(texts => ({texts, ...options})));
      if (!isWanted()) return;
      this.lines = texts.map(text => text.trim()
        ? answers.shift().sentences.map(explained => {
          const sentence = new Sentence(this, explained.source);
          sentence.show(explained);
          return sentence;
        }) : []);
      this.show();
    });
  },

  // Translates all sentences again, with the changes that each one has.
  async retranslate() {
    const sentences = this.lines.flat();
    if (!sentences.length) return;
    const numbers = sentences.map(sentence => ++sentence.latest);
    await this.work(async isWanted => {
      const answers = await predict("explain", sentences.map(x => this.row(x)));
      if (!isWanted()) return;
      answers.forEach(({sentences: [explained]}, i) => {
        if (numbers[i] === sentences[i].latest) sentences[i].show(explained);
      });
    });
  },

  // Runs a request for the whole text. If it fails, earlier results disappear. What
  // comes of it is forgotten if another one has begun or the results were cleared.
  async work(action) {
    const mine = ++this.latest;
    const button = $("#ask button");
    button.disabled = true;
    $("[role=status]").textContent = "Translating …";
    $("#paragraphs").setAttribute("aria-busy", "true");
    try {
      const start = performance.now();
      await action(() => mine === this.latest);
      if (mine !== this.latest) return;
      const seconds = ((performance.now() - start) / 1000).toFixed(2);
      const count = this.lines.flat().length;
      $("[role=status]").textContent =
        `${count} ${count === 1 ? "sentence" : "sentences"} in ${seconds} seconds`;
    } catch (error) {
      if (mine !== this.latest) return;
      this.clear();
      throw error;
    } finally {
      button.disabled = false;
      $("#paragraphs").removeAttribute("aria-busy");
    }
  },

  show() {
    const paragraphs = this.lines.filter(line => line.length).map(line =>
      make("div", {class: "paragraph"}, ...line.map(sentence => sentence.node)));
    $("#paragraphs").replaceChildren(...paragraphs);
    $("#results").hidden = false;
  },

  // Removes the results; no request for the whole text is wanted any more.
  clear() {
    ++this.latest;
    this.lines = [];
    $("[role=status]").textContent = "";
    $("#paragraphs").replaceChildren();
    $("#results").hidden = true;
  },

  // Translates one sentence again after a change.
  async update(sentence, change) {
    Object.assign(sentence, change);
    sentence.wait();
    const mine = ++sentence.latest;
    await attempt(async () => {
      try {
        const [{sentences: [explained]}] = await predict("explain", [this.row(sentence)]);
        if (mine === sentence.latest) sentence.show(explained);
      } catch (error) {
        if (mine === sentence.latest) sentence.fail(error);
        throw error;
      }
    });
  },

  openWord(sentence, i) { this.menu.open(sentence, i); },
  force(sentence, prefix) { return this.update(sentence, {prefix}); },
  undo(sentence) { return this.update(sentence, {prefix: "", forbidden: []}); },

  // Words of the user's that have the forbidden one would leave no output.
  forbid(sentence, word) {
    const forbidden = [...sentence.forbidden, word];
    const isForced = sentence.prefix.split(" ").map(bare).includes(word);
    return this.update(sentence, {forbidden, prefix: isForced ? "" : sentence.prefix});
  },

  addTerm(source, target) {
    this.terms = [...this.terms.filter(([x]) => x !== source), [source, target]];
    this.changeTerms();
  },

  changeTerms() {
    const count = this.terms.length;
    $("#terms-count").textContent = ["no terms", "1 term"][count] ?? `${count} terms`;
    $("#copy-terms").hidden = !count;
    $("#terms").replaceChildren(...this.terms.map(term => this.termItem(term)));
    attempt(() => this.retranslate());
  },

  termItem(term) {
    const [source, target] = term;
    const remove = make("button", {type: "button",
      "aria-label": `Remove ${source} → ${target}`}, "×");
    remove.addEventListener("click", () => {
      this.terms = this.terms.filter(x => x !== term);
      this.changeTerms();
    });
    return make("li", {}, make("bdi", {}, source), " → ", make("bdi", {}, target), " ", remove);
  },

  // Names the model and its languages, and tells what it cannot do.
  describe() {
    const name = $("#model").value;
    const names = (this.languages ?? []).map(languageName);
    $("h1").textContent = names.length ? `${names[0]} → ${names[1]}` : "Translate";
    document.title = names.length ? `${names[0]} → ${names[1]}: ${name}` : `${name}: t2t serve`;
    $("#served").textContent = `Model ${name}, version ${this.model.version}` +
      (names.length ? "" : "; languages unknown");
    $("#splitting").textContent = this.splitting.includes(name)
      ? "Each line is a paragraph; its sentences are translated one at a time."
      : "Each line is translated separately.";
    $("#missing").textContent = missingSentence(this.missing);
    const hints = [];
    if (!("alignment" in this.missing)) {
      hints.push("Hover over a word to see which source words it comes from.");
    }
    if (!("probabilities" in this.missing)) {
      hints.push("A dotted underline marks a word to which the model gave a probability " +
        "below 60%, a wavy one below 30%.");
    }
    hints.push("Click a word, or press Enter on it, to change it.");
    $("#reading").textContent = hints.join(" ");
    $("#glossary").hidden = "glossary" in this.missing;
  },

  // The translation with the lines of the text.
  text() {
    return this.lines.map(line => line.map(x => x.output).join("\n")
      .replace(/([\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff65])\n/g, "$1")
      .replaceAll("\n", " ")).join("\n");
  },
};

function languageName(code) {
  try { return new Intl.DisplayNames(["en"], {type: "language"}).of(code); }
  catch { return code; }
}

async function copied(button, text) {
  await copy(text);
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 1500);
}

function listen() {
  $("#ask").addEventListener("submit", event => {
    event.preventDefault();
    attempt(() => page.translate());
  });
  $("#text").addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      $("#ask").requestSubmit();
    }
  });
  $("#term").addEventListener("submit", event => {
    event.preventDefault();
    page.addTerm($("#term-source").value.trim(), $("#term-target").value.trim());
    event.target.reset();
    $("#term-source").focus();
  });
  $("#model").addEventListener("change", () => { page.clear(); page.describe(); });
  $("#copy").addEventListener("click", event => copied(event.target, page.text()));
  const file = () => page.terms.map(term => `${term.join("\t")}\n`).join("");
  $("#copy-terms").addEventListener("click", event => copied(event.target, file()));
}

attempt(async () => {
  const {models, split_sentences, details} = await ask("v1/models");
  if (!models.length) throw new Error("The models are loading; reload the page soon.");
  Object.assign(page, {details, splitting: split_sentences, menu: new WordMenu(page)});
  for (const name of models) $("#model").append(make("option", {value: name}, name));
  page.describe();
  listen();
  $("#text").focus();
});
