// The state of the page, and how events of the feed change it. Pure: no document, no clock.

const MOST_OVER = 500;
const MOST_POINTS = 180;

export function empty() {
  return {
    about: null, // what does not change: version, instance, workers, ...
    skew: 0, // seconds by which the server's clock is ahead
    models: [],
    toolServers: [],
    confirmations: [], // calls that wait for a person, the oldest first
    moved: -Infinity, // when these have changed last
    totals: { hour: {}, start: {} },
    points: [],
    rows: new Map(), // by id
    order: [], // ids, the newest first
  };
}

/** Apply one event of the feed; `now` is a Unix time. */
export function apply(store, event, data, now) {
  switch (event) {
    case "state":
      return fromState(store, data, now);
    case "requests":
      return withRows(store, data.rows);
    case "models":
      return { ...store, models: data.models };
    case "tool_servers":
      return { ...store, toolServers: data.tool_servers };
    case "confirmations":
      return withConfirmations(store, data.confirmations, now);
    case "totals":
      return { ...store, totals: data.totals, points: joined(store.points, data.points) };
    default:
      return store;
  }
}

function fromState(store, state, now) {
  const { models, totals, points, requests, tool_servers, confirmations, ...about } = state;
  const told = { about, models, totals, points, toolServers: tool_servers };
  const fresh = { ...empty(), ...told, skew: state.now - now };
  // what is over stays as it is; a state has the newest rows only, so the others are kept
  const isSame = store.about?.instance === about.instance;
  const known = isSame ? [...store.rows.values()].filter((row) => row.phase === "over") : [];
  return withConfirmations(withRows(fresh, [...known, ...requests]), confirmations, now);
}

/** Take over the rows before `id`, which are all that there are; others are forgotten. */
export function withOlder(store, id, older) {
  const there = new Set(older.map((row) => row.id));
  const rows = new Map(store.rows);
  for (const row of store.rows.values()) {
    const isGone = row.phase === "over" && numberOf(row.id) < numberOf(id) && !there.has(row.id);
    if (isGone) rows.delete(row.id);
  }
  return withRows({ ...store, rows }, older);
}

/** Take over which calls wait for a person, until a moment of the server's clock. */
export function withConfirmations(store, calls, now) {
  const moment = now + store.skew;
  const waiting = calls.map((call) => ({ ...call, until: moment + call.seconds_left }));
  return { ...store, confirmations: waiting, moved: moment };
}

/** Leave out a call that was answered. */
export function answered(store, id, now) {
  const left = store.confirmations.filter((call) => call.id !== id);
  return { ...store, confirmations: left, moved: now + store.skew };
}

export function withRows(store, changed) {
  const rows = new Map(store.rows);
  for (const row of changed) rows.set(row.id, row);
  const order = [...rows.keys()].sort((one, other) => numberOf(other) - numberOf(one));
  let over = 0;
  const kept = order.filter((id) => {
    const stays = rows.get(id).phase !== "over" || ++over <= MOST_OVER;
    if (!stays) rows.delete(id);
    return stays;
  });
  return { ...store, rows, order: kept };
}

export function numberOf(id) {
  return Number(id.slice(id.indexOf("-") + 1));
}

function joined(points, latest) {
  const from = latest.length ? latest[0].at : Infinity;
  return [...points.filter((point) => point.at < from), ...latest].slice(-MOST_POINTS);
}

/** A value for each bucket of the last fifteen minutes; quiet ones are zero, or as before. */
export function series(points, step, now) {
  const by = new Map(points.map((point) => [point.at, point]));
  const last = Math.floor(now / step) * step;
  const filled = [];
  let before = { running: 0, waiting: 0 };
  for (let at = last - (MOST_POINTS - 1) * step; at <= last; at += step) {
    const point = by.get(at) ?? quiet(at, before);
    before = point;
    filled.push(point);
  }
  return filled;
}

function quiet(at, before) {
  return {
    at,
    clean: 0,
    repaired: 0,
    retried: 0,
    fallback: 0,
    exhausted: 0,
    failed: 0,
    left: 0,
    prompt: 0,
    output: 0,
    running: before.running,
    waiting: before.waiting,
    median: null,
    p95: null,
  };
}

export const NO_FILTER = { text: "", model: "", outcome: "", repaired: false };

/** The rows that a filter leaves, those that live first. */
export function visibleRows(store, filter, kindOf) {
  const text = filter.text.trim().toLowerCase();
  const fits = (row) =>
    (!filter.model || row.service === filter.model) &&
    (!filter.outcome || (kindOf(row) ?? "live") === filter.outcome) &&
    (!filter.repaired || row.repairs.length > 0) &&
    (!text || textOf(row).includes(text));
  const rows = store.order.map((id) => store.rows.get(id)).filter(fits);
  return [
    ...rows.filter((row) => row.phase !== "over"),
    ...rows.filter((row) => row.phase === "over"),
  ];
}

function textOf(row) {
  const tools = row.tools.map((tool) => `${tool.server} ${tool.name}`);
  const said = [row.id, row.request_id, row.model, row.client, row.trace, ...row.repairs, ...tools];
  return said.join(" ").toLowerCase();
}

/** The id that a step up or down leads to. */
export function neighbour(rows, selected, step) {
  if (!rows.length) return null;
  const at = rows.findIndex((row) => row.id === selected);
  if (at < 0) return rows[step > 0 ? 0 : rows.length - 1].id;
  return rows[Math.min(rows.length - 1, Math.max(0, at + step))].id;
}
