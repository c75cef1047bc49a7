// Without this file each page can be read; with it the changing part follows the records.
"use strict";

const enter = document.getElementById("enter");
if (enter) enter.submit();

const live = document.getElementById("live");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

if (live && live.dataset.from) {
  const stale = document.getElementById("stale");
  const trouble = document.getElementById("trouble");
  const paused = document.getElementById("paused");
  let heard = new Date();
  const source = new EventSource(live.dataset.from);
  source.onmessage = (event) => {
    stale.hidden = true;
    // A part that cannot be drawn replaces nothing.
    const failed = event.data.startsWith("<!--fault-->");
    trouble.innerHTML = failed ? event.data : "";
    trouble.hidden = !failed;
    if (failed) return;
    heard = new Date();
    // A person who selects text or uses a control keeps it.
    const focus = document.activeElement;
    const readsLog = focus && focus.classList.contains("log");
    // The name of a job is found again, so that its focus stops nothing.
    const name = focus && focus.matches("#live a.name") ? focus.getAttribute("href") : null;
    paused.hidden = !(live.contains(focus) && !readsLog && !name) && getSelection().isCollapsed;
    if (!paused.hidden) return;
    const kept = [...live.querySelectorAll("[data-keep]")];
    const log = live.querySelector(".log");
    const scroll = log && { top: log.scrollTop, end: isAtEnd(log), text: log.textContent, ...log.dataset };
    live.innerHTML = event.data;
    for (const part of kept) {
      const fresh = document.getElementById(part.id);
      // The next attempt has begun: its plots are others.
      if (fresh && fresh.dataset.from !== part.dataset.from) { plots = fresh; draw(); } else fresh?.replaceWith(part);
    }
    const newLog = live.querySelector(".log");
    if (newLog && scroll) follow(newLog, scroll);
    else if (newLog) beginLog(newLog);
    if (newLog && readsLog) newLog.focus({ preventScroll: true });
    if (name) live.querySelector(`a.name[href="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
  };
  const why = document.getElementById("stale-why");
  const lost = why.textContent;
  const tellStale = (text) => {
    why.textContent = text;
    document.getElementById("heard").textContent = heard.toLocaleTimeString("sv");
    stale.hidden = false;
  };
  source.onerror = () => tellStale(lost);
  // The program is there, and waits for the job root.
  source.addEventListener("silent", (event) => tellStale(event.data));
  window.addEventListener("pagehide", () => source.close());
}

// A person who reads above the end keeps the lines in view, and is told how many came below.
// Only the end of a log is read from its end. The first error is in view with lines before it.
function beginLog(log) {
  const mark = log.querySelector("mark");
  if ("pieces" in log.dataset) log.scrollTop = log.scrollHeight;
  else if (mark) log.scrollTop += mark.getBoundingClientRect().top - log.getBoundingClientRect().top - log.clientHeight / 3;
}
function isAtEnd(log) { return log.scrollTop + log.clientHeight >= log.scrollHeight - 4; }
let below = 0;
const LINES_KEPT = 5000;
function follow(log, before) {
  const isTail = "pieces" in log.dataset && "pieces" in before;
  if (before.end || !isTail) {
    below = 0;
    log.scrollTop = before.end && isTail ? log.scrollHeight : before.top;
    return;
  }
  const pieces = (told) => told.split(" ").map((piece) => piece.split(":"));
  const seen = pieces(before.pieces).at(-1)[0];
  const ends = pieces(log.dataset.pieces).filter(([name]) => name > seen).reduce((sum, [, lines]) => sum + Number(lines), 0);
  const old = before.text.split("\n"), fresh = log.textContent.split("\n");
  // A line without its end goes on in the next piece.
  const goesOn = "open" in before;
  if (goesOn) old.pop();
  const from = fresh.length - ("open" in log.dataset) - ends;
  const added = fresh.slice(Math.max(from, 0));
  below += from < 0 ? ends : added.length - (goesOn && added.length > 0);
  // With more new lines than are sent, those between are not in view.
  if (from >= 0) log.textContent = [...old, ...added].slice(-LINES_KEPT).join("\n");
  log.scrollTop = before.top;
  tellBelow(log);
}
function tellBelow(log) {
  if (!below) return;
  const said = document.createElement("p");
  said.id = "below";
  said.setAttribute("role", "status");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = `${below} new ${below === 1 ? "line" : "lines"} below`;
  said.append(button);
  log.after(said);
  const end = () => { below = 0; said.remove(); };
  button.addEventListener("click", () => { log.scrollTop = log.scrollHeight; log.focus({ preventScroll: true }); end(); });
  log.addEventListener("scroll", () => { if (isAtEnd(log)) end(); });
}

const firstLog = document.querySelector(".log");
if (firstLog) beginLog(firstLog);

// One time axis and one cursor for all plots of a job.
let plots = document.getElementById("plots");
const facts = { zero: 0, end: 1, marks: [], bands: [], attempts: [] };
const marksOf = (facts) => (u) => {
  const { ctx, bbox } = u;
  ctx.save();
  for (const mark of facts.marks) {
    let x = u.valToPos(facts.zero + mark.secs, "x", true);
    const isBegin = mark.word === "attempt";
    // The first sample comes a moment after the begin.
    const span = isBegin && facts.attempts.find((one) => one.from_secs === mark.secs);
    if (span && x < bbox.left && facts.zero + span.to_secs > u.scales.x.min) x = bbox.left;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    // A price changes often, so that its mark is a tick at the foot.
    const isPrice = mark.word === "price";
    ctx.strokeStyle = colour(isPrice ? "--plot" : isBegin ? "--text" : "--warn");
    ctx.setLineDash(isPrice || isBegin ? [] : [4, 4]);
    ctx.beginPath();
    ctx.moveTo(x, isPrice ? bbox.top + bbox.height - 10 * devicePixelRatio : bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (!isBegin) continue;
    ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.fillStyle = colour("--text");
    ctx.fillText(mark.text.split(":")[0], x + 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
  }
  ctx.restore();
};

// The value at which the kernel kills a program.
const limitOf = (limit) => (u) => {
  if (limit === undefined) return;
  const { ctx, bbox } = u;
  const y = u.valToPos(limit, "y", true);
  ctx.save();
  ctx.strokeStyle = colour("--bad");
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.fillStyle = colour("--bad");
  ctx.fillText("out of memory", bbox.left + bbox.width - 4 * devicePixelRatio, y + 13 * devicePixelRatio);
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
  const isIn = facts.attempts.some((one) => one.from_secs <= secs && secs <= one.to_secs);
  const none = isIn || !facts.attempts.length ? "no verdict" : "no attempt works here";
  said.textContent = [band ? band.kind : none, ...words].join(" · ");
};

// A click, and not the end of a drag, offers the log of its time.
const logAt = (u) => {
  let from = 0;
  u.over.addEventListener("mousedown", (event) => { from = event.clientX; });
  u.over.addEventListener("click", (event) => {
    const place = document.getElementById("log-at");
    if (!place || Math.abs(event.clientX - from) > 3 || facts.zero === 0) return;
    const secs = u.posToVal(u.cursor.left, "x");
    const attempt = facts.attempts.find((one) => facts.zero + one.to_secs >= secs) ?? facts.attempts.at(-1);
    const at = new Date(secs * 1000);
    const link = place.querySelector("a");
    link.href = `?${attempt ? `attempt=${attempt.attempt}&` : ""}at=${at.toISOString()}#log`;
    link.textContent = `Log at ${at.toLocaleTimeString("sv")}`;
    place.hidden = false;
  });
};

