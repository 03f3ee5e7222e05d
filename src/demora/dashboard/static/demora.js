// The life of the pages: refreshes what lives, tells times in the browser's zone, opens dialogs, and listens to keys.
"use strict";

(() => {
  const base = document.body.dataset.base;
  const live = () => document.getElementById("live");
  const dialog = document.getElementById("dialog");
  const help = document.getElementById("help");
  const liveSwitch = document.getElementById("live-switch");
  const LEAST = 950; // milliseconds at least between refreshes
  const SLOW = 15000; // the same without a change: heartbeats and the like are told by no stream
  const POLL = 5000; // the same where the browser cannot listen
  const LATE = 1200; // after a moment has passed, so that no page that was drawn before it is shown
  let lead = 0; // how far the server's clock is ahead of the browser's

  // Times

  const two = (number) => String(number).padStart(2, "0");
  const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const day = (at) => `${at.getDate()} ${at.toLocaleDateString("en", {month: "short"})} ${at.getFullYear()}, ${clock(at)}`;
  const when = (at, now) => (at.toDateString() === now.toDateString() ? clock(at) : day(at));
  const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

  function rough(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const first = UNITS.findIndex(([, size]) => whole >= size);
    if (first < 0) return "0s";
    const [unit, size] = UNITS[first];
    const next = UNITS[first + 1];
    const rest = next ? Math.floor((whole % size) / next[1]) : 0;
    return `${Math.floor(whole / size)}${unit}${rest && next ? ` ${rest}${next[0]}` : ""}`;
  }

  function relative(at, now) {
    const left = (at - now) / 1000;
    if (Math.abs(left) < 1) return "now";
    return left > 0 ? `in ${rough(left)}` : `${rough(-left)} ago`;
  }

  function countdown(at, now) {
    const left = Math.max(0, Math.ceil((at - now) / 1000));
    const hours = Math.floor(left / 3600);
    if (left >= 86400) return rough(left);
    return `${hours ? `${hours}:` : ""}${hours ? two(Math.floor(left / 60) % 60) : Math.floor(left / 60)}:${two(left % 60)}`;
  }

  function tellTimes(root) {
    const now = Date.now() + lead;
    for (const one of root.querySelectorAll("time[data-style]")) {
      const at = new Date(one.dateTime);
      const style = one.dataset.style;
      const words = style === "clock" ? clock(at) : style === "day" ? day(at) : style === "when" ? when(at, new Date(now))
        : style === "countdown" ? countdown(at, now) : relative(at, now);
      if (one.textContent !== words) one.textContent = words;
      const title = `${day(at)} (${one.dateTime})`;
      if (one.title !== title) one.title = title;
    }
  }

  function readClock() {
    const said = live()?.dataset.now;
    if (said && said !== readClock.last) {
      readClock.last = said;
      lead = Date.parse(said) - Date.now();
    }
    tellTimes(document);
  }

  // Refreshing

  let streamLost = null; // since when the stream is lost
  let fetchLost = null; // since when pages cannot be fetched
  let changed = false; // whether something changed since the last refresh
  let refreshedAt = performance.now();
  let gone = false;
  const isOn = () => liveSwitch.getAttribute("aria-checked") === "true";
  const selection = () => [...document.querySelectorAll("input[data-select]:checked")];
  const isBusy = () => document.hidden || dialog.open || selection().length > 0 || document.activeElement?.closest("#live form");
  const stream = demoraStream(base, {
    changed: () => { changed = true; pulse(); },
    lost: (since) => { streamLost = since; showLive(); },
  });

  function turn(on) {
    liveSwitch.setAttribute("aria-checked", String(on));
    try { sessionStorage.setItem("live", on ? "on" : "off"); } catch { /* the switch then lasts for this page only */ }
    listen();
  }

  function listen() {
    if (isOn() && !gone && !document.hidden) { stream.open(); changed = true; pulse(); } else stream.close();
    showLive();
  }

  function showLive() {
    const lost = isOn() && !gone && [streamLost, fetchLost].filter(Boolean).sort((a, b) => a - b)[0];
    const words = lost ? `Not live since ${two(lost.getHours())}:${two(lost.getMinutes())}` : isOn() ? "Live" : "Not live";
    const place = liveSwitch.querySelector("[data-words]");
    if (place.textContent !== words) place.textContent = words;
    liveSwitch.toggleAttribute("data-lost", Boolean(lost));
  }

  // What changes by time alone, such as a job that becomes due, is fetched when a moment that the page shows has passed.
  function momentPassed() {
    const now = Date.now() + lead - LATE;
    const before = momentPassed.last ?? now;
    momentPassed.last = now;
    return [...(live()?.querySelectorAll("time") ?? [])].some((one) => {
      const at = Date.parse(one.dateTime);
      return at > before && at <= now;
    });
  }

  function pulse() {
    if (!isOn() || gone || isBusy()) return;
    const age = performance.now() - refreshedAt;
    if (age >= (changed ? LEAST : stream.able ? SLOW : POLL)) refresh();
  }

  async function refresh() {
    const target = live();
    if (!target || refresh.running) return;
    refresh.running = true;
    changed = false;
    refreshedAt = performance.now();
    try {
      const url = new URL(location.href);
      const rows = [...target.querySelectorAll("tr[data-id]:not([data-gone])")].map((row) => row.dataset.id);
      if (target.querySelector("[data-keep-rows]")) url.searchParams.set("rows", rows.join(","));
      const next = target.querySelector("[data-next]")?.dataset.next;
      if (next) url.searchParams.set("next", next);
      let answered = false;
      await htmx.ajax("GET", url.pathname + url.search, {
        target, swap: "innerMorph", headers: {"X-Demora-Part": "live"},
        fetch: async (...given) => {
          const response = await fetch(...given);
          answered = response.ok;
          gone = response.status === 404; // what the page shows was deleted
          const now = response.headers.get("x-demora-now");
          if (now) target.dataset.now = now;
          return response.ok ? new Response(steady(await response.text(), target), response) : response;
        },
      });
      if (!answered) throw new Error("no answer");
      fetchLost = null;
    } catch {
      fetchLost ||= new Date();
    } finally {
      refresh.running = false;
      if (gone) stream.close();
      showLive();
      readClock();
    }
  }

  // Rows do not move: a new one takes the place of one that is gone, or comes last. The row below the pointer stays. Groups
  // of rows, each a body of its table with an id, keep their order.
  function steady(text, target) {
    const next = new DOMParser().parseFromString(text, "text/html");
    tellTimes(next);
    const hovered = target.querySelector("tbody tr:hover");
    for (const group of target.querySelectorAll("tbody[id]")) {
      const same = next.getElementById(group.id);
      same?.parentNode.append(same);
    }
    for (const body of next.querySelectorAll("tbody")) {
      const rows = [...body.children];
      const before = body.id ? target.querySelector(`#${CSS.escape(body.id)}`) : bodyOf(rows, target);
      if (!before || rows.some((row) => !row.id)) continue;
      const coming = new Map(rows.map((row) => [row.id, row]));
      const fresh = rows.filter((row) => ![...before.children].some((one) => one.id === row.id));
      const placed = [...before.children].map((row) => coming.get(row.id)
        ?? (row === hovered ? left(row) : fresh.shift() ?? (before.contains(hovered) ? left(row) : null)));
      body.replaceChildren(...placed.filter(Boolean), ...fresh);
    }
    return next.body.innerHTML;
  }

  // The table that the page shows now: it has one of the rows, or rows of the same kind.
  function bodyOf(rows, target) {
    const kind = (row) => row.id.replace(/-.*/, "-");
    return [...target.querySelectorAll("tbody")].find((body) => [...body.children].some((row) =>
      row.id && rows.some((one) => one.id === row.id || (row.id.includes("-") && kind(one) === kind(row)))));
  }

  function left(row) {
    const copy = row.cloneNode(true);
    copy.setAttribute("data-gone", "");
    for (const one of copy.querySelectorAll("button, input")) one.disabled = true;
    return copy;
  }

  setInterval(() => {
    tellTimes(document);
    if (momentPassed()) changed = true;
    pulse();
  }, 1000);
  document.addEventListener("visibilitychange", listen);
  addEventListener("pagehide", () => stream.close());
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  liveSwitch.addEventListener("click", () => turn(!isOn()));
  document.addEventListener("htmx:before:swap", (event) => {
    const status = event.detail.ctx.response?.status;
    if (status >= 400) event.preventDefault();
  });
  document.addEventListener("htmx:after:swap", () => { readClock(); showSelection(); });

  // Dialogs and messages

  function say(kind, words, undo) {
    const toast = document.createElement("div");
    toast.className = "toast";
    toast.dataset.kind = kind;
    const text = document.createElement("span");
    text.className = "words";
    text.textContent = words;
    toast.append(text);
    if (undo) {
      const button = document.createElement("button");
      button.className = "button small";
      button.textContent = "Undo";
      button.addEventListener("click", () => { toast.remove(); post(undo); });
      toast.append(button);
    }
    document.getElementById("toasts").append(toast);
    setTimeout(() => toast.remove(), undo ? 28000 : kind === "refused" ? 10000 : 5000);
  }

  // A message about an action that leads to another page is shown there.
  function sayLater(kind, words, undo) {
    try { sessionStorage.setItem("said", JSON.stringify([kind, words, undo])); } catch { /* the next page shows what was done */ }
  }

  function sayNow() {
    try {
      const said = sessionStorage.getItem("said");
      sessionStorage.removeItem("said");
      if (said) say(...JSON.parse(said));
    } catch { /* there is nothing to say */ }
  }

  const withTime = ({words, at}) => (at ? words.replace("{at}", when(new Date(at), new Date())) : words);
  const post = (path, values = {}) => htmx.ajax("POST", path, {source: document.body, swap: "none", values});

  document.addEventListener("demora:done", (event) => {
    if (dialog.open) dialog.close();
    const {undo, leaves} = event.detail;
    (leaves ? sayLater : say)("done", withTime(event.detail), undo);
    for (const one of selection()) one.checked = false;
    showSelection();
    changed = true;
    if (!leaves) refresh();
  });
  document.addEventListener("demora:refused", (event) => {
    const place = dialog.open && dialog.querySelector("[data-problem]");
    if (place) place.textContent = event.detail.words;
    else if (event.detail.status !== 401) say("refused", event.detail.words);
  });
  dialog.addEventListener("htmx:after:swap", () => {
    dialog.className = dialog.querySelector("[data-wide]") ? "wide" : "";
    if (!dialog.open && dialog.firstElementChild) dialog.showModal();
  });
  document.addEventListener("htmx:after:settle", (event) => {
    if (event.target === dialog && !dialog.open && dialog.firstElementChild) {
      dialog.className = dialog.querySelector("[data-wide]") ? "wide" : "";
      dialog.showModal();
    }
  });
  dialog.addEventListener("close", () => dialog.replaceChildren());
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
    if (event.target === dialog || event.target === help) event.target.close();
    const copied = event.target.closest("[data-copy]");
    if (copied) navigator.clipboard.writeText(copied.dataset.copy).then(() => say("done", "Copied"));
    const row = event.target.closest("tr[data-href]");
    if (row && !event.target.closest("a, button, input, label") && !getSelection().toString()) location.href = row.dataset.href;
  });

  // Selecting rows

  function showSelection() {
    const bar = document.getElementById("selected-bar");
    if (!bar) return;
    const chosen = selection();
    bar.hidden = chosen.length === 0;
    bar.querySelector("[data-count]").textContent = `${chosen.length} selected`;
    const ids = chosen.map((one) => one.value).join(",");
    for (const one of bar.querySelectorAll("input[name=ids]")) one.value = ids;
    const states = chosen.map((one) => one.closest("tr").querySelector("[data-state]").dataset.state);
    for (const one of bar.querySelectorAll("[data-takes]")) one.hidden = !states.some((state) => one.dataset.takes.split(" ").includes(state));
    const all = document.querySelector("input[data-select-all]");
    if (all) all.checked = chosen.length > 0 && chosen.length === document.querySelectorAll("input[data-select]").length;
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("input[data-select-all]")) {
      for (const one of document.querySelectorAll("input[data-select]")) one.checked = event.target.checked;
    }
    if (event.target.matches("input[data-select], input[data-select-all]")) showSelection();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-clear-selection]")) return;
    for (const one of selection()) one.checked = false;
    showSelection();
  });

  // Completing the search

  const search = document.getElementById("search");
  const hints = document.getElementById("hints");
  if (search && hints) {
    const known = JSON.parse(search.dataset.known);
    const word = () => search.value.slice(0, search.selectionStart).split(/\s/).pop();
    const offers = () => {
      const typed = word();
      const [name, value] = typed.split(":");
      if (value === undefined) return known.qualifiers.filter(([one]) => one.startsWith(typed)).map(([one, about]) => [`${one}:`, about]);
      return (known.values[name] || []).filter((one) => one.startsWith(value) && one !== value).slice(0, 8).map((one) => [`${name}:${one} `, ""]);
    };
    let at = -1;
    const show = () => {
      const found = document.activeElement === search ? offers() : [];
      hints.hidden = found.length === 0;
      at = -1;
      hints.replaceChildren(...found.map(([text, about]) => {
        const button = document.createElement("button");
        button.type = "button";
        button.tabIndex = -1;
        button.role = "option";
        const code = document.createElement("code");
        code.textContent = text;
        const words = document.createElement("span");
        words.textContent = about;
        button.append(code, words);
        button.addEventListener("mousedown", (event) => { event.preventDefault(); take(text); });
        return button;
      }));
    };
    const take = (text) => {
      const start = search.selectionStart - word().length;
      search.setRangeText(text, start, search.selectionStart, "end");
      show();
    };
    const learn = async () => { // errors and tags, which the server has to look up
      const answer = await fetch(search.dataset.more).catch(() => null);
      if (answer?.ok) { Object.assign(known.values, await answer.json()); show(); }
    };
    search.addEventListener("focus", learn, {once: true});
    search.addEventListener("input", show);
    search.addEventListener("focus", show);
    search.addEventListener("blur", () => { hints.hidden = true; });
    search.addEventListener("keydown", (event) => {
      const buttons = [...hints.children];
      if (event.key === "Escape") { hints.hidden = true; search.blur(); }
      if (hints.hidden || !["ArrowDown", "ArrowUp", "Tab", "Enter"].includes(event.key)) return;
      if (event.key === "Enter" && at < 0) return;
      if (event.key === "Tab" && (event.shiftKey || !word())) return;
      event.preventDefault();
      if (event.key === "Tab" || event.key === "Enter") {
        take(buttons[Math.max(at, 0)].firstChild.textContent);
        return;
      }
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + buttons.length) % buttons.length;
      buttons.forEach((one, n) => one.setAttribute("aria-selected", String(n === at)));
    });
  }

  // Keys

  const PAGES = {o: "", j: "/jobs", q: "/queues", s: "/schedules", f: "/failures", y: "/system"};
  let going = 0;
  let cursor = null; // the id of the row that the keys have reached; a refresh draws the row anew

  function move(step) {
    const rows = [...document.querySelectorAll("tr.row")];
    if (!rows.length) return;
    const now = rows.findIndex((row) => row.hasAttribute("data-cursor"));
    rows[now]?.removeAttribute("data-cursor");
    const next = rows[Math.min(rows.length - 1, Math.max(0, now + step))];
    next.setAttribute("data-cursor", "");
    cursor = next.id || null;
    next.querySelector("a")?.focus({preventScroll: true});
    next.scrollIntoView({block: "nearest"});
  }

  document.addEventListener("htmx:after:swap", () => {
    const row = cursor && document.getElementById(cursor);
    if (row && !row.hasAttribute("data-cursor")) row.setAttribute("data-cursor", "");
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    const row = document.querySelector("tr.row[data-cursor]");
    if (Date.now() - going < 1500 && event.key in PAGES) { going = 0; location.href = (base + PAGES[event.key]) || "/"; return; }
    going = 0;
    if (event.key === "/") {
      event.preventDefault();
      if (search) { search.focus(); search.select(); } else location.href = `${base}/jobs#search`;
    } else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "x" && row) row.querySelector("input[data-select]")?.click();
    else if (event.key === "l") turn(!isOn());
    else if (event.key === "g") going = Date.now();
    else if (event.key === "?") help.showModal();
  });

  // The beginning

  try { if (sessionStorage.getItem("live") === "off") liveSwitch.setAttribute("aria-checked", "false"); } catch { /* it is on */ }
  if (location.hash === "#search") search?.focus();
  document.querySelector(".chips")?.scrollTo({left: (document.querySelector(".chip[aria-current]")?.offsetLeft ?? 0) - 64});
  listen();
  readClock();
  showSelection();
  sayNow();
})();
