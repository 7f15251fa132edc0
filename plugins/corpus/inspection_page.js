// Writes the choices of the page as a recipe for `t2t inspect --apply`.
const sections = [...document.querySelectorAll("article[data-fault]")];
const { header } = document.querySelector("#recipe").dataset;

// A TOML string is written as JSON's.
const key = name => /^[\w-]+$/.test(name) ? name : JSON.stringify(name);

function recipe() {
  const splits = new Map();
  for (const section of sections) {
    const { split, fault } = section.dataset;
    if (!splits.has(split)) splits.set(split, { actions: [], kept: new Set() });
    const { actions, kept } = splits.get(split);
    actions.push(`${fault} = "${section.querySelector("select").value}"`);
    for (const box of section.querySelectorAll("input:not(:checked)")) {
      kept.add(Number(box.value));
    }
  }
  return header + [...splits].map(([split, { actions, kept }]) => {
    const lines = [...kept].sort((a, b) => a - b);
    return [`\n[${key(split)}]`, ...actions,
      ...lines.length ? [`keep_lines = [${lines.join(", ")}]`] : []].join("\n") + "\n";
  }).join("");
}

function show(event) {
  // A pair with two faults has two boxes, which agree.
  const box = event?.target;
  if (box?.type === "checkbox") {
    const { split } = box.closest("article").dataset;
    for (const section of sections) {
      if (section.dataset.split !== split) continue;
      const twin = section.querySelector(`input[value="${box.value}"]`);
      if (twin) twin.checked = box.checked;
    }
  }
  document.querySelector("#recipe").textContent = recipe();
}

if (sections.length) {
  document.querySelector("#choices").hidden = false;
  document.addEventListener("change", show);
  show();
  document.querySelector("#save").addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([recipe()], { type: "application/toml" }));
    const link = Object.assign(document.createElement("a"), { href: url, download: "recipe.toml" });
    link.click();
    URL.revokeObjectURL(url);
  });
}
