#pragma once
#include <string_view>

namespace distgrad {

/// The page a `LiveServer` shows: one HTML file that needs nothing else, and asks `/api/group` once a
/// second. What workers say reaches the document as text, never as markup.
inline constexpr std::string_view live_page = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>distgrad</title>
<link rel="icon" href="data:,">
<style>
:root {
  color-scheme: light dark;
  --paper: #f7f7f5; --card: #ffffff; --ink: #1d2127; --soft: #68707c; --rule: #e3e4e1;
  --call: #2b6cb0; --grad: #c05621; --good: #2f855a; --bad: #c53030; --fill: #2b6cb01c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --card: #1b1f25; --ink: #e4e7eb; --soft: #8d96a3; --rule: #2c323b;
    --call: #63a4e6; --grad: #ef9a5b; --good: #68d391; --bad: #fc8181; --fill: #63a4e622;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 14px/1.4 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
header, main { max-width: 1240px; margin: 0 auto; padding: 12px 16px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 16px; padding-bottom: 0; }
h1 { font-size: 18px; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 13px; font-weight: 600; margin: 0 0 8px; display: flex; flex-wrap: wrap; gap: 4px 12px;
  align-items: baseline; }
h2 small, .soft { color: var(--soft); font-weight: 400; font-size: 12px; }
#status { margin-left: auto; font-size: 12px; color: var(--soft); }
#status::before { content: "\25CF"; color: var(--good); margin-right: 6px; }
.lost #status { color: var(--bad); font-weight: 600; }
.lost #status::before { color: var(--bad); }
.lost main { opacity: .45; }
main { display: grid; grid-template-columns: repeat(12, minmax(0, 1fr)); gap: 12px; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 12px 14px; grid-column: span 12; min-width: 0; }
.half { grid-column: span 6; }
.numbers { display: grid; grid-template-columns: repeat(6, 1fr); padding: 0; overflow: hidden; }
.numbers div { padding: 10px 14px; border-left: 1px solid var(--rule); margin-left: -1px; }
.numbers dt { color: var(--soft); font-size: 12px; }
.numbers dd { margin: 0; font-size: 20px; font-weight: 600; letter-spacing: -.02em; white-space: nowrap; }
dl { margin: 0; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--ink); font-size: 12px; }
svg .soft { fill: var(--soft); font-size: 11px; }
.key i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; vertical-align: middle;
  margin-right: 5px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: right; padding: 4px 0 4px 14px; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 400; font-size: 12px; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
td:first-child, th:first-child { padding-left: 0; }
td:first-child { max-width: 380px; overflow: hidden; text-overflow: ellipsis; }
tbody tr:last-child td { border-bottom: 0; }
.bad { color: var(--bad); }
select, button { font: inherit; font-size: 12px; color: inherit; background: var(--card);
  border: 1px solid var(--rule); border-radius: 5px; padding: 2px 6px; max-width: 100%; }
:focus-visible { outline: 2px solid var(--call); outline-offset: 1px; }
@media (max-width: 760px) {
  .half { grid-column: span 12; }
  .numbers { grid-template-columns: repeat(3, 1fr); }
  .numbers div { border-top: 1px solid var(--rule); margin-top: -1px; }
  header, main { padding: 10px; }
  section { padding: 10px; }
  .numbers { padding: 0; }
  .numbers div { padding: 8px 10px; }
  .numbers dd { font-size: 17px; }
  td:first-child { max-width: 150px; }
}
</style>
</head>
<body>
<header>
  <h1>distgrad</h1><span class="soft" id="who"></span><span id="status" role="status">connecting</span>
</header>
<main>
  <section class="numbers" aria-label="Rates of the last second" id="numbers"></section>
  <section class="half" aria-labelledby="h-workers">
    <h2 id="h-workers">Workers <small class="key"><i style="background:var(--call)"></i>calls and answers</small>
      <small class="key"><i style="background:var(--grad)"></i>gradients</small></h2>
    <svg id="workers" role="img"></svg>
  </section>
  <section class="half" aria-labelledby="h-calls">
    <h2 id="h-calls">Calls per second <small id="calls-now"></small></h2>
    <svg id="calls" role="img"></svg>
    <h2 id="h-latency" style="margin-top:14px">Latency of calls
      <small class="key"><i style="background:var(--call)"></i>half are faster</small>
      <small class="key"><i style="background:var(--grad)"></i>99 % are faster</small>
      <small id="latency-now"></small></h2>
    <svg id="latency" role="img"></svg>
  </section>
  <section aria-labelledby="h-passes">
    <h2 id="h-passes">Backward passes <small id="passes-note"></small></h2>
    <svg id="passes" role="img"></svg>
  </section>
  <section aria-labelledby="h-graph">
    <h2 id="h-graph"><label for="pick">Graph of context</label> <select id="pick"></select>
      <button id="newest" type="button">newest</button> <small id="graph-note"></small></h2>
    <div class="scroll"><svg id="graph" role="img"></svg></div>
  </section>
  <section aria-labelledby="h-functions">
    <h2 id="h-functions">Functions <small>as their callers see them</small></h2>
    <div class="scroll"><table id="functions"><thead><tr><th scope="col">function</th>
      <th scope="col">from &rarr; to</th><th scope="col">calls</th><th scope="col">per s</th>
      <th scope="col">failed</th><th scope="col">mean</th><th scope="col">50 %</th>
      <th scope="col">99 %</th></tr></thead><tbody></tbody></table></div>
  </section>
</main>
<script>
"use strict";
const BOUNDS = [1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2,
  .1, .25, .5, 1, 2.5, 5, 10, 30, 60];
const KEPT = 120;                                  // samples of the charts, one a second
const $ = id => document.getElementById(id);
const sum = (list, f) => list.reduce((s, x) => s + f(x), 0);

// ---- numbers ----
const digits = x => x === 0 ? "0" : x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2);
const scaled = (x, units, base) => {
  let i = 0;
  while (Math.abs(x) >= base && i < units.length - 1) { x /= base; ++i; }
  return (i === 0 && Number.isInteger(x) ? String(x) : digits(x)) + units[i];
};
const count = x => scaled(x, ["", " k", " M", " G"], 1000);
const bytes = x => scaled(x, [" B", " KiB", " MiB", " GiB", " TiB"], 1024);
const whole = x => String(x).replace(/\B(?=(\d{3})+$)/g, "\u202f");
const time = s => s === null || Number.isNaN(s) ? "\u2013" : s < 1e-3 ? digits(s * 1e6) + " \u00b5s"
  : s < 1 ? digits(s * 1e3) + " ms" : digits(s) + " s";
