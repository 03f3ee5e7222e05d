// What single pages need: times in pictures in the browser's zone, the week grid in local days, fields for a local time.
"use strict";

(() => {
  const two = (number) => String(number).padStart(2, "0");
  const FORMS = {
    clock: (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`,
    minute: (at) => `${two(at.getHours())}:${two(at.getMinutes())}`,
    hour: (at) => `${at.toLocaleDateString("en", {weekday: "short"})} ${two(at.getHours())}:${two(at.getMinutes())}`,
    date: (at) => `${at.getDate()} ${at.toLocaleDateString("en", {month: "short"})}`,
    long: (at) => `${at.getDate()} ${at.toLocaleDateString("en", {month: "short"})} ${two(at.getHours())}:${two(at.getMinutes())}`,
  };

  FORMS.when = (at) => (at.toDateString() === today().toDateString() ? FORMS.clock(at) : FORMS.long(at));
  const today = () => new Date(document.getElementById("live")?.dataset.now || Date.now());

  // Texts of pictures: `data-at` is the time in UTC, `data-form` how it is written, `data-say` the words around it.
  function tellPlaces(root) {
    for (const one of root.querySelectorAll("[data-at]")) {
      const words = (FORMS[one.dataset.form] || FORMS.clock)(new Date(one.dataset.at));
      const text = one.dataset.say ? one.dataset.say.replace("{at}", words) : words;
      if (one.textContent !== text) one.textContent = text;
    }
  }

  // The week grid: its hours move to their place in local days.
  const midnight = (at) => new Date(at.getFullYear(), at.getMonth(), at.getDate());
  const set = (one, name, value) => { if (one.getAttribute(name) !== String(value)) one.setAttribute(name, value); };

  function placeWeek(root) {
    for (const grid of root.querySelectorAll("svg[data-week]")) {
      const [top, high] = grid.dataset.week.split(" ").map(Number);
      const first = midnight(new Date(grid.dataset.from));
      grid.parentElement.querySelectorAll("[data-day]").forEach((one) => {
        const day = new Date(first.getFullYear(), first.getMonth(), first.getDate() + Number(one.dataset.day));
        const words = `${day.toLocaleDateString("en", {weekday: "short"})} ${two(day.getDate())} ${day.toLocaleDateString("en", {month: "short"})}`;
        if (one.textContent !== words) one.textContent = words;
      });
      for (const cell of grid.querySelectorAll("[data-hour]")) {
        const at = new Date(cell.dataset.hour);
        const day = Math.round((midnight(at) - first) / 86400000);
        set(cell, "x", `${+(at.getHours() * 100 / 24).toFixed(3)}%`);
        set(cell, "y", top + day * high);
        set(cell, "display", day < 0 || day > 6 ? "none" : "inline");
      }
    }
  }

  // The rail is not drawn anew; the part that is says how many jobs have failed.
  function countFailures() {
    const count = document.getElementById("failed-count");
    const said = document.querySelector("[data-failed]")?.dataset.failed;
    if (!count || said === undefined) return;
    const words = Number(said).toLocaleString("en");
    if (count.querySelector(".n").textContent !== words) count.querySelector(".n").textContent = words;
    count.hidden = said === "0";
  }

  const tell = () => { tellPlaces(document); placeWeek(document); countFailures(); };
  const watcher = new MutationObserver(tell);
  for (const id of ["live", "dialog"]) {
    const part = document.getElementById(id);
    if (part) watcher.observe(part, {subtree: true, childList: true, characterData: true});
  }
  tell();

  // A field for a local time fills the field that is sent, which has the same time in UTC.
  document.addEventListener("input", (event) => {
    if (!event.target.matches("input[data-utc]")) return;
    const at = new Date(event.target.value);
    document.getElementById(`utc-${event.target.dataset.utc}`).value = Number.isNaN(at.getTime()) ? "" : at.toISOString();
  });
})();
