// Draws the attention weights of an element of class "attention", whose JSON
// attention_view.html has written.
"use strict";

function decodeWeights(text) {
  return Uint8Array.from(atob(text), character => character.charCodeAt(0));
}

// The mean [rows * columns] of some heads of some layers, from 0 to 1.
function meanWeights(picture, layers, heads) {
  const size = picture.rows.length * picture.columns.length;
  const mean = new Float64Array(size);
  for (const layer of layers) {
    for (const head of heads) {
      const start = (layer * picture.heads + head) * size;
      for (let i = 0; i < size; i++) mean[i] += picture.weights[start + i];
    }
  }
  return mean.map(sum => sum / (255 * layers.length * heads.length));
}

function labelCell(text, scope) {
  const cell = document.createElement("th");
  const label = document.createElement("span");
  cell.scope = scope;
  label.dir = "auto";
  label.textContent = text;
  cell.append(label);
  return cell;
}

// A table of weights; one cell can be focused, and arrow keys move the focus.
function weightTable(picture, weights, title) {
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  const body = table.createTBody();
  table.setAttribute("role", "grid");
  table.createCaption().textContent = title;
  head.append(document.createElement("td"));
  for (const column of picture.columns) head.append(labelCell(column, "col"));
  picture.rows.forEach((row, y) => {
    const line = body.insertRow();
    line.append(labelCell(row, "row"));
    picture.columns.forEach((column, x) => {
      const weight = weights[y * picture.columns.length + x];
      const cell = line.insertCell();
      cell.tabIndex = x + y ? -1 : 0;
      cell.style.setProperty("--weight", weight.toFixed(3));
      cell.dataset.weight = weight.toFixed(3);
      cell.setAttribute("aria-label", `${row} to ${column}: ${weight.toFixed(2)}`);
    });
  });
  const box = document.createElement("div");
  box.className = "scroll";
  box.append(table);
  return box;
}