const clock = s => [s / 3600, s / 60 % 60, s % 60].map(x => String(Math.floor(x)).padStart(2, "0")).join(":");
// The value below which the share q lies, from counts by bucket: linear inside its bucket.
const quantile = (buckets, q) => {
  const all = sum(buckets, x => x);
  if (all === 0) return null;
  let rest = q * all;
  for (let i = 0; i < buckets.length; ++i) {
    if (buckets[i] > 0 && rest <= buckets[i]) {
      const low = i === 0 ? 0 : BOUNDS[i - 1], high = i < BOUNDS.length ? BOUNDS[i] : low;
      return low + (high - low) * rest / buckets[i];
    }
    rest -= buckets[i];
  }
  return BOUNDS[BOUNDS.length - 1];
};

// ---- the document ----
const svg = (name, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  return node;
};
const html = (name, text, attributes = {}) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  return node;
};
const titled = (node, text) => { node.append(svg("title", {}, text)); return node; };
const wide = id => $(id).parentNode.clientWidth - 28 || 560;  // one unit of a drawing is one pixel
const short = (text, most) => text.length > most ? text.slice(0, most - 1) + "\u2026" : text;

// ---- what changed since the last sample ----
// The worker's state now, and per second of its own clock how its counters moved.
class Change {
  constructor(now, before) {
    this.now = now;
    this.before = before;
    this.seconds = before ? Math.max(1e-3, (now.now_us - before.now_us) / 1e6) : 1;
    this.calls = new Map((before ? before.made || [] : []).map(c => [c.function + "\0" + c.peer, c]));
    this.paths = new Map((before ? before.routes || [] : []).map(r => [r.peer, r]));
  }
  call(c) {
    const old = this.before && (this.calls.get(c.function + "\0" + c.peer) ||
      {begun: 0, ended: 0, seconds: 0, buckets: c.buckets.map(() => 0)});
    return {rate: old ? (c.begun - old.begun) / this.seconds : 0,
            buckets: old ? c.buckets.map((n, i) => n - old.buckets[i]) : c.buckets.map(() => 0)};
  }
  sent(route, kinds, unit) {
    const old = this.paths.get(route.peer);
    return old ? sum(kinds, k => route.sent[k][unit] - old.sent[k][unit]) / this.seconds : 0;
  }
  passes() {
    const of = s => sum(s.passes ? s.passes.totals.filter(t => t.role === "initiator") : [], t => t.ended);
    return this.before ? (of(this.now) - of(this.before)) / this.seconds : 0;
  }
}
const CALLS = ["call", "answer"], GRADIENTS = ["gradient"], ALL = ["call", "answer", "rref", "gradient", "control"];

