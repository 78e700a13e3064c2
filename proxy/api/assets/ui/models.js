// The summary line, and a card for each model.

import { html, nothing, svg } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { MODEL_STATES, OUTCOMES, count, percent, plural, short, summary, visible } from "./words.js";

const KINDS = ["clean", "repaired", "retried", "fallback", "exhausted", "failed", "left"];

export function line(totals, span, service, actions) {
  const counts = totals[span]?.[service] ?? null;
  const told = counts?.requests ? summary(counts) : null;
  return html`
    <section class="line" aria-label="Summary">
      <div class="line-head">
        <p class="headline" aria-live="polite">
          ${told
            ? html`<strong>${told.requests}</strong>, <span>${told.help}</span>`
            : html`<strong>No requests</strong>
                <span>${span === "hour" ? "in the last hour" : "since the start"}</span>`}
        </p>
        <div class="switch" role="group" aria-label="Time span">
          ${[["hour", "Last hour"], ["start", "Since start"]].map(
            ([value, label]) => html`<button
              type="button"
              aria-pressed=${span === value}
              @click=${() => actions.setSpan(value)}
            >${label}</button>`,
          )}
        </div>
      </div>
      ${counts?.requests ? proportions(counts) : html`<div class="proportions empty"></div>`}
      <p class="line-foot">
        ${counts?.requests
          ? KINDS.filter((kind) => counts[kind]).map(
              (kind) => html`<span class="key"
                ><i class="swatch ${kind}"></i>${count(counts[kind])} ${OUTCOMES[kind]}</span
              >`,
            )
          : html`<span class="muted">Set a client's base URL to
              <code>${location.origin}/v1</code>.</span>`}
        ${told?.cache ? html`<span class="key cache">${told.cache}</span>` : nothing}
      </p>
    </section>
  `;
}

function proportions(counts) {
  let x = 0;
  const bars = KINDS.filter((kind) => counts[kind]).map((kind) => {
    const width = (1000 * counts[kind]) / counts.requests;
    const bar = svg`<rect class=${kind} x=${x} y="0" width=${width} height="10"></rect>`;
    x += width;
    return bar;
  });
  return html`<svg
    class="proportions"
    viewBox="0 0 1000 10"
    preserveAspectRatio="none"
    role="img"
    aria-label="Shares of the outcomes"
  >${bars}</svg>`;
}

export function cards(models, totals, selected, actions) {
  return html`
    <section aria-label="Models" class="cards">
      ${repeat(models, (model) => model.title, (model) => card(model, totals, selected, actions))}
    </section>
  `;
}

function card(model, totals, selected, actions) {
  const counts = totals.hour?.[model.title];
  const isChosen = selected === model.title;
  return html`
    <article class="card model-card">
      <header>
        <i class="state ${model.state}"></i>
        <h2 title=${model.backend}>${visible(model.name)}</h2>
        <span class="muted">${MODEL_STATES[model.state] ?? model.state}</span>
      </header>
      ${model.problem ? html`<p class="problem">${visible(model.problem)}</p>` : nothing}
      <dl>
        <div><dt>Slots</dt><dd>${slots(model)}</dd></div>
        <div><dt>Waiting</dt><dd>${model.waiting}</dd></div>
        <div><dt>Window</dt><dd title="tokens per slot">${short(model.window)}</dd></div>
        <div><dt>In use</dt><dd title="estimated share of the context of all slots">${model.share === null
          ? "–"
          : percent(model.share, 1)}</dd></div>
        <div><dt>This hour</dt><dd>${counts ? count(counts.requests) : 0}</dd></div>
        <div><dt>Interventions</dt><dd>${counts
          ? count(counts.repaired + counts.retried)
          : 0}</dd></div>
      </dl>
      ${model.presets.length
        ? html`<p class="muted">Presets: ${visible(model.presets.join(", "))}</p>`
        : nothing}
      ${model.tuned ? html`<p class="muted">Tuned: ${visible(model.tuned)}</p>` : nothing}
      ${model.lacks.length
        ? html`<p class="muted" title="Rejected by the engine; Temper sends requests without it"
            >Unsupported: ${model.lacks.join(", ")}</p>`
        : nothing}
      ${model.restarts
        ? html`<p class="muted">${plural(model.restarts, "restart")}</p>`
        : nothing}
      ${actions.isOnly
        ? nothing
        : html`<button
            type="button"
            class="quiet"
            aria-pressed=${isChosen}
            @click=${() => actions.chooseModel(isChosen ? "" : model.title)}
          >${isChosen ? "Show all models" : "Show only this model"}</button>`}
    </article>
  `;
}

function slots(model) {
  if (model.slots === null) return html`${model.busy}<span class="muted"> busy</span>`;
  const dots = Math.min(model.slots, 12);
  return html`<span class="slots" title="${model.busy} of ${model.slots} busy"
    >${Array.from({ length: dots }, (_, at) => html`<i class=${at < model.busy ? "busy" : ""}></i>`)}
    <span>${model.busy}<span class="muted">/${model.slots}</span></span></span
  >`;
}
