// Texts of the page: outcomes, phases, reasons, numbers and times. No side effects.

import { LEFT, OUTCOMES, OUTCOMES_EXPLAINED, PHASES } from "./vocabulary.js"; // by the server

export { LEFT, OUTCOMES, OUTCOMES_EXPLAINED, PHASES };

// reasons for a missing exchange: a title, and a remedy
export const REASONS = {
  recording_off: [
    "Exchanges are not stored.",
    "Start Temper with --keep, or set recording.keep_bytes. The latest requests and replies are " +
      "then kept in memory and shown here.",
  ],
  not_over: ["The request is still running.", "Its replies are shown when it has finished."],
  too_large: ["This exchange was too large to store.", "Increase recording.keep_bytes."],
  dropped: [
    "This exchange was removed to make room for later ones.",
    "Increase recording.keep_bytes.",
  ],
  not_understood: [
    "There is no exchange to show.",
    "The client disconnected, or the request was rejected, before it was decoded.",
  ],
  before_restart: [
    "This request is unknown.",
    "Temper, or the worker that handled it, has been restarted since.",
  ],
  request_forgotten: ["This request is no longer stored.", "Only the latest 500 requests are."],
};

export const MODEL_STATES = {
  loaded: "ready",
  loading: "loading",
  unloaded: "not loaded",
  failed: "not reachable",
  unknown: "checking",
};

export const TOOL_SERVER_STATES = {
  ready: "ready",
  starting: "starting",
  waiting: "restarting",
  down: "down",
  stopped: "stopped",
};

const whole = new Intl.NumberFormat("en");

/** The outcome of a row, a key of OUTCOMES; null while it is running. */
export function kindOf(row) {
  if (row.phase !== "over") return null;
  if (row.outcome) return row.outcome;
  return row.status === 499 ? "left" : "failed";
}

/** The queue position of a waiting row; empty for other rows. */
export function placeOf(row, models) {
  const queue = models.find((one) => one.title === row.service)?.queue ?? [];
  const place = row.phase === "queued" ? queue.indexOf(row.id) + 1 : 0;
  const rank = row.priority === "normal" ? "" : `, ${row.priority} priority`;
  return place ? `Position ${place} of ${queue.length} in the queue${rank}.` : "";
}

/** The preset that a row's request names, or an empty text. */
export function presetOf(row, models) {
  const card = models.find((one) => one.title === row.service);
  return card?.presets.includes(row.model) ? row.model : "";
}

/** The model of a row: with a preset, the model that the preset belongs to. */
export function modelOf(row, models) {
  return presetOf(row, models) ? row.service : row.model || "–";
}

/** The stage or outcome of a row, in a few words. */
export function statusOf(row) {
  const kind = kindOf(row);
  if (kind === "failed") return `failed ${row.status}`;
  return kind ? OUTCOMES[kind] : phaseOf(row);
}

export function phaseOf(row) {
  const isRetry = row.phase === "asked_again";
  const stage = isRetry ? `${PHASES.asked_again} (${row.attempts.length})` : PHASES[row.phase];
  if ((isRetry || row.phase === "reading") && row.progress !== null) {
    const share = Math.round(row.progress * 100);
    if (row.progress === 1) return isRetry ? stage : PHASES.streaming;
    return isRetry ? `${stage}, ${share} %` : `reading ${share} %`;
  }
  if (isRetry) return stage;
  if (row.phase === "running_tool") {
    const tool = row.tools.findLast((one) => one.status === "running");
    return tool ? `running ${tool.name}` : PHASES.running_tool;
  }
  if (row.phase === "waiting_for_person") {
    const tool = row.tools.find((one) => one.status === "waiting");
    if (tool) return `${PHASES.waiting_for_person}: ${tool.server}.${tool.name}`;
  }
  return PHASES[row.phase] ?? row.phase;
}

/** The most important event of a row in one sentence, or an empty text. */
export function newsOf(row) {
  if (row.phase === "asked_again") {
    const rejected = row.attempts.findLast((one) => one.told);
    if (rejected) return `Retrying: ${rejected.told}`;
  }
  if (kindOf(row) === "failed" && row.problem) return row.problem;
  if (row.repairs.length) {
    const more = row.repairs.length - 1;
    return more ? `${row.repairs[0]} +${more}` : row.repairs[0];
  }
  if (row.left) return `The client disconnected ${LEFT[row.left] ?? ""}.`;
  if (kindOf(row) === "failed") return row.attempts.at(-1)?.told || `Status ${row.status}.`;
  if (row.reread) return `${rereadOf(row.reread)}: ${row.reread.reason}.`;
  if (row.cache) return `The prompt changed: ${row.cache.reason}.`;
  return "";
}

/** The cost of a prompt that was read again. */
export function rereadOf({ prompt, cached, seconds }) {
  const read = cached === null ? `Up to ${count(prompt)}` : `${count(prompt - cached)} of ${count(prompt)}`;
  return `${read} tokens read again${seconds === null ? "" : ` (${duration(seconds)})`}`;
}

export function count(number) {
  return whole.format(number);
}

/** A number of tokens in at most four characters. */
export function short(number) {
  if (number === null || number === undefined) return "–";
  if (number < 1000) return String(number);
  const [by, unit] = number < 1e6 ? [1e3, "k"] : [1e6, "M"];
  const scaled = number / by;
  return (scaled < 9.95 ? scaled.toFixed(1) : Math.round(scaled)) + unit;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.0995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(seconds / 3600);
  if (hours < 48) return `${hours} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(hours / 24)} days`;
}

/** A time in at most seven characters, for an axis of 44 pixels. */
export function shortDuration(seconds) {
  if (seconds < 60) return duration(seconds);
  return seconds < 3600 ? `${+(seconds / 60).toFixed(1)} min` : `${+(seconds / 3600).toFixed(1)} h`;
}

export function percent(part, all) {
  return all ? `${Math.round((100 * part) / all)} %` : "–";
}

export function clock(at) {
  const time = new Date(at * 1000);
  return [time.getHours(), time.getMinutes(), time.getSeconds()]
    .map((part) => String(part).padStart(2, "0"))
    .join(":");
}

export function utc(at) {
  return new Date(at * 1000).toISOString().replace("T", " ").replace("Z", " UTC");
}

/** Control characters, bidi marks and lone surrogates made visible; line ends and tabs stay. */
export function visible(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** The summary of a time span: requests, interventions and the cache. */
export function summary(counts) {
  const help = counts.repaired + counts.retried + counts.fallback + counts.exhausted;
  return {
    requests: plural(counts.requests, "request"),
    help: help ? `${count(help)} needed help` : "none needed help",
    parts: [
      ...["repaired", "retried", "fallback", "exhausted", "failed"].map(
        (kind) => counts[kind] && `${count(counts[kind])} ${OUTCOMES[kind]}`,
      ),
      counts.left && `${count(counts.left)} disconnected`,
    ].filter(Boolean),
    cache: counts.measured ? `${percent(counts.cached, counts.measured)} of prompt tokens from the cache` : "",
  };
}