// ---- parts of the page ----
function drawNumbers(changes) {
  const made = changes.flatMap(c => (c.now.made || []).map(m => c.call(m)));
  const latency = BOUNDS.concat(0).map((_, i) => sum(made, m => m.buckets[i]));
  const rate = sum(made, m => m.rate);
  const traffic = sum(changes, c => sum(c.now.routes || [], r => c.sent(r, ALL, "bytes")));
  const gauge = name => sum(changes, c => c.now.gauges[name] || 0);
  const numbers = [["calls / s", count(rate)], ["traffic / s", bytes(traffic)],
    ["passes / s", count(sum(changes, c => c.passes()))], ["in flight", count(gauge("calls_in_flight"))],
    ["remote values", count(gauge("rrefs_owned"))], ["tasks waiting", count(gauge("queue_depth"))]];
  const list = html("dl", undefined, {style: "display:contents"});
  for (const [name, value] of numbers) {
    const cell = html("div");
    cell.append(html("dt", name), html("dd", value));
    list.append(cell);
  }
  $("numbers").replaceChildren(list);
  return {rate, half: quantile(latency, .5), most: quantile(latency, .99)};
}

function drawWorkers(group, changes) {
  const n = group.length, nodes = [], edges = [], box = {w: wide("workers"), h: n === 3 ? 270 : 320};
  const angle = i => (n === 2 ? 0 : Math.PI / 2) - 2 * Math.PI * i / n;
  const place = i => n === 1 ? [box.w / 2, box.h / 2]
    : n === 3 ? [[box.w / 2, 28], [60, box.h - 62], [box.w - 60, box.h - 62]][i]
    : [box.w / 2 - Math.cos(angle(i)) * (box.w / 2 - 64), box.h / 2 - Math.sin(angle(i)) * (box.h / 2 - 28)];
  const at = new Map(group.map((w, i) => [w.name, place(i)]));
  const words = [];
  const edge = (from, to, rate, color, bend, what) => {
    if (rate <= 0) return;
    const [x1, y1] = at.get(from), [x2, y2] = at.get(to), d = Math.hypot(x2 - x1, y2 - y1) || 1;
    const nx = -(y2 - y1) / d, ny = (x2 - x1) / d;
    const mx = (x1 + x2) / 2 + nx * bend * 2, my = (y1 + y2) / 2 + ny * bend * 2;
    const width = Math.min(9, 1 + Math.log10(1 + rate / 200) * 1.7);
    edges.push(titled(svg("path", {d: `M${x1},${y1} Q${mx},${my} ${x2},${y2}`, fill: "none", stroke: color,
      "stroke-width": width.toFixed(1), opacity: .75}), `${from} \u2192 ${to}: ${bytes(rate)}/s of ${what}`));
    const tx = (x1 + x2) / 2 + nx * bend, ty = (y1 + y2) / 2 + ny * bend, a = Math.atan2(y2 - y1, x2 - x1);
    const s = 4 + width * .8;
    edges.push(svg("path", {d: `M${s},0 L${-s},${s * .8} L${-s},${-s * .8} Z`, fill: color,
      transform: `translate(${tx.toFixed(1)} ${ty.toFixed(1)}) rotate(${(a * 180 / Math.PI).toFixed(1)})`}));
    words.push(`${from} to ${to} ${bytes(rate)} per second of ${what}`);
  };
  for (const c of changes) {
    for (const r of c.now.routes || []) {
      if (r.peer === c.now.name || !at.has(r.peer)) continue;
      edge(c.now.name, r.peer, c.sent(r, CALLS, "bytes"), "var(--call)", 12, "calls and answers");
      edge(c.now.name, r.peer, c.sent(r, GRADIENTS, "bytes"), "var(--grad)", 34, "gradients");
    }
  }
  const between = new Map();                         // both ways together, where there is room to say it
  for (const c of changes) for (const r of c.now.routes || []) {
    const pair = [c.now.name, r.peer].sort().join("\0");
    if (r.peer !== c.now.name) between.set(pair, (between.get(pair) || 0) + c.sent(r, ALL, "bytes"));
  }
  for (const [pair, rate] of n <= 6 ? between : []) {
    const [a, b] = pair.split("\0").map(name => at.get(name));
    if (!a || !b || rate <= 0) continue;
    const text = bytes(rate) + "/s", x = (a[0] + b[0]) / 2, y = (a[1] + b[1]) / 2, width = 7 * text.length;
    nodes.push(svg("rect", {x: x - width / 2, y: y - 9, width, height: 18, rx: 9, fill: "var(--card)", opacity: .92}));
    nodes.push(svg("text", {class: "soft", x, y: y + 4, "text-anchor": "middle"}, text));
  }
  for (const w of group) {
    const [x, y] = at.get(w.name), c = changes.find(c => c.now.name === w.name);
    const note = c ? count(sum(c.now.served || [], s => s.begun)) + " calls run" : "no answer";
    const width = Math.max(92, 22 + 7.4 * Math.max(short(w.name, 18).length, note.length * .86));
    nodes.push(titled(svg("rect", {x: x - width / 2, y: y - 23, width, height: 46, rx: 8, fill: "var(--card)",
      stroke: c ? "var(--soft)" : "var(--bad)"}), w.error || w.name));
    nodes.push(svg("text", {x, y: y - 3, "text-anchor": "middle", "font-weight": 600}, short(w.name, 18)));
    nodes.push(svg("text", {x, y: y + 13, "text-anchor": "middle", class: "soft"}, note));
  }
  $("workers").setAttribute("viewBox", `0 0 ${box.w} ${box.h}`);
  $("workers").setAttribute("aria-label", `${n} workers. ${words.join(". ")}`);
  $("workers").replaceChildren(...edges, ...nodes);
}

