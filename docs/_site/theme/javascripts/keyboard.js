// The theme's buttons for the menu, its levels and the search are labels of hidden
// checkboxes. This lets the keyboard reach them, enter what they open and leave the menu;
// the theme itself clicks the label that has the focus at Enter.
const narrow = matchMedia("(max-width: 76.234375em)"); // has the menu, as the theme says
const drawer = document.getElementById("__drawer");
const menu = document.querySelector(".md-header__button[for=__drawer]");
const searching = document.getElementById("__search");
const search = document.querySelector(".md-header__button[for=__search]");
menu.ariaLabel = "Menu";
search.ariaLabel = "Search";
for (const button of [menu, search]) {
  button.role = "button";
  button.tabIndex = 0;
}

// On a wide screen the levels are titles.
const levels = document.querySelectorAll(
  ".md-nav__item--section > label, .md-nav__title:not([for=__drawer]), label[for=__toc]",
);
function setLevels() {
  for (const level of levels) {
    level.role = narrow.matches ? "button" : null;
    level.tabIndex = narrow.matches ? 0 : -1;
  }
}
narrow.addEventListener("change", setLevels);
setLevels();

function visible(element) {
  return element.checkVisibility({ visibilityProperty: true });
}

drawer.addEventListener("change", () => {
  if (drawer.checked) {
    const items = document.querySelectorAll(
      ".md-sidebar--primary :is(a, label[tabindex='0'])",
    );
    [...items].find(visible)?.focus();
  }
});
document.addEventListener("focusin", ({ target }) => {
  if (drawer.checked && !target.closest(".md-sidebar--primary")) {
    drawer.click(); // the focus is behind it
  }
});
searching.addEventListener("change", () => {
  if (searching.checked) {
    document.querySelector(".md-search__input").focus();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && drawer.checked) {
    drawer.click();
    menu.focus();
  } else if (event.key === " " && event.target.matches("label[role=button]")) {
    event.target.click();
    event.preventDefault();
  }
});
