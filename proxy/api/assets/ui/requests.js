// The table of requests and its filters.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import {
  OUTCOMES,
  clock,
  duration,
  kindOf,
  modelOf,
  newsOf,
  placeOf,
  presetOf,
  short,
  statusOf,
  utc,
} from "./words.js";

const FIRST = `curl ${location.origin}/v1/chat/completions \\
  -H 'content-type: application/json' \\
  -d '{"model": "default", "messages": [{"role": "user", "content": "Hello"}]}'`;

export function toolbar(view, models, actions) {
  const { filter } = view;
  return html`
    <form class="toolbar" role="search" @submit=${(event) => event.preventDefault()}>
      <input
        id="filter"
        type="search"
        autocomplete="off"
        spellcheck="false"
        placeholder="Filter by id, model, tool or text"
        aria-label="Filter requests"
        .value=${filter.text}
        @input=${(event) => actions.setFilter({ text: event.target.value })}
      />
      ${models.length > 1
        ? html`<select
            aria-label="Model"
            .value=${filter.model}
            @change=${(event) => actions.setFilter({ model: event.target.value })}
          >
            <option value="">All models</option>
            ${models.map((one) => html`<option value=${one.title}>${one.name}</option>`)}
          </select>`
        : nothing}
      <select
        aria-label="Outcome"
        .value=${filter.outcome}
        @change=${(event) => actions.setFilter({ outcome: event.target.value })}
      >
        <option value="">All outcomes</option>
        <option value="live">in progress</option>
        ${Object.entries(OUTCOMES).map(
          ([value, label]) => html`<option value=${value}>${label}</option>`,
        )}
      </select>
      <button
        type="button"
        id="repaired"
        aria-pressed=${filter.repaired}
        @click=${() => actions.setFilter({ repaired: !filter.repaired })}
      >Needed help only</button>
    </form>
  `;
}

export function table(rows, models, view, now, actions) {
  if (!rows.length) return blank(view);
  const shown = rows.slice(0, view.limit);
  const hasClients = shown.some((row) => row.client);
  return html`
    <table class="requests ${hasClients ? "with-clients" : ""}">
      <thead>
        <tr>
          <th scope="col" class="time">Time</th>
          <th scope="col" class="status">Status</th>
          <th scope="col" class="model">Model</th>
          ${hasClients ? html`<th scope="col" class="client">Client</th>` : nothing}
          <th scope="col">What happened</th>
          <th scope="col" class="number took">Took</th>
          <th scope="col" class="number tokens">Tokens</th>
          <th scope="col" class="window">Window</th>
        </tr>
      </thead>
      <tbody>
        ${repeat(
          shown,
          (row) => row.id,
          (row) => line(row, models, view.selected === row.id, hasClients, now, actions),
        )}
      </tbody>
    </table>
    ${rows.length > shown.length
      ? html`<button type="button" class="more" @click=${actions.showMore}>
          Show more (${rows.length - shown.length})
        </button>`
      : nothing}
  `;
}

function line(row, models, isSelected, hasClients, now, actions) {
  const kind = kindOf(row);
  const news = placeOf(row, models) || newsOf(row);
  const preset = presetOf(row, models);
  return html`
    <tr
      id="row-${row.id}"
      class=${kind ? "" : "live"}
      aria-selected=${isSelected}
      tabindex=${isSelected ? 0 : -1}
      @click=${() => actions.open(row.id)}
    >
      <td class="time"><time title=${utc(row.at)}>${clock(row.at)}</time></td>
      <td class="status"><i class="dot ${kind ?? "living"} ${row.phase}"></i>${statusOf(row)}</td>
      <td class="model" title=${row.model ?? ""}>${modelOf(row, models)}${preset
        ? html` <span class="preset">${preset}</span>`
        : nothing}</td>
      ${hasClients ? html`<td class="client" title=${row.client}>${row.client || "–"}</td>` : nothing}
      <td class="news" title=${row.repairs.join("\n") || news}>${news}</td>
      <td class="number took">${duration(kind ? row.seconds : Math.max(0, now - row.at))}</td>
      <td class="number tokens">${tokens(row)}</td>
      <td class="window">${gauge(row.context)}</td>
    </tr>
  `;
}

function tokens(row) {
  const { prompt, cached, output } = row.tokens;
  if (prompt === null && output === null) return html`<span class="muted">–</span>`;
  const told = `${prompt ?? "?"} prompt (${cached ?? "?"} from the cache), ${output ?? "?"} output`;
  return html`<span title=${told}
    >${short(prompt)}<span class="muted"> → </span>${short(output)}</span
  >`;
}

export function gauge(context) {
  if (!context) return html`<span class="muted">–</span>`;
  const share = Math.min(1, context.sent / context.n_ctx);
  const title = `${context.sent} of ${context.n_ctx} tokens`;
  return html`<svg
    class="gauge ${share >= 0.9 ? "full" : ""}"
    viewBox="0 0 48 6"
    role="img"
    aria-label=${title}
  ><title>${title}</title>
    <rect class="room" width="48" height="6" rx="3"></rect>
    <rect class="used" width=${Math.max(3, 48 * share)} height="6" rx="3"></rect>
  </svg>`;
}

function blank(view) {
  const { filter } = view;
  const isFiltered = filter.text || filter.model || filter.outcome || filter.repaired;
  return isFiltered
    ? html`<p class="blank"><strong>No matching requests.</strong> Press Esc to clear the filter.</p>`
    : html`<div class="blank"><strong>No requests yet.</strong>
        Requests appear here while they run. Try one:
        <pre>${FIRST}</pre></div>`;
}