// Lines over the last two minutes. `lines` are [values, color]; null values leave a gap.
function drawChart(id, lines, format, label) {
  const box = {left: 4, right: wide(id) - 4, top: 14, bottom: 112}, parts = [];
  const most = Math.max(...lines.flatMap(([values]) => values.map(v => v || 0)), 1e-9);
  const step = 10 ** Math.floor(Math.log10(most));
  const top = [1, 2, 2.5, 5, 10].map(k => k * step).find(v => v >= most * .999);
  const x = i => box.right - (lines[0][0].length - 1 - i) * (box.right - box.left) / (KEPT - 1);
  const y = v => box.bottom - (box.bottom - box.top) * v / top;
  for (const share of [0, .5, 1]) {
    parts.push(svg("line", {x1: box.left, x2: box.right, y1: y(top * share), y2: y(top * share), stroke: "var(--rule)"}));
    if (share > 0) parts.push(svg("text", {class: "soft", x: box.left, y: y(top * share) - 3}, format(top * share)));
  }
  for (const [text, anchor, at] of [["2 min ago", "start", box.left], ["now", "end", box.right]])
    parts.push(svg("text", {class: "soft", x: at, y: 127, "text-anchor": anchor}, text));
  lines.forEach(([values, color], k) => {
    let path = "", pen = "M";
    values.forEach((v, i) => { if (v === null) { pen = "M"; return; } path += `${pen}${x(i).toFixed(1)},${y(v).toFixed(1)}`; pen = "L"; });
    if (k === 0 && lines.length === 1 && values.length > 1)
      parts.push(svg("path", {d: `${path}L${box.right},${box.bottom}L${x(0).toFixed(1)},${box.bottom}Z`, fill: "var(--fill)"}));
    parts.push(svg("path", {d: path, fill: "none", stroke: color, "stroke-width": 1.6, "stroke-linejoin": "round"}));
  });
  $(id).setAttribute("viewBox", `0 0 ${box.right + 4} 130`);
  $(id).setAttribute("aria-label", label);
  $(id).replaceChildren(...parts);
}

