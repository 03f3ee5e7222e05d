// Draws the charts: a line of 1.5 px, 8 % fill, at most four ticks, labels at the ends of lines, gaps where data is missing.
"use strict";

(() => {
  const HEIGHT = 168;
  const drawn = new Map(); // by element: its chart, and the data that it shows

  // A colour, weaker for a line that another one of the same colour stands before.
  const shade = (one) => `${colour(one.state)}${Math.round(255 * (one.strength ?? 1)).toString(16).padStart(2, "0")}`;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const two = (number) => String(number).padStart(2, "0");

  function duration(ms) {
    if (ms == null) return "–";
    if (ms < 1000) return `${Math.round(ms)}ms`;
    if (ms < 60000) return `${+(ms / 1000).toFixed(1)}s`;
    if (ms < 3600000) return `${+(ms / 60000).toFixed(1)}m`;
    return `${+(ms / 3600000).toFixed(1)}h`;
  }

  const amount = (unit, value) => (unit === "ms" ? duration(value) : value == null ? "–" : value.toLocaleString("en"));

  function moment(seconds, step) {
    const at = new Date(seconds * 1000);
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
    return step >= 3600 ? `${at.toLocaleDateString("en", {weekday: "short"})} ${clock}` : clock;
  }

  function ticks(most, whole) {
    if (!(most > 0)) return [0];
    const rough = most / 3;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(whole ? 1 : 0, [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough && (!whole || one < 1 || Number.isInteger(one))));
    return [0, 1, 2, 3].map((n) => n * step).filter((one) => one <= most * 1.34);
  }

  // A value between two gaps has no line to either side; it is drawn as a point.
  const alone = (values) => values.map((one, n) => (one != null && values[n - 1] == null && values[n + 1] == null ? n : -1)).filter((n) => n >= 0);

  function options(data, width, tell) {
    const muted = colour("muted");
    const border = colour("border");
    const font = "12px Inter, system-ui, sans-serif";
    const least = data.unit === "jobs" ? 1 : 10; // so that no two ticks read the same
    const top = (u, min, max) => { const most = Math.max(max, least); const all = ticks(most, data.unit === "jobs"); return [0, Math.max(all[all.length - 1], most)]; };
    const wide = width > 700;
    return {
      width, height: HEIGHT, legend: {show: false}, padding: [8, labelRoom(data, width, font), 0, 0],
      cursor: {y: false, points: {size: 6}, drag: {x: false, y: false}, sync: {key: "overview"}},
      scales: {x: {time: true}, y: {range: top}},
      axes: [
        {stroke: muted, font, size: 24, gap: 6, space: wide ? 180 : 76, grid: {show: false}, ticks: {show: false},
          values: (u, splits) => splits.map((one) => moment(one, data.step))},
        {stroke: muted, font, size: data.unit === "jobs" ? 40 : 56, gap: 8, grid: {stroke: border, width: 1}, ticks: {show: false},
          splits: (u) => ticks(u.scales.y.max, data.unit === "jobs"), values: (u, splits) => splits.map((one) => amount(data.unit, one))},
      ],
      series: [{}, ...data.series.map((one) => ({
        label: one.label, stroke: shade(one), width: 1.5, dash: one.dashed ? [4, 4] : undefined, spanGaps: false,
        fill: one.fill ? `${colour(one.state)}14` : undefined,
        points: {show: true, size: 4, fill: colour(one.state), filter: (u, n) => alone(u.data[n])},
      }))],
      hooks: {
        setCursor: [(u) => tell(u.cursor.idx)],
        draw: [(u) => endLabels(u, data, font)],
      },
    };
  }

  // The room right of the lines: as much as the longest label needs, up to two fifths of the chart.
  function labelRoom(data, width, font) {
    const context = document.createElement("canvas").getContext("2d");
    context.font = font;
    const longest = Math.max(0, ...data.series.map((one) => context.measureText(one.label).width));
    return Math.max(width > 700 ? 124 : 84, Math.min(Math.ceil(longest) + 12, 0.4 * width));
  }

  // Each line carries its name at its end; names that would overlap are moved apart.
  function endLabels(u, data, font) {
    const context = u.ctx;
    const ratio = devicePixelRatio;
    const labels = data.series.map((one, n) => {
      let last = one.values.length - 1;
      while (last >= 0 && one.values[last] == null) last -= 1;
      return last < 0 ? null : {n, text: one.label, colour: colour(one.state), y: u.valToPos(one.values[last], "y", true)};
    }).filter(Boolean).sort((a, b) => b.y - a.y || b.n - a.n); // of two that end alike, the first stands above
    const line = 15 * ratio;
    let free = Infinity;
    for (const label of labels) { label.y = Math.min(label.y, free - line); free = label.y; }
    free = line / 2;
    labels.reverse(); // a name that would stand above the chart moves down again, and those below it
    for (const label of labels) { label.y = Math.max(label.y, free); free = label.y + line; }
    context.save();
    context.font = font.replace("12px", `${12 * ratio}px`);
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const label of labels) {
      context.fillStyle = label.colour;
      const left = u.bbox.left + u.bbox.width + 8 * ratio;
      context.fillText(fitted(context, label.text, context.canvas.width - left), left, label.y);
    }
    context.restore();
  }

  function fitted(context, text, room) {
    if (context.measureText(text).width <= room) return text;
    let length = text.length - 1;
    while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
    return `${text.slice(0, length)}…`;
  }

  const labels = (data) => data.series.map((one) => one.label).join("\n");

  function draw(element) {
    const text = element.dataset.chart;
    const before = drawn.get(element);
    if (!text || before?.text === text) return; // without data it is still being read, and says so
    const data = JSON.parse(text);
    if (data === null) {
      before?.chart.destroy();
      drawn.delete(element);
      const note = document.createElement("p");
      note.className = "no-data";
      note.textContent = element.dataset.none;
      element.replaceChildren(note);
      return;
    }
    const columns = [data.at, ...data.series.map((one) => one.values)];
    if (before && labels(before.data) === labels(data) && before.data.step === data.step) {
      Object.assign(before.data, data);
      before.text = text;
      before.chart.setData(columns);
      return;
    }
    before?.chart.destroy();
    const note = element.parentElement.querySelector("[data-tell]");
    const tell = (n) => {
      if (!note) return;
      const shown = drawn.get(element)?.data ?? data;
      note.textContent = n == null ? ""
        : `${moment(shown.at[n], 0)}  ${shown.series.map((one) => `${one.label} ${amount(shown.unit, one.values[n])}`).join(", ")}`;
    };
    element.replaceChildren();
    const chart = new uPlot(options(data, element.clientWidth, tell), columns, element);
    chart.over.addEventListener("click", () => {
      const n = chart.cursor.idx;
      if (n == null || !element.dataset.opens) return;
      const from = new Date(data.at[n] * 1000).toISOString();
      const until = new Date((data.at[n] + data.step) * 1000).toISOString();
      location.href = element.dataset.opens.replace("FROM", encodeURIComponent(from)).replace("UNTIL", encodeURIComponent(until));
    });
    drawn.set(element, {chart, data, text});
  }

  const drawAll = () => {
    for (const [element, one] of drawn) {
      if (!element.isConnected) { one.chart.destroy(); drawn.delete(element); }
    }
    document.querySelectorAll("[data-chart]").forEach(draw);
  };
  const again = () => {
    for (const one of drawn.values()) one.chart.destroy();
    drawn.clear();
    drawAll();
  };

  addEventListener("resize", () => { for (const [element, one] of drawn) one.chart.setSize({width: element.clientWidth, height: HEIGHT}); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  document.addEventListener("htmx:after:swap", drawAll);
  drawAll();
})();
