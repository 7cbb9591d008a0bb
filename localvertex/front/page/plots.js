// The plots of a study, drawn from the rows of vertexrig's report: positions on an axis run from 0 to 1, labels come with them.
import { h, svg } from "/console/dom.js";

const TOP = 14;
const BOTTOM = 34;
const LEFT = 56;
const RIGHT = 14;

const shown = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "");

function ticksOf(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, at) => (first + at) * step);
}

function tip(data, row) {
  const trial = data.byId.get(row.id);
  const pairs = trial ? [...Object.entries(trial.metrics), ...Object.entries(trial.parameters)] : [];
  return svg("title", {}, [`trial ${row.id}, ${row.state}`, ...pairs.map(([name, value]) => `${name} ${value}`)].join("\n"));
}

const dot = (data, row, x, y) =>
  svg("circle", { class: row.best ? "mark best" : "mark", cx: x.toFixed(1), cy: y.toFixed(1), r: row.best ? 5.5 : 3.5 }, tip(data, row));

function figure(id, title, note, width, height, marks, least = 0) {
  const drawn = svg("svg", { role: "img", "aria-label": title, width: Math.max(width, least), height }, marks);
  return h("figure", { id, class: "plot" }, h("h4", {}, title), h("div", { class: "scroll" }, drawn), note && h("figcaption", {}, note));
}

function grid(ticks, position, width) {
  return ticks.map(([at, label]) => [
    svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: position(at), y2: position(at) }),
    svg("text", { class: "label", x: LEFT - 6, y: position(at) + 4, "text-anchor": "end" }, label),
  ]);
}

export function history(data, goal, at, width) {
  const height = 240;
  const key = `m${at}`;
  const values = data.rows.filter((row) => row[key] !== undefined);
  const found = values.map((row) => row[key]);
  let [low, high] = [Math.min(...found), Math.max(...found)];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const edge = (high - low) * 0.06;
  const y = (value) => TOP + ((high + edge - value) / (high - low + 2 * edge)) * (height - TOP - BOTTOM);
  const most = Math.max(...data.rows.map((row) => row.n), 1);
  const x = (n) => LEFT + ((n - 0.5) / most) * (width - LEFT - RIGHT);
  const steps = data.rows.filter((row) => row[`b${at}`] !== undefined);
  const path = steps.map((row, i) => (i ? `H${x(row.n).toFixed(1)}V${y(row[`b${at}`]).toFixed(1)}` : `M${x(row.n).toFixed(1)} ${y(row[`b${at}`]).toFixed(1)}`)).join("");
  const every = Math.max(1, Math.ceil(most / 12));
  const numbers = data.rows.filter((row) => row.n === 1 || row.n % every === 0);
  const marks = [
    grid(ticksOf(low, high).map((one) => [one, shown(one)]), y, width),
    numbers.map((row) => svg("text", { class: "label", x: x(row.n), y: height - 16, "text-anchor": "middle" }, row.n)),
    svg("text", { class: "label", x: width / 2, y: height - 2, "text-anchor": "middle" }, "trial"),
    svg("path", { class: "so-far", d: path }),
    data.rows.filter((row) => row.ended && !row.ok).map((row) => svg("text", { class: "cross", x: x(row.n), y: height - BOTTOM, "text-anchor": "middle" }, "×", tip(data, row))),
    values.map((row) => dot(data, row, x(row.n), y(row[key]))),
  ];
  const note = `Line: the best so far (${goal.sign > 0 ? "more" : "less"} is better). Crosses: trials that do not count.`;
  return figure(`history-${at}`, `${goal.id} by trial`, note, width, height, marks);
}

export function parallel(data, width) {
  const height = 240;
  const wide = Math.max(width, 86 * data.axes.length);
  const gap = (wide - 150) / Math.max(1, data.axes.length - 1);
  const x = (at) => 50 + at * gap;
  const low = Math.min(0, ...data.ticks.map((tick) => tick.y));  // below 0: "not set"
  const y = (position) => height - 16 - ((position - low) / (1 - low)) * (height - 56);
  const line = (row) => data.axes.map((axis, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(row[axis.key]).toFixed(1)}`).join("");
  const good = (row) => (data.goals[0].sign > 0 ? row.v : 1 - row.v);
  const rows = data.rows.filter((row) => row.ok).sort((a, b) => good(a) - good(b));
  const marks = [
    rows.map((row) => svg("path", { class: row.best ? "run best" : "run", d: line(row), "stroke-opacity": row.best ? 1 : (0.15 + 0.6 * good(row) ** 2).toFixed(2) }, tip(data, row))),
    data.axes.map((axis, at) => [
      svg("line", { class: "axis", x1: x(at), x2: x(at), y1: y(0), y2: y(1) }),
      svg("text", { class: "title", x: x(at), y: 16, "text-anchor": at === 0 ? "start" : "middle", dx: at === 0 ? -40 : 0 }, axis.title.slice(0, 18), svg("title", {}, axis.title)),
    ]),
    data.ticks.map((tick) => {
      const at = data.axes.findIndex((axis) => axis.key === tick.a);
      return svg("text", { class: "label halo", x: x(at) + 5, y: y(tick.y) + 4 }, String(tick.label).slice(0, 12));
    }),
  ];
  return figure("parallel", "Parameters and result of every trial", "Each line is a trial, the best in orange; stronger lines are better.", width, height, marks, wide);
}

export function slice(data, axis, width) {
  const height = 190;
  const y = (position) => TOP + (1 - position) * (height - TOP - BOTTOM - 8) + 4;
  const x = (position) => LEFT + 8 + position * (width - LEFT - RIGHT - 24);
  const rows = data.rows.filter((row) => row.ok && row[axis.key] >= 0);
  const shown = data.ticks.filter((tick) => tick.a === axis.key && tick.y >= 0);
  const every = Math.ceil(shown.length / Math.max(2, Math.floor(width / 70)));
  const marks = [
    grid(data.ticks.filter((tick) => tick.a === "v").map((tick) => [tick.y, tick.label]), y, width),
    shown.filter((_, at) => at % every === 0).map((tick) => svg("text", { class: "label", x: x(tick.y), y: height - 14, "text-anchor": "middle" }, String(tick.label).slice(0, 12))),
    rows.map((row) => dot(data, row, x(row[axis.key]), y(row.v))),
  ];
  return figure(`slice-${axis.key}`, axis.title, "", width, height, marks);
}

export function plots(data, width) {
  data.byId = new Map(data.trials.map((trial) => [trial.id, trial]));
  if (!data.rows.some((row) => row.ok)) return h("p", { class: "soft" }, "Plots appear when the first trial has ended with a value.");
  const columns = Math.max(1, Math.floor((width + 16) / 316));  // as .slices: 300 pixels and a gap of 16
  const narrow = Math.floor((width - 16 * (columns - 1)) / columns) - 28;
  const half = width >= 920 ? Math.floor(width / 2) - 36 : width - 28;
  return h("div", { class: "plots" },
    h("div", { class: "pair" }, data.goals.map((goal, at) => history(data, goal, at, half)), parallel(data, half)),
    h("h4", {}, `${data.goals[0].id} by each parameter`),
    h("div", { class: "slices" }, data.axes.slice(0, -1).map((axis) => slice(data, axis, narrow))));
}