// The frames of the plots, as the page has them when it is loaded.
async function frames() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  plots.innerHTML = page.getElementById("plots")?.innerHTML ?? "";
}

async function draw(isFramed) {
  const answer = await fetch(plots.dataset.from);
  if (!answer.ok) return;
  const data = await answer.json();
  // The page came before its plots, or before a part of them.
  const isDrawn = (series) => plots.querySelector(`[data-series="${series.name}"]`);
  // A series without a caption has no plot.
  const wanted = data.series.filter((series, at) => data.captions[at] !== null);
  if (document.getElementById("reading") || !wanted.every(isDrawn)) {
    if (isFramed !== true) { await frames(); await draw(true); }
    return;
  }
  const words = document.getElementById("words");
  if (words) words.innerHTML = data.words;
  data.series.forEach((series, at) => { if (data.captions[at] !== null) isDrawn(series).querySelector("figcaption .muted").textContent = data.captions[at]; });
  const zero = data.began ? Date.parse(data.began) / 1000 : 0;
  // The plots that are there read the newest facts.
  Object.assign(facts, { zero, end: data.end_secs, marks: data.marks, bands: data.bands, attempts: data.attempts });
  for (const plot of data.gpus.plots) {
    const canvas = plots.querySelector(`[data-gpus="${plot.name}"] .canvas`);
    if (canvas) show(canvas, plot.unit, data.gpus.t_secs.map((secs) => zero + secs), plot.lines);
  }
  for (const series of data.series) {
    const canvas = plots.querySelector(`[data-series="${series.name}"] .canvas`);
    const limit = series.name === "machine_memory_percent" ? 100 : undefined;
    if (canvas) show(canvas, series.unit, series.t_secs.map((secs) => zero + secs), [series], limit);
  }
}