// Every worker's newest passes on the clock of the worker that was asked.
function drawPasses(group, states) {
  const width = wide("passes"), left = Math.min(110, width * .22), rows = [];
  for (const {entry, state} of states) {
    const offset = entry.state === states[0].entry.asker ? 0 : (entry.asked_us + entry.answered_us) / 2 - state.now_us;
    const open = state.passes ? state.passes.in_flight.map(p => ({...p, open: true})) : [];
    const bars = (state.passes ? state.passes.recent : []).concat(open)
      .map(p => ({...p, from: p.began_us + offset, to: p.began_us + offset + p.duration * 1e6}));
    rows.push({name: state.name, bars});
  }
  const all = rows.flatMap(r => r.bars), parts = [], height = 24 * rows.length + 26;
  const own = all.filter(b => !b.open).map(b => b.to);
  const end = Math.max(...own, ...all.filter(b => b.open).map(b => b.to), 0);
  const begins = all.map(b => b.from).sort((a, b) => b - a);
  const span = Math.max(1000, (end - (begins[Math.min(begins.length - 1, 12 * rows.length)] || end)) * 1.04);
  const x = t => left + (width - left) * (1 - (end - t) / span);
  rows.forEach((row, i) => {
    const y = 24 * i + 4;
    parts.push(svg("text", {x: 0, y: y + 12}, short(row.name, Math.floor(left / 7.5))));
    parts.push(svg("rect", {x: left, y, width: width - left, height: 17, fill: "var(--fill)", rx: 3}));
    for (const b of row.bars) {
      if (b.to < end - span) continue;
      const from = Math.max(left, x(b.from)), size = Math.max(1.5, x(b.to) - from);
      const color = b.error ? "var(--bad)" : b.initiator === row.name ? "var(--call)" : "var(--grad)";
      parts.push(titled(svg("rect", {x: from, y: y + 1.5, width: size, height: 14, rx: 2, fill: color, opacity: b.open ? .5 : .85}),
        `${b.id}: ${b.mode}, ${time(b.duration)}${b.open ? " so far" : ""}, ${b.sent} gradients sent, ` +
        `${b.received} received${b.error ? ", failed: " + b.error : ""}`));
    }
  });
  for (const [share, anchor] of [[0, "start"], [.5, "middle"], [1, "end"]])
    parts.push(svg("text", {class: "soft", x: left + (width - left) * share, y: height - 6, "text-anchor": anchor},
      share === 1 ? "newest" : "\u2212" + time(span * (1 - share) / 1e6)));
  const ended = sum(states, s => sum(s.state.passes ? s.state.passes.totals.filter(t => t.role === "initiator") : [], t => t.ended));
  const failed = sum(states, s => sum(s.state.passes ? s.state.passes.totals.filter(t => t.role === "initiator") : [],
    t => sum(Object.values(t.failed), n => n)));
  $("passes-note").textContent = `${whole(ended)} ended, ${whole(failed)} failed; blue where one began, orange where it takes part`;
  $("passes").setAttribute("viewBox", `0 0 ${width} ${height}`);
  $("passes").setAttribute("aria-label", `${all.length} newest backward passes on ${rows.length} workers`);
  $("passes").replaceChildren(...(all.length ? parts : [svg("text", {class: "soft", x: 0, y: 14}, "none yet")]));
}

function drawFunctions(changes) {
  const rows = changes.flatMap(c => (c.now.made || []).map(m => ({...m, from: c.now.name, ...c.call(m), all: m.buckets})));
  rows.sort((a, b) => b.begun - a.begun || (a.function < b.function ? -1 : 1));
  const failed = m => sum(Object.values(m.failed), n => n);
  $("functions").tBodies[0].replaceChildren(...rows.map(m => {
    const row = html("tr", undefined, {"data-function": m.function, "data-from": m.from, "data-to": m.peer,
      "data-begun": m.begun, "data-ended": m.ended, "data-failed": failed(m)});
    const why = Object.entries(m.failed).map(([error, n]) => `${error} ${n}`).join(", ");
    row.append(html("td", m.function, {title: m.function}), html("td", `${m.from} \u2192 ${m.peer}`), html("td", whole(m.begun)),
      html("td", count(m.rate)), html("td", whole(failed(m)), why ? {class: "bad", title: why} : {}),
      html("td", time(m.ended ? m.seconds / m.ended : null)), html("td", time(quantile(m.all, .5))),
      html("td", time(quantile(m.all, .99))));
    return row;
  }));
}

