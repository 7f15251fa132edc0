// The dialog of a word: alternatives, a word of the user's, forbidding, the glossary.
import {$, make, percent, predict} from "./request.js";
import {place} from "./sentence.js";

const NAMES = {
  probabilities: "probabilities", alignment: "word alignment",
  prefixes: "alternatives and forced words", glossary: "glossary",
  forbidden: "forbidden words",
};

// What the model cannot do, in a sentence; "" if it can do everything.
export function missingSentence(missing) {
  const features = Object.keys(missing);
  if (!features.length) return "";
  const names = features.map(name => NAMES[name]).join(", ");
  // Reasons begin with the name of an option.
  const reason = missing[features[0]].replace(/^\w+: /, "");
  return `This model does not offer ${names} (${reason}).`;
}

// A word without the punctuation around it.
export const bare = word => word.replace(/^[\p{P}\p{S}]+|[\p{P}\p{S}]+$/gu, "") || word;

export class WordMenu {
  // `page` changes sentences: force(sentence, prefix), forbid(sentence, word),
  // addTerm(source, target), row(sentence).
  constructor(page) {
    this.page = page;
    this.opened = 0;
    const menu = $("#menu");
    $("#menu-close").addEventListener("click", () => menu.close());
    // A click beside the dialog is on the dialog itself, not on its content.
    menu.addEventListener("click", event => {
      const {left, right, top, bottom} = menu.getBoundingClientRect();
      const {clientX: x, clientY: y} = event;
      const isInside = left <= x && x <= right && top <= y && y <= bottom;
      if (event.target === menu && !isInside) menu.close();
    });
    menu.addEventListener("close", () => this.sentence?.focusWord(this.index));
    this.onSubmit("#menu-force", () => this.force($("#menu-word").value.trim()));
    this.onSubmit("#menu-term", () => this.page.addTerm(
      $("#menu-source").value.trim(), $("#menu-target").value.trim()));
    $("#menu-forbid button").addEventListener("click", () => {
      menu.close();
      this.page.forbid(this.sentence, this.phrase);
    });
  }

  onSubmit(form, action) {
    $(form).addEventListener("submit", event => {
      event.preventDefault();
      $("#menu").close();
      action();
    });
  }

  force(word) {
    this.page.force(this.sentence, this.sentence.prefixWith(this.index, word));
  }

  open(sentence, i) {
    Object.assign(this, {sentence, index: i});
    const word = sentence.explained.words[i];
    this.phrase = bare(word);
    const {missing} = this.page;
    $("#menu-title").textContent = word;
    $("#menu-facts").textContent = sentence.facts(i);
    $("#menu-word").value = "";
    $("#menu-forbid button").textContent = `Never “${this.phrase}” in this sentence`;
    const source = sentence.sourceOf(i).map(j => sentence.explained.source_words[j]);
    $("#menu-source").value = bare(source.join(" "));
    $("#menu-target").value = this.phrase;
    $("#menu-prefix").hidden = "prefixes" in missing;
    $("#menu-forbid").hidden = "forbidden" in missing;
    $("#menu-term").hidden = "glossary" in missing;
    $("#menu-missing").textContent = missingSentence(missing);
    $("#menu").showModal();
    $("#tip").hidden = true;
    place($("#menu"), sentence.words[i]);
    if (!("prefixes" in missing)) this.listAlternatives();
  }

  async listAlternatives() {
    const mine = ++this.opened;
    const list = $("#menu-words");
    list.replaceChildren(make("li", {}, "Searching …"));
    try {
      const {sentence, index} = this;
      const prefixes = sentence.explained.words.slice(0, index).join(" ");
      const row = {...this.page.row(sentence), prefixes};
      const [{words, probabilities, texts}] = await predict("alternatives", [row]);
      if (mine !== this.opened) return;
      list.replaceChildren(...words.map((word, i) =>
        this.alternative(word, probabilities[i], texts[i])));
      place($("#menu"), sentence.words[index]);
      const isUntouched = document.activeElement === $("#menu-close");
      if (isUntouched) list.querySelector("[aria-current]")?.focus();
    } catch (error) {
      if (mine === this.opened) list.replaceChildren(make("li", {}, error.message));
    }
  }

  // A line of the list. The end of the output cannot be forced.
  alternative(word, probability, text) {
    const meter = make("meter", {value: probability, "aria-hidden": "true"});
    const share = make("span", {class: "score"}, percent(probability));
    if (!word) return make("li", {}, make("span", {}, "end of the output"), meter, share);
    const isCurrent = word === this.sentence.explained.words[this.index];
    const choice = make("button", {type: "button", dir: "auto", title: text,
      "aria-current": isCurrent ? "true" : undefined}, word);
    choice.addEventListener("click", () => {
      $("#menu").close();
      this.force(word);
    });
    return make("li", {}, choice, meter, share);
  }
}