// All plots end at the same moment, also if a series begins later or ends before.
const wholeAxis = (canvas) => (u, low, high) => {
  canvas.isZoomed = low > canvas.times[0] || high < canvas.times.at(-1);
  return canvas.isZoomed ? [low, high] : [facts.zero, facts.zero + facts.end];
};

// A person who has chosen a part of the time keeps it.
function renew(canvas, points) {
  const { min, max } = canvas.plot.scales.x;
  canvas.plot.setData(points, !canvas.isZoomed);
  if (canvas.isZoomed) canvas.plot.setScale("x", { min, max });
}

// One line, or one for each GPU.
function show(canvas, unit, times, lines, limit) {
  const points = [times, ...lines.map((line) => line.values)];
  canvas.times = times;
  if (canvas.plot && canvas.plot.series.length === points.length) { renew(canvas, points); return; }
  if (canvas.plot) canvas.plot.destroy();
  // Without a cursor there is no value to tell.
  const value = (u, number, series, at) => at == null ? "–" : number == null ? "unknown" : measure(number, unit);
  const drawn = (line) => {
    const [label, stroke] = line.gpu === undefined ? ["value", "--plot"] : [`GPU ${line.gpu}`, `--g${line.gpu % 8}`];
    return { label, value, stroke: colour(stroke), width: 1.5, spanGaps: false, points: { show: false } };
  };
  canvas.textContent = "";
  canvas.plot = new uPlot({
    width: canvas.clientWidth, height: 170,
    cursor: { sync: { key: "job" } },
    scales: { x: { time: facts.zero > 0, range: wholeAxis(canvas) }, y: { range: (u, low, high) => [0, Math.max(Math.max(high, limit ?? 0) * 1.05, 1)] } },
    axes: axes(unit),
    series: [facts.zero > 0 ? { label: "time", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" } : { label: "seconds" }, ...lines.map(drawn)],
    hooks: { drawClear: [bandsOf(facts)], draw: [marksOf(facts), limitOf(limit)], setCursor: [wordsAt(facts)], ready: [logAt] },
  }, points, canvas);
}

// A value with a unit that people read. The program does the same in its own drawings.
function measure(number, unit) {
  const [base, words] = { "B": [1024, ["B", "KiB", "MiB", "GiB", "TiB"]], "MiB": [1024, ["MiB", "GiB", "TiB"]],
    "B/s": [1000, ["B/s", "kB/s", "MB/s", "GB/s"]] }[unit] || [1, [unit]];
  let at = 0;
  while (at + 1 < words.length && Math.abs(number) >= base - 0.5) { number /= base; at += 1; }
  return `${Math.abs(number) >= 100 || Number.isInteger(number) ? number.toFixed(0) : number.toFixed(1)} ${words[at]}`;
}
// Ticks of binary units are powers of two, so that they have few digits.
const TWOS = Array.from({ length: 60 }, (_, at) => 2 ** (at - 4));
// Hours as in the rest of the page; the day below the first tick of each day.
function timeTicks(u, ticks, axis, space, step) {
  let day = "";
  return ticks.map((tick) => {
    const at = new Date(tick * 1000);
    // Swedish dates and times are in the order of ISO 8601.
    const date = at.toLocaleDateString("sv");
    const time = at.toLocaleTimeString("sv").slice(0, step < 60 ? 8 : 5);
    const text = step >= 86400 ? date : date === day ? time : `${time}\n${date}`;
    day = date;
    return text;
  });
}
function axes(unit) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const isBinary = unit === "B" || unit === "MiB";
  const upright = { ...axis, size: 76, values: (u, ticks) => ticks.map((tick) => measure(tick, unit.split(" of ")[0])) };
  return [facts.zero > 0 ? { ...axis, space: 72, values: timeTicks } : axis, isBinary ? { ...upright, incrs: TWOS } : upright];
}

if (plots && window.uPlot) {
  draw();
  // The samples of an ended job stay as they are, once they are read.
  setInterval(() => { if (live.dataset.from || document.getElementById("reading")) draw(); }, 15000);
  window.addEventListener("resize", () => {
    for (const canvas of plots.querySelectorAll(".canvas")) {
      if (canvas.plot) canvas.plot.setSize({ width: canvas.clientWidth, height: 170 });
    }
  });
}
