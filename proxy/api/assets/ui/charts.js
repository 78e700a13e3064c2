// Four small charts of the last fifteen minutes; uPlot draws them, the style sheet has their colours.

import { series } from "./store.js";
import { duration, short, shortDuration } from "./words.js";

const HEIGHT = 120;
const TOGETHER = 3; // buckets that are counted as one where they are too narrow to be seen
const WHOLE_STEPS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].flatMap((one) => [one, 2 * one, 5 * one]);
// seconds between two labels of a time axis, so that each is a short whole number
const TIME_STEPS = [
  ...[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30],
  ...[1, 2, 5, 10, 20, 30, 60, 120, 300, 600].map((minutes) => 60 * minutes),
];
const OUTCOMES = ["failed", "exhausted", "fallback", "retried", "repaired", "clean"];

const CHARTS = [
  {
    title: "Requests",
    unit: (value) => short(Math.round(value)),
    lines: OUTCOMES.map((kind) => ({ kind, of: (point) => point[kind] })),
    isStacked: true,
    isSum: true,
  },
  {
    title: "Time to the first token",
    unit: duration,
    label: shortDuration,
    lines: [
      { kind: "median", of: (point) => point.median },
      { kind: "p95", of: (point) => point.p95 },
    ],
    isDotted: true,
  },
  {
    title: "Tokens",
    unit: (value) => short(Math.round(value)),
    lines: [
      { kind: "prompt", of: (point) => point.prompt },
      { kind: "output", of: (point) => point.output },
    ],
    isSum: true,
  },
  {
    title: "In flight",
    unit: (value) => short(Math.round(value)),
    lines: [
      { kind: "running", of: (point) => point.running },
      { kind: "waiting", of: (point) => point.waiting },
    ],
    isStepped: true,
  },
];

export class Charts {
  constructor() {
    this.holder = document.createElement("section");
    this.holder.className = "charts";
    this.holder.setAttribute("aria-label", "The last fifteen minutes");
    this.made = [];
    this.width = 0;
    this.data = null;
    new ResizeObserver(() => this.#resize()).observe(this.holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#make());
  }

  update(points, step, now) {
    const filled = series(points, step, now);
    const wide = together(filled, step * TOGETHER);
    this.data = CHARTS.map((chart) => {
      const points = chart.isSum ? wide : filled;
      return [points.map((point) => point.at), ...values(chart, points)];
    });
    if (!this.made.length) this.#make();
    this.made.forEach((plot, at) => plot.setData(this.data[at]));
  }

  #resize() {
    const width = this.made[0]?.root.parentElement.clientWidth;
    if (width && width !== this.width) {
      this.width = width;
      this.made.forEach((plot) => plot.setSize({ width, height: HEIGHT }));
    }
  }

  #make() {
    if (!this.data) return;
    this.made.forEach((plot) => plot.destroy());
    this.holder.replaceChildren();
    const style = getComputedStyle(document.documentElement);
    this.made = CHARTS.map((chart, at) => {
      const figure = document.createElement("figure");
      figure.className = "card";
      const caption = document.createElement("figcaption");
      caption.append(chart.title, legend(chart));
      const place = document.createElement("div");
      figure.append(caption, place);
      this.holder.append(figure);
      return new uPlot(options(chart, style, place.clientWidth || 300), this.data[at], place);
    });
    this.width = 0;
    this.#resize();
  }
}

/** Add neighbouring buckets up. */
function together(points, seconds) {
  const sums = new Map();
  for (const point of points) {
    const at = Math.floor(point.at / seconds) * seconds;
    const sum = sums.get(at) ?? { at };
    for (const kind of [...OUTCOMES, "prompt", "output"]) sum[kind] = (sum[kind] ?? 0) + point[kind];
    sums.set(at, sum);
  }
  return [...sums.values()];
}

function legend(chart) {
  const keys = document.createElement("span");
  keys.className = "legend";
  const shown = chart.isStacked ? [] : chart.lines;
  for (const { kind } of shown) {
    const swatch = document.createElement("i");
    swatch.className = `swatch ${kind}`;
    keys.append(swatch, kind);
  }
  return keys;
}

function values(chart, points) {
  const lines = chart.lines.map(({ of }) => points.map(of));
  if (!chart.isStacked) return lines;
  // each stands on those before it; the last one is drawn first, behind the others
  const sum = new Array(points.length).fill(0);
  return lines.map((line) => line.map((value, at) => (sum[at] += value))).reverse();
}

function options(chart, style, width) {
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const font = `11px ${style.getPropertyValue("--font")}`;
  const axis = {
    stroke: color("muted"),
    font,
    ticks: { show: false },
    grid: { stroke: color("line"), width: 1 },
  };
  const kinds = chart.isStacked ? [...chart.lines].reverse() : chart.lines;
  return {
    width,
    height: HEIGHT,
    padding: [8, 12, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false } },
    scales: {
      x: { time: true },
      y: { range: (_, __, most) => [0, Math.max(chart.unit === duration ? 0.1 : 4, most * 1.1)] },
    },
    axes: [
      { ...axis, grid: { show: false }, size: 22, splits: fives, values: minutes },
      {
        ...axis,
        incrs: chart.unit === duration ? TIME_STEPS : WHOLE_STEPS,
        size: 44,
        space: 34,
        values: (_, splits) => splits.map((one) => (one ? (chart.label ?? chart.unit)(one) : "0")),
      },
    ],
    series: [{}, ...kinds.map(({ kind }) => drawn(chart, color(`c-${kind}`)))],
  };
}

function fives(plot) {
  const { max } = plot.scales.x;
  return [870, 600, 300, 0].map((ago) => max - ago);
}

function minutes(plot, splits) {
  const { max } = plot.scales.x;
  return splits.map((at) => (at === max ? "now" : `−${Math.ceil((max - at) / 60)} min`));
}

function drawn(chart, color) {
  if (chart.isStacked) {
    const paths = uPlot.paths.bars({ size: [0.85, 12], gap: 0 });
    return { paths, fill: color, stroke: color, width: 0, points: { show: false } };
  }
  if (chart.isDotted) {
    return { stroke: color, width: 1.5, spanGaps: true, points: { show: true, size: 4, fill: color } };
  }
  const paths = chart.isStepped ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
  return { stroke: color, width: 1.5, paths, points: { show: false } };
}