// ---- the graph of a context ----
const plain = name => name.replace(/^.*::/, "").replace(/Backward\d*$/, "");
function drawGraph(parts, id) {
  const nodes = [], links = [], ends = new Map();
  parts.forEach((part, lane) => {
    const base = nodes.length;
    part.vertices.forEach(v => nodes.push({...v, lane, worker: part.name, depth: 0}));
    part.arrows.forEach(([a, b]) => links.push([base + a, base + b, false]));
    part.vertices.forEach((v, i) => { if (v.message) ends.set(v.kind + v.message, base + i); });
  });
  for (const [key, at] of ends)                      // gradients go from recv to the other side's send
    if (key.startsWith("recv") && ends.has("send" + key.slice(4))) links.push([at, ends.get("send" + key.slice(4)), true]);
  for (let round = 0, moved = true; moved && round < nodes.length; ++round) {
    moved = false;
    for (const [a, b] of links) if (nodes[b].depth <= nodes[a].depth) { nodes[b].depth = nodes[a].depth + 1; moved = true; }
  }
  const label = v => v.kind === "send" ? "send \u2192 " + v.peer : v.kind === "recv" ? "recv \u2190 " + v.peer
    : v.kind === "leaf" ? v.name : plain(v.name);
  const cells = new Map(), lanes = parts.map(() => 1);
  for (const v of nodes) {
    const key = v.lane + ":" + v.depth;
    cells.set(key, (cells.get(key) || []).concat(v));
    v.slot = cells.get(key).length - 1;
    lanes[v.lane] = Math.max(lanes[v.lane], v.slot + 1);
  }
  const slot = 112, row = 34, lefts = [];
  lanes.reduce((x, n, i) => (lefts[i] = x, x + n * slot + 16), 0);
  const deep = Math.max(0, ...nodes.map(v => v.depth)), width = sum(lanes, n => n * slot + 16) - 16, height = 32 + (deep + 1) * row;
  const drawn = [];
  parts.forEach((part, i) => {
    drawn.push(svg("rect", {x: lefts[i], y: 0, width: lanes[i] * slot, height, rx: 6, fill: "var(--fill)"}));
    drawn.push(svg("text", {x: lefts[i] + 8, y: 17, "font-weight": 600}, short(part.name, lanes[i] * 15)));
  });
  for (const v of nodes) {
    const n = cells.get(v.lane + ":" + v.depth).length;
    v.x = lefts[v.lane] + lanes[v.lane] * slot / 2 + (v.slot - (n - 1) / 2) * slot;
    v.y = 26 + v.depth * row;
  }
  for (const [a, b, crosses] of links) {
    const from = nodes[a], to = nodes[b], y1 = from.y + 20, y2 = to.y, bend = Math.max(10, (y2 - y1) / 2);
    drawn.push(svg("path", {d: `M${from.x},${y1} C${from.x},${y1 + bend} ${to.x},${y2 - bend} ${to.x},${y2}`, fill: "none",
      stroke: crosses ? "var(--grad)" : "var(--soft)", "stroke-width": crosses ? 1.8 : 1, opacity: .8}));
  }
  for (const v of nodes) {
    const edge = v.kind === "send" || v.kind === "recv";
    drawn.push(titled(svg("rect", {x: v.x - 52, y: v.y, width: 104, height: 20, rx: v.kind === "leaf" ? 10 : 4,
      fill: "var(--card)", stroke: edge ? "var(--grad)" : v.kind === "leaf" ? "var(--good)" : "var(--soft)"}),
      v.kind === "leaf" ? `leaf ${v.name} of ${v.worker}` : `${v.name} on ${v.worker}${v.message ? ", message " + v.message : ""}`));
    drawn.push(svg("text", {x: v.x, y: v.y + 14, "text-anchor": "middle", style: "font-size:11px"}, short(label(v), 17)));
  }
  $("graph").setAttribute("viewBox", `0 0 ${width} ${height}`);
  $("graph").style.width = width + "px";
  $("graph").setAttribute("aria-label", `Graph of context ${id}: ${nodes.length} nodes on ${parts.length} workers`);
  $("graph").replaceChildren(...drawn);
  $("graph-note").textContent = `${id}: ${nodes.length} nodes on ${parts.length} workers; gradients flow down` +
    (parts.some(p => p.cut) ? "; only the first 400 of a worker" : "");
}
let held = null, shown = null, graphDue = 0;
async function followGraph(states) {
  const known = new Map();                           // how many workers kept the graph of each context
  for (const {state} of states) for (const id of state.graphs) known.set(id, (known.get(id) || 0) + 1);
  const most = Math.max(0, ...known.values());
  const kept = [...known.keys()].filter(id => known.get(id) === most).reverse();
  // Those that still live may be gone at the next look; they are what one wants when a job hangs.
  const alive = new Set(states.flatMap(({state}) => state.contexts.map(c => c.id)));
  const ids = [...kept, ...alive];
  for (const id of [held || shown]) if (id && !ids.includes(id)) ids.unshift(id);
  if (document.activeElement !== $("pick")) {
    $("pick").replaceChildren(...ids.slice(0, 40).map(id => html("option", id, {value: id})));
    if (held || shown) $("pick").value = held || shown;
  }
  const wanted = held || kept[0] || [...alive][0];
  if (!wanted) { $("graph-note").textContent = "none yet"; return; }
  if (wanted === shown || (!held && Date.now() < graphDue)) return;
  const answer = await ask("/api/graph?context=" + encodeURIComponent(wanted));
  const parts = answer.workers.map(w => w.state).filter(s => s && s.known);
  if (parts.length === 0) {
    if (held) $("graph-note").textContent = `${wanted} is not known any more`;
    return;
  }
  shown = wanted;
  graphDue = Date.now() + 5000;                      // calm: nobody reads a picture that changes at once
  if (document.activeElement !== $("pick")) $("pick").value = shown;
  drawGraph(parts, wanted);
}
$("pick").addEventListener("change", () => { held = $("pick").value; $("pick").blur(); });
$("newest").addEventListener("click", () => { held = null; graphDue = 0; });

