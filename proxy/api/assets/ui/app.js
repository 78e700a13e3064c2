// The page: puts the views together, listens to the feed, to keys and to the address.

import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import { Charts } from "./charts.js";
import { areSettling, confirmations } from "./confirmations.js";
import { curl, detail } from "./detail.js";
import { follow, get, knownKey, post, rememberKey } from "./feed.js";
import { cards, line } from "./models.js";
import { table, toolbar } from "./requests.js";
import * as stores from "./store.js";
import { toolServers } from "./tool-servers.js";
import { duration, kindOf } from "./words.js";

const ROWS_AT_FIRST = 100;
const CALM = 2000; // milliseconds without a new state, after which older rows are asked for
const KEYS = [
  ["j", "the next request"],
  ["k", "the previous request"],
  ["Enter", "open the request"],
  ["Esc", "close the request, or clear the filter"],
  ["/", "filter"],
  ["r", "show only requests with interventions"],
  ["c", "go to the call waiting for approval"],
  ["?", "show these keys"],
];

const AGAIN = 700; // milliseconds until calls that have moved can be answered

const root = document.getElementById("app");
const charts = new Charts();
let store = stores.empty();
let view = {
  link: "connecting",
  filter: stores.NO_FILTER,
  span: "hour",
  selected: null,
  open: null,
  limit: ROWS_AT_FIRST,
  hasHelp: false,
  problem: "",
  curl: "",
  copied: false,
  ending: null,
  failure: "",
  answerFailure: "",
};
let exchange = null; // of the open request; null while it is being loaded
let older = null; // an open request that is no longer in the table
let isDue = false;
let calm = 0; // the timer of that
root.replaceChildren();

function now() {
  return Date.now() / 1000 + store.skew;
}

function change(changed) {
  view = { ...view, ...changed };
  draw();
}

function draw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    const hadFocus = document.activeElement?.closest(".question");
    render(page(), root);
    // whoever answers by keyboard goes on with the next one
    if (hadFocus && !hadFocus.isConnected) document.querySelector(".question")?.focus();
    const waiting = store.confirmations.length;
    document.title = waiting ? `(${waiting}) Temper` : "Temper";
    if (store.about) charts.update(store.points, store.about.step, now());
  });
}

const actions = {
  setSpan: (span) => change({ span }),
  setFilter: (changed) => change({ filter: { ...view.filter, ...changed }, limit: ROWS_AT_FIRST }),
  chooseModel: (model) => actions.setFilter({ model }),
  showMore: () => change({ limit: view.limit + 200 }),
  open: (id) => {
    location.hash = `request/${id}`;
  },
  close: () => {
    history.replaceState(null, "", location.pathname + location.search);
    show();
  },
  end: async (id) => {
    if (view.ending !== id) return change({ ending: id, failure: "" });
    change({ ending: null, failure: "" });
    try {
      await post(`requests/${id}/cancel`, {});
    } catch (error) {
      change({ failure: error.message });
    }
  },
  answer: async (id, allow) => {
    if (areSettling(store, now())) return;
    change({ answerFailure: "" });
    try {
      await post(`confirmations/${id}`, { allow });
      store = stores.answered(store, id, Date.now() / 1000);
    } catch (error) {
      change({ answerFailure: error.message });
    }
    redrawLater();
    draw();
  },
  copy: async (shown) => {
    const text = curl(shown, location.origin, Boolean(knownKey()));
    try {
      await navigator.clipboard.writeText(text);
      change({ copied: true });
    } catch {
      change({ curl: text }); // a page without TLS may not write to the clipboard
    }
  },
  download: (row, shown) => {
    const link = document.createElement("a");
    const url = URL.createObjectURL(new Blob([`${shown.line}\n`], { type: "application/jsonl" }));
    link.href = url;
    link.download = `temper-${row.id}.jsonl`;
    link.click();
    URL.revokeObjectURL(url);
  },
};

function rows() {
  return stores.visibleRows(store, view.filter, kindOf);
}

function page() {
  if (view.link === "refused") return door();
  const { models, totals, about } = store;
  const service = view.filter.model;
  const row = store.rows.get(view.open) ?? older;
  actions.isOnly = models.length < 2;
  const seen = { ...view, readOnly: about?.read_only };
  return html`
    ${bar()} ${confirmations(store, view, now(), actions)}
    <main class=${row ? "with-detail" : ""}>
      <div class="overview">
        ${about?.workers > 1
          ? html`<p class="note">Worker ${about.worker} of ${about.workers}: counts include all
              workers; requests, charts and slots are of this worker only.</p>`
          : nothing}
        ${line(totals, view.span, service, actions)} ${cards(models, totals, service, actions)}
        ${toolServers(store.toolServers)} ${charts.holder}
        <section aria-label="Requests" class="card list">
          ${toolbar(view, models, actions)} ${about ? table(rows(), models, view, now(), actions) : nothing}
        </section>
      </div>
      ${row ? detail(row, models, exchange, now(), seen, actions) : nothing}
    </main>
    ${view.hasHelp ? help() : nothing}
  `;
}

