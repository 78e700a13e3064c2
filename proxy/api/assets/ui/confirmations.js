// Calls that wait for approval: the arguments, and the two buttons.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { count, duration, plural } from "./words.js";

const LONG = 400; // characters; more may have to be scrolled to
const SETTLING = 0.6; // seconds

/** Whether the calls have just moved: a click may be meant for the previous call there. */
export function areSettling(store, now) {
  return now - store.moved < SETTLING;
}

export function confirmations(store, view, now, actions) {
  const calls = store.confirmations;
  return html`
    <p class="unseen" aria-live="assertive">${announced(calls)}</p>
    ${calls.length || view.answerFailure
      ? html`<section class="questions" aria-label="Calls waiting for approval">
          ${repeat(calls, (call) => call.id, (call) => question(call, store, view, now, actions))}
          ${view.answerFailure
            ? html`<p class="problem" role="alert">${view.answerFailure}</p>`
            : nothing}
        </section>`
      : nothing}
  `;
}

function announced(calls) {
  if (!calls.length) return "";
  const names = calls.map((call) => `${call.server}.${call.tool}`).join(", ");
  return `${plural(calls.length, "call is", "calls are")} waiting for your approval: ${names}`;
}

function question(call, store, view, now, actions) {
  const left = Math.max(0, Math.ceil(call.until - now));
  const name = `${call.server}.${call.tool}`;
  return html`<article class="card question" tabindex="-1" aria-label="${name} is waiting for your approval">
    <header>
      <h2>Allow the call of <code>${name}</code>?</h2>
      <p class="muted" title="then the call is refused">${left < 90 ? `${left} s` : duration(left)} left</p>
    </header>
    <pre tabindex="0" aria-label="Arguments">${call.arguments}</pre>
    ${call.arguments.length > LONG
      ? html`<p class="muted">${count(call.arguments.length)} characters in total.</p>`
      : nothing}
    <footer>
      ${store.about?.read_only
        ? html`<p class="muted">The dashboard is read-only (ui.read_only).</p>`
        : answers(call, areSettling(store, now), actions)}
      <p class="muted">
        ${call.client ? html`Requested by ${call.client}. ` : nothing}
        ${call.request ? html`<a href="#request/${call.request}">Show the request</a>` : nothing}
      </p>
    </footer>
  </article>`;
}

function answers(call, isSettling, actions) {
  return [
    ["Allow", true, "primary"],
    ["Refuse", false, ""],
  ].map(
    ([label, allow, kind]) => html`<button
      type="button"
      class=${kind}
      aria-disabled=${isSettling}
      @click=${() => actions.answer(call.id, allow)}
    >${label}</button>`,
  );
}