// ---- once a second ----
async function ask(path) {
  const stop = new AbortController(), timer = setTimeout(() => stop.abort(), 5000);
  try {
    const answer = await fetch(path, {signal: stop.signal});
    if (!answer.ok) throw new Error(await answer.text());
    return await answer.json();
  } finally { clearTimeout(timer); }
}
const before = new Map(), history = [];
let heard = null;
async function look() {
  const group = await ask("/api/group");
  const entries = group.workers.map(w => ({...w, asker: undefined}));
  const states = entries.filter(e => e.state).map(e => ({entry: e, state: e.state}));
  const own = states.find(s => s.state.name === group.asked);
  for (const s of states) s.entry.asker = own && own.state;
  const changes = states.map(s => new Change(s.state, before.get(s.state.name)));
  const first = before.size === 0;
  for (const s of states) before.set(s.state.name, s.state);
  const sample = drawNumbers(changes);
  if (!first) history.push(sample);
  if (history.length > KEPT) history.shift();
  drawWorkers(entries, changes);
  drawChart("calls", [[history.map(h => h.rate), "var(--call)"]], v => count(v), `Calls per second, now ${count(sample.rate)}`);
  drawChart("latency", [[history.map(h => h.half), "var(--call)"], [history.map(h => h.most), "var(--grad)"]], time,
    `Latency of calls: half below ${time(sample.half)}, 99 percent below ${time(sample.most)}`);
  $("calls-now").textContent = `now ${count(sample.rate)}`;
  $("latency-now").textContent = `now ${time(sample.half)} and ${time(sample.most)}`;
  drawPasses(entries, states);
  drawFunctions(changes);
  heard = new Date();
  const uptime = own && own.state.uptime !== undefined ? `, up ${clock(own.state.uptime)}` : "";
  $("who").textContent = `${entries.length} workers${uptime}; seen by ${group.asked}`;
  document.body.classList.remove("lost");
  $("status").textContent = states.length === entries.length ? "connected"
    : `connected; no answer from ${entries.filter(e => !e.state).map(e => e.name).join(", ")}`;
  document.body.dataset.samples = Number(document.body.dataset.samples || 0) + 1;
  await followGraph(states);
}
async function run() {
  try { await look(); } catch (error) {
    document.body.classList.add("lost");
    $("status").textContent = `connection to the worker lost${heard ? " at " + heard.toTimeString().slice(0, 8) : ""}; trying again`;
  }
  setTimeout(run, 1000);
}
run();
</script>
</body>
</html>
)page";

}  // namespace distgrad
