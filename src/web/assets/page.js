// Without this file each page can be read; with it the changing part follows the records.
"use strict";

const enter = document.getElementById("enter");
if (enter) enter.submit();

const live = document.getElementById("live");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

if (live && live.dataset.from) {
  const stale = document.getElementById("stale");
  const source = new EventSource(live.dataset.from);
  source.onmessage = (event) => {
    stale.hidden = true;
    // A person who selects text or uses a control keeps it.
    if (live.contains(document.activeElement) || !getSelection().isCollapsed) return;
    const kept = [...live.querySelectorAll("[data-keep]")];
    const log = live.querySelector(".log");
    const scroll = log && { top: log.scrollTop, end: log.scrollTop + log.clientHeight >= log.scrollHeight - 4 };
    live.innerHTML = event.data;
    for (const part of kept) document.getElementById(part.id)?.replaceWith(part);
    const newLog = live.querySelector(".log");
    if (newLog && scroll) newLog.scrollTop = scroll.end ? newLog.scrollHeight : scroll.top;
  };
  source.onerror = () => { stale.hidden = false; };
  window.addEventListener("pagehide", () => source.close());
}

const firstLog = document.querySelector(".log");
if (firstLog) firstLog.scrollTop = firstLog.scrollHeight;

// One time axis and one cursor for all plots of a job.
const plots = document.getElementById("plots");
const facts = { zero: 0, marks: [], bands: [] };
const marksOf = (facts) => (u) => {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = colour("--warn");
  ctx.setLineDash([4, 4]);
  for (const mark of facts.marks) {
    const x = u.valToPos(facts.zero + mark.secs, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
};

// Busy, idle, stalled and unknown time behind the line. Unknown is hatched.
function hatch(ctx) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const part = tile.getContext("2d");
  part.strokeStyle = colour("--band-unknown");
  part.lineWidth = 2;
  for (const shift of [-8, 0, 8]) {
    part.beginPath();
    part.moveTo(shift, 8);
    part.lineTo(shift + 8, 0);
    part.stroke();
  }
  return ctx.createPattern(tile, "repeat");
}
const bandsOf = (facts) => (u) => {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const band of facts.bands) {
    const from = u.valToPos(facts.zero + band.from_secs, "x", true);
    const to = u.valToPos(facts.zero + band.to_secs, "x", true);
    ctx.fillStyle = band.kind === "unknown" ? hatch(ctx) : colour(`--band-${band.kind}`);
    ctx.fillRect(from, bbox.top, Math.max(to - from, 1), bbox.height);
  }
  ctx.restore();
};

// The words of the mark and of the band under the cursor.
const wordsAt = (facts) => (u) => {
  const said = document.getElementById("mark");
  if (!said || u.cursor.left === undefined || u.cursor.left < 0) return;
  const secs = u.posToVal(u.cursor.left, "x") - facts.zero;
  const near = u.posToVal(u.cursor.left + 6, "x") - facts.zero - secs;
  const band = facts.bands.find((one) => one.from_secs <= secs && secs < one.to_secs);
  const marks = facts.marks.filter((mark) => Math.abs(mark.secs - secs) <= near);
  const words = marks.slice(0, 3).map((mark) => `${mark.word}: ${mark.text}`);
  said.textContent = [band ? band.kind : "no verdict", ...words].join(" · ");
};

async function draw() {
  const answer = await fetch(plots.dataset.from);
  if (!answer.ok) return;
  const data = await answer.json();
  const zero = data.began ? Date.parse(data.began) / 1000 : 0;
  // The plots that are there read the newest facts.
  Object.assign(facts, { zero, marks: data.marks, bands: data.bands });
  for (const series of data.series) {
    const canvas = plots.querySelector(`[data-series="${series.name}"] .canvas`);
    if (!canvas) continue;
    const points = [series.t_secs.map((secs) => zero + secs), series.values];
    if (canvas.plot) { canvas.plot.setData(points); continue; }
    canvas.textContent = "";
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    canvas.plot = new uPlot({
      width: canvas.clientWidth, height: 150,
      cursor: { sync: { key: "job" } },
      scales: { x: { time: zero > 0 }, y: { range: (u, low, high) => [0, Math.max(high * 1.05, 1)] } },
      axes: [axis, { ...axis, size: 56, values: (u, ticks) => ticks.map(short) }],
      series: [{ label: "time" }, { label: series.unit, stroke: colour("--plot"), width: 1.5, spanGaps: false, points: { show: false } }],
      hooks: { drawClear: [bandsOf(facts)], draw: [marksOf(facts)], setCursor: [wordsAt(facts)] },
    }, points, canvas);
  }
}

function short(number) {
  if (number >= 1e9) return `${number / 1e9} G`;
  if (number >= 1e6) return `${number / 1e6} M`;
  if (number >= 1e3) return `${number / 1e3} k`;
  return String(number);
}

if (plots && window.uPlot) {
  draw();
  setInterval(draw, 15000);
  window.addEventListener("resize", () => {
    for (const canvas of plots.querySelectorAll(".canvas")) {
      if (canvas.plot) canvas.plot.setSize({ width: canvas.clientWidth, height: 150 });
    }
  });
}