function showCell(cell, tip) {
  const table = cell.closest("table");
  const row = cell.parentElement.cells[0];
  const column = table.tHead.rows[0].cells[cell.cellIndex];
  for (const label of table.querySelectorAll(".on")) label.classList.remove("on");
  row.classList.add("on");
  column.classList.add("on");
  const value = document.createElement("b");
  const names = [row, column].map(label => {
    const name = document.createElement("bdi");
    name.textContent = label.textContent;
    return name;
  });
  value.textContent = Number(cell.dataset.weight).toFixed(2);
  tip.replaceChildren(value, " ", names[0], " → ", names[1]);
  tip.hidden = false;
  const box = cell.getBoundingClientRect();
  const left = Math.min(box.right + 6, innerWidth - tip.offsetWidth - 8);
  const above = box.top - tip.offsetHeight - 6;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${above < 0 ? box.bottom + 6 : above}px`;
}

function hideCell(view, tip) {
  tip.hidden = true;
  for (const label of view.querySelectorAll(".on")) label.classList.remove("on");
}

const SMALLEST = 24;  // the size of a cell that a finger can touch
const MARGIN = 32;  // below the note

const STEPS = {
  ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
};

function moveFocus(event) {
  const step = STEPS[event.key];
  const cell = event.target.closest("tbody td");
  if (!step || !cell) return;
  event.preventDefault();
  const rows = cell.closest("tbody").rows;
  const row = rows[cell.parentElement.sectionRowIndex + step[0]];
  const next = row && row.cells[cell.cellIndex + step[1]];
  if (!next || next.tagName !== "TD") return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// Sets the size of all cells so that the maps and the note below them fill the window, or
// its width if the window is too low for all maps.
function fitCells(maps) {
  const tables = [...maps.querySelectorAll("table")];
  const rows = tables[0].tBodies[0].rows.length;
  const columns = tables[0].tHead.rows[0].cells.length - 1;
  setCells(maps, SMALLEST, SMALLEST);
  const style = getComputedStyle(maps);
  const columnGap = parseFloat(style.columnGap);
  const rowGap = parseFloat(style.rowGap);
  // What a map has besides its cells: labels, caption and a pixel around each cell.
  const box = tables[0].getBoundingClientRect();
  const frameWidth = box.width - SMALLEST * columns + columnGap;
  const frameHeight = box.height - SMALLEST * rows + rowGap;
  const width = maps.clientWidth + columnGap - 1;
  const { top, bottom } = maps.getBoundingClientRect();
  const below = maps.nextElementSibling.getBoundingClientRect().bottom - bottom + MARGIN;
  // Maps in the middle of a longer page are scrolled into the window.
  const start = top + scrollY < innerHeight / 2 ? top + scrollY : 0;
  const height = innerHeight - start - below + rowGap;
  let best = [SMALLEST, SMALLEST];
  for (let across = 1; across <= tables.length; across++) {
    const down = Math.ceil(tables.length / across);
    const cellWidth = (width / across - frameWidth) / columns;
    const cellHeight = Math.max((height / down - frameHeight) / rows, SMALLEST);
    if (cellWidth < SMALLEST) break;
    if (down === Math.ceil(tables.length / (across - 1))) continue;  // has empty places
    if (Math.min(cellWidth, cellHeight) >= Math.min(...best)) best = [cellWidth, cellHeight];
  }
  const [cellWidth, cellHeight] = best;
  setCells(maps, Math.min(cellWidth, 2 * cellHeight), Math.min(cellHeight, 2 * cellWidth));
}

function setCells(maps, width, height) {
  maps.style.setProperty("--cell-width", `${Math.floor(width)}px`);
  maps.style.setProperty("--cell-height", `${Math.floor(height)}px`);
}

function indexes(count) {
  return [...Array(count).keys()];
}

function drawMaps(view, pictures, form) {
  const picture = pictures[Number(form.elements.picture.value)];
  const select = form.elements.layer;
  // Encoder and decoder may have different numbers of layers.
  for (const option of select.options) {
    option.disabled = Number(option.value) >= picture.layers;
  }
  if (select.selectedOptions[0].disabled) select.value = picture.layers - 1;
  const layer = select.value;
  const head = form.elements.head.value;
  const layers = layer === "mean" ? indexes(picture.layers) : [Number(layer)];
  const maps = view.querySelector(".maps");
  const ofLayer = layer === "mean" ? "all layers" : `layer ${Number(layer) + 1}`;
  const groups = head === "mean" ? [indexes(picture.heads)]
    : head === "each" ? indexes(picture.heads).map(index => [index])
    : [[Number(head)]];
  maps.replaceChildren(...groups.map(heads => {
    const ofHeads = head === "mean" ? "mean of all heads" : `head ${heads[0] + 1}`;
    const weights = meanWeights(picture, layers, heads);
    return weightTable(picture, weights, `${ofLayer}, ${ofHeads}`);
  }));
  fitCells(maps);
}

for (const view of document.querySelectorAll(".attention")) {
  const data = JSON.parse(document.getElementById(view.dataset.source).textContent);
  const pictures = data.map(picture => (
    { ...picture, weights: decodeWeights(picture.weights) }
  ));
  const form = view.querySelector("form");
  const tip = view.querySelector(".tip");
  form.hidden = false;
  form.addEventListener("change", () => {
    hideCell(view, tip);
    drawMaps(view, pictures, form);
  });
  form.addEventListener("submit", event => event.preventDefault());
  const maps = view.querySelector(".maps");
  const show = event => {
    const cell = event.target.closest("tbody td");
    if (cell) showCell(cell, tip);
  };
  for (const name of ["pointerover", "focusin", "click"]) {
    maps.addEventListener(name, show);
  }
  maps.addEventListener("pointerleave", () => hideCell(view, tip));
  maps.addEventListener("focusout", () => hideCell(view, tip));
  maps.addEventListener("scroll", () => hideCell(view, tip), true);
  maps.addEventListener("keydown", moveFocus);
  addEventListener("resize", () => fitCells(maps));
  drawMaps(view, pictures, form);
}