function bar() {
  const told = { live: "live", lost: "reconnecting", connecting: "connecting" }[view.link];
  const { about } = store;
  return html`<header class="bar">
    <h1><svg viewBox="0 0 16 16" aria-hidden="true"><path d="M3.5 4.5h9M8 4.5v8"></path></svg>Temper</h1>
    <span class="link ${view.link}" role="status"><i></i>${told}</span>
    <span class="about muted">${about
      ? html`${about.version}<span class="up"> · up ${duration(now() - about.started)}</span>`
      : nothing}</span>
    <button
      type="button"
      class="quiet help-button"
      aria-label="Keys"
      @click=${() => change({ hasHelp: !view.hasHelp })}
    >?</button>
  </header>`;
}

function door() {
  return html`<main class="door">
    <form
      class="card"
      @submit=${(event) => {
        event.preventDefault();
        rememberKey(new FormData(event.target).get("key").trim());
        listen();
      }}
    >
      <h1>Temper</h1>
      <p>The dashboard shows the requests of all clients, so it requires the operator's key.</p>
      <label for="key">Key</label>
      <input id="key" name="key" type="password" autocomplete="off" required />
      ${view.problem ? html`<p class="problem" role="alert">${view.problem}</p>` : nothing}
      <button type="submit" class="primary">Open</button>
      <p class="muted">Use <code>server.api_key</code>, or a key listed in
        <code>ui.owners</code>. It is stored in this tab only.</p>
    </form>
  </main>`;
}

function help() {
  return html`<div class="veil" @click=${() => change({ hasHelp: false })}>
    <div class="card keys" role="dialog" aria-label="Keys">
      <h2>Keys</h2>
      <dl>${KEYS.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    </div>
  </div>`;
}

/** Show the request that the address names, or none. */
async function show() {
  const id = location.hash.startsWith("#request/") ? location.hash.slice(9) : null;
  exchange = null;
  older = null;
  change({
    open: id,
    selected: id ?? view.selected,
    ending: null,
    failure: "",
    curl: "",
    copied: false,
  });
  if (id === null) return;
  if (!store.rows.has(id)) older = await get(`requests/${id}`).catch(() => null);
  await load(id);
}

async function load(id) {
  let found;
  try {
    found = await get(`requests/${id}/exchange`);
  } catch (error) {
    found = { reason: error.code || "unknown", message: error.message };
  }
  if (view.open === id) {
    exchange = found;
    draw();
  }
}

/** Draw again once calls that have moved can be answered. */
function redrawLater() {
  setTimeout(draw, AGAIN);
}

function heard(event, data) {
  const before = store.rows.get(view.open);
  if (event === "state" || event === "confirmations") redrawLater();
  store = stores.apply(store, event, data, Date.now() / 1000);
  const after = store.rows.get(view.open);
  if (before && after && before.phase !== "over" && after.phase === "over") load(after.id);
  if (event === "state") {
    clearTimeout(calm);
    calm = setTimeout(loadOlder, CALM, data.requests);
  }
  draw();
}

/** Complete the table: a state has only the newest rows, and those that live. */
async function loadOlder(requests) {
  const first = requests.findLast((row) => row.phase === "over");
  if (!first) return;
  const { instance } = store.about;
  const found = await get(`requests?before=${first.id}`).catch(() => null);
  if (found === null || store.about.instance !== instance) return;
  store = stores.withOlder(store, first.id, found.requests);
  draw();
}

function listen() {
  change({ link: "connecting", problem: "" });
  follow(heard, (link, error) => {
    const problem = link === "refused" && knownKey() ? error.message : "";
    change({ link, problem });
    if (link === "live" && view.open) show();
  });
}

function move(step) {
  const shown = rows().slice(0, view.limit);
  const id = stores.neighbour(shown, view.selected, step);
  if (id === null) return;
  if (view.open) actions.open(id);
  change({ selected: id });
  requestAnimationFrame(() =>
    requestAnimationFrame(() => {
      const row = document.getElementById(`row-${id}`);
      row?.focus({ preventScroll: true });
      row?.scrollIntoView({ block: "nearest" });
    }),
  );
}

function escape() {
  if (view.hasHelp) return change({ hasHelp: false });
  if (view.open) return actions.close();
  document.activeElement?.blur();
  return change({ filter: stores.NO_FILTER });
}

const BY_KEY = {
  j: () => move(1),
  k: () => move(-1),
  Enter: () => view.selected && actions.open(view.selected),
  "/": () => document.getElementById("filter")?.focus(),
  c: () => document.querySelector(".question")?.focus(),
  r: () => actions.setFilter({ repaired: !view.filter.repaired }),
  "?": () => change({ hasHelp: !view.hasHelp }),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || view.link === "refused") return;
  if (event.key === "Escape") return escape();
  const place = event.target;
  const isBusy = place.closest?.("input, select, textarea, button, summary, a");
  if (isBusy || !Object.hasOwn(BY_KEY, event.key)) return;
  event.preventDefault();
  BY_KEY[event.key]();
});
addEventListener("hashchange", show);
setInterval(() => store.about && draw(), 1000); // seconds that pass
if (location.hash) show();
listen();
