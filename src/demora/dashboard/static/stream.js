// Listens to the stream of changes. Browsers open at most six connections to a host, so one tab listens for all: it holds a
// lock, and passes on what it hears. When it closes, or is hidden, another one takes over.
"use strict";

function demoraStream(base, tell) {
  const SILENT = 40000; // milliseconds after which a stream counts as lost; it says every 15 s that it is alive
  const UNANSWERED = 10000; // the same of a stream that does not begin
  const LONGEST = 30000; // between two tries
  const able = Boolean(navigator.locks && window.EventSource && window.BroadcastChannel);
  const name = `demora ${base}`;
  const channel = able ? new BroadcastChannel(name) : null;
  let asked = null; // to listen, while this tab is visible and live
  let source = null; // of the tab that leads
  let timer = 0; // until the next try
  let failed = 0;
  let lostAt = null;
  let heardAt = 0; // by any tab

  function pass(kind) {
    const message = {kind, lostAt};
    channel.postMessage(message);
    hear(message);
  }

  function hear(message) {
    if (!asked) return;
    if (message.kind === "who") { if (asked.release) pass("state"); return; }
    heardAt = performance.now();
    tell.lost(message.lostAt ? new Date(message.lostAt) : null);
    if (message.kind === "changed") tell.changed();
  }

  function connect() {
    const mine = source = new EventSource(`${base}/stream`);
    let heard = performance.now();
    let begun = false;
    const on = (kind, act) => mine.addEventListener(kind, () => { heard = performance.now(); act(); });
    const stop = () => { clearInterval(watch); mine.close(); };
    const lose = () => { stop(); if (mine === source) again(); };
    const watch = setInterval(() => {
      if (mine !== source) stop();
      else if (performance.now() - heard > (begun ? SILENT : UNANSWERED)) lose();
    }, 1000);
    on("hello", () => { begun = true; failed = 0; lostAt = null; pass("changed"); }); // the page may be older than the stream
    on("changed", () => pass("changed"));
    on("alive", () => pass("state"));
    on("again", () => { stop(); if (mine === source) timer = setTimeout(connect, 100 + 400 * Math.random()); });
    on("ended", () => { pass("changed"); lose(); }); // the fetch of the page leads to the sign-in
    mine.onerror = lose;
  }

  // The first try comes so soon that nobody needs to know.
  function again() {
    lostAt ??= Date.now();
    failed += 1;
    if (failed > 1) pass("state");
    timer = setTimeout(connect, Math.min(LONGEST, 500 * 2 ** failed) * (0.75 + Math.random() / 2));
  }

  function open() {
    if (!able || asked) return;
    const mine = asked = {release: null, given: new AbortController()};
    heardAt = performance.now();
    const lead = () => new Promise((release) => {
      if (asked !== mine) return release();
      mine.release = release;
      lostAt = null;
      failed = 0;
      connect();
    });
    navigator.locks.request(name, {signal: mine.given.signal}, lead).catch(() => { /* it was not needed any more */ });
    channel.postMessage({kind: "who"});
  }

  function close() {
    if (!asked) return;
    const {release, given} = asked;
    asked = null;
    given.abort();
    clearTimeout(timer);
    source?.close();
    source = null;
    release?.();
    tell.lost(null);
  }

  channel?.addEventListener("message", (event) => hear(event.data));
  setInterval(() => { // a tab that leads and does not speak
    if (asked && !asked.release && performance.now() - heardAt > SILENT) tell.lost(new Date(Date.now() - (performance.now() - heardAt)));
  }, 5000);
  return {able, open, close};
}
