// Shows the values of a chart at a step, and loads the page of a training again.
"use strict";

// The position in `steps` that is nearest to a step.
function nearest(steps, step) {
  let best = 0;
  steps.forEach((value, index) => {
    if (Math.abs(value - step) < Math.abs(steps[best] - step)) best = index;
  });
  return best;
}

for (const plot of document.querySelectorAll(".plot")) {
  const chart = JSON.parse(plot.dataset.chart);
  const output = plot.parentElement.querySelector("output");
  const cursor = plot.querySelector(".cursor");
  const steps = chart.curves[0].steps;
  let position = -1;

  const show = index => {
    position = Math.max(0, Math.min(index, steps.length - 1));
    const step = steps[position];
    const texts = chart.curves.map(curve => {
      const value = curve.values[nearest(curve.steps, step)];
      return chart.curves.length > 1 ? `${curve.name} ${value}` : value;
    });
    output.textContent = `step ${step.toLocaleString("en")}: ${texts.join(", ")}`;
    cursor.style.left = `${100 * step / chart.last}%`;
    cursor.hidden = false;
  };
  const hide = () => {
    output.textContent = "";
    cursor.hidden = true;
  };

  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    show(nearest(steps, share * chart.last));
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("focus", () => show(position < 0 ? steps.length - 1 : position));
  plot.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(position + step);
  });
}

// While a training goes on, its page is written again and again.
const SECONDS = 10;
const live = document.getElementById("live");
const pause = "t2t-page-paused";
if (live) {
  live.checked = !sessionStorage.getItem(pause);
  live.addEventListener("change", () => {
    if (live.checked) sessionStorage.removeItem(pause);
    else sessionStorage.setItem(pause, "1");
  });
  // What was opened stays open; browsers keep the position by themselves.
  const opened = "t2t-page-opened";
  const all = [...document.querySelectorAll("details")];
  for (const index of JSON.parse(sessionStorage.getItem(opened) || "[]")) {
    if (all[index]) all[index].open = true;
  }
  setInterval(() => {
    if (!live.checked || document.hidden) return;
    const indexes = all.flatMap((details, index) => details.open ? [index] : []);
    sessionStorage.setItem(opened, JSON.stringify(indexes));
    location.reload();
  }, SECONDS * 1000);
}
