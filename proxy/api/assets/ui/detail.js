// One request: timeline, repairs, window, and the model's raw output.

import { html, nothing, svg } from "./vendor/lit-html/lit-html.js";
import { diff } from "./diff.js";
import {
  OUTCOMES_EXPLAINED,
  REASONS,
  clock,
  count,
  duration,
  kindOf,
  modelOf,
  newsOf,
  percent,
  placeOf,
  presetOf,
  rereadOf,
  statusOf,
  utc,
  visible,
} from "./words.js";

const MOST_SHOWN = 20_000; // characters of a text

export function detail(row, models, exchange, now, view, actions) {
  const kind = kindOf(row);
  const seconds = kind ? row.seconds : Math.max(0, now - row.at);
  return html`
    <aside class="detail" aria-label="Request" tabindex="-1">
      <header>
        <div>
          <h2><i class="dot ${kind ?? "living"}"></i>${statusOf(row)}</h2>
          <p class="muted">${OUTCOMES_EXPLAINED[kind] ?? living(row, models)}</p>
          ${row.problem ? html`<p class="problem">${row.problem}</p>` : nothing}
        </div>
        <button type="button" class="close" aria-label="Close" @click=${actions.close}>✕</button>
      </header>
      ${kind ? nothing : ending(row, view, actions)}
      ${times(row, seconds)} ${repairs(row)} ${beforeAfter(row, exchange)} ${context(row)} ${promptCache(row)}
      ${request(row, exchange, view, actions)} ${facts(row, models, seconds)}
    </aside>
  `;
}

function living(row, models) {
  if (row.phase === "asked_again") return newsOf(row);
  return placeOf(row, models) || (row.phase === "queued" ? "" : "The request is running.");
}

function ending(row, view, actions) {
  if (view.readOnly) return nothing;
  const isSure = view.ending === row.id;
  return html`<p class="ending">
    <button type="button" class=${isSure ? "danger" : ""} @click=${() => actions.end(row.id)}>
      ${isSure ? "Click again to cancel" : "Cancel this request"}
    </button>
    <span class="muted">${view.failure || "Frees its slot; the client receives an error."}</span>
  </p>`;
}

function times(row, seconds) {
  const total = Math.max(seconds, 0.001);
  const bars = [];
  if (row.queued) bars.push(["Waited", "for the model or a slot", 0, row.queued, "waited"]);
  const seen = row.attempts.findLastIndex((one) => one.begun <= (row.first_token ?? -1));
  row.attempts.forEach((one, at) => {
    const kind = one.error ? "failed" : one.defect ? "rejected" : "attempt";
    const model = one.model && `Sent to ${one.model}.`;
    const told = [one.how, model, one.told].filter(Boolean).join(" ");
    bars.push([`Attempt ${at + 1}`, told, one.begun, one.seconds, kind, at === seen]);
  });
  for (const tool of row.tools) {
    const isWaiting = tool.status === "waiting";
    const long = tool.seconds ?? total - tool.begun;
    const told = isWaiting ? "waiting for approval" : `on ${tool.server}: ${tool.status}`;
    if (tool.waited) {
      bars.push(["Waited", `for approval: ${tool.name}`, tool.begun - tool.waited, tool.waited, "waited"]);
    }
    bars.push([tool.name, told, tool.begun, long, isWaiting ? "waited" : "tool"]);
  }
  bars.sort(([, , begun], [, , other]) => begun - other);
  return html`
    <section>
      <h3>Timeline <span class="muted">${duration(seconds)}</span></h3>
      <ol class="timeline">
        ${bars.map(
          ([name, told, begun, long, kind, isSeen]) => html`<li>
            <span class="name">${name}</span>
            <svg viewBox="0 0 1000 8" preserveAspectRatio="none" aria-hidden="true">
              <rect class="track" width="1000" height="8"></rect>
              <rect
                class=${kind}
                x=${(1000 * begun) / total}
                width=${Math.max(6, (1000 * long) / total)}
                height="8"
              ></rect>
              ${isSeen ? mark(row.first_token, total) : nothing}
            </svg>
            <span class="number">${duration(long)}</span>
            <span class="told">${told}</span>
          </li>`,
        )}
      </ol>
      ${bars.length ? nothing : html`<p class="muted">No attempt was made.</p>`}
      ${row.first_token === null
        ? nothing
        : html`<p class="muted legend"><i class="mark"></i>first token after ${duration(
            row.first_token,
          )}</p>`}
    </section>
  `;
}

function mark(firstToken, total) {
  if (firstToken === null) return nothing;
  return svg`<rect class="first" x=${Math.min(994, (1000 * firstToken) / total)} width="6" height="8"></rect>`;
}

function repairs(row) {
  if (!row.repairs.length) return nothing;
  return html`<section>
    <h3>Repairs</h3>
    <ul class="repairs">${row.repairs.map((one) => html`<li>${one}</li>`)}</ul>
  </section>`;
}

function context(row) {
  const { context: shape, tokens } = row;
  if (!shape) return nothing;
  return html`<section>
    <h3>Window</h3>
    ${windowBar(shape, tokens)}
  </section>`;
}

function promptCache(row) {
  const { prompt, cached, reading } = row.tokens;
  const { reread, cache } = row;
  if (prompt === null && !cache) return nothing;
  const long = reading ?? reread?.seconds;
  const took = long === null || long === undefined ? "" : ` in ${duration(long)}`;
  const about = reread?.is_measured ? " (measured until the first token)" : "";
  return html`<section>
    <h3>Prompt cache</h3>
    ${prompt === null ? nothing : cached === null
      ? html`<p class="muted">The engine does not report cached tokens. Prompt: ${count(prompt)} tokens${took}${about}.</p>`
      : html`<p class="line-foot">
          <span class="key"><i class="swatch cached"></i>${count(cached)} tokens from the cache</span>
          <span class="key"><i class="swatch fresh"></i>${count(prompt - cached)} read${took}${about}</span>
        </p>`}
    ${reread
      ? html`<p class="note"><strong>${rereadOf(reread)}</strong> ${sentence(reread.reason)}
          ${cache ? `First difference: ${sectionOf(cache)}.` : ""}
          ${reread.cached === null ? "" : `Read after token ${count(reread.cached)}.`}</p>`
      : cache
        ? html`<p class="note">The prompt changed: ${cache.reason}.</p>`
        : nothing}
  </section>`;
}

function sectionOf({ place, role }) {
  if (place === null) return "the tools";
  if (place === 0 && ["system", "developer"].includes(role)) return "the system prompt";
  return `message ${place} (${role})`;
}

function sentence(clause) {
  return `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`;
}

function windowBar(shape, tokens) {
  const output = tokens.output ?? 0;
  const cached = Math.min(tokens.cached ?? 0, shape.sent);
  const parts = [
    ["cached", cached, "from the cache"],
    ["fresh", shape.sent - cached, "not cached"],
    ["answer", output, "answer"],
  ].filter(([, size]) => size > 0);
  let x = 0;
  const bars = parts.map(([kind, size]) => {
    const width = Math.max(3, (1000 * size) / shape.n_ctx);
    const bar = svg`<rect class=${kind} x=${x} width=${width} height="12"></rect>`;
    x += width;
    return bar;
  });
  const given = shape.client - shape.sent;
  return html`
    <svg class="window-bar" viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="1000" height="12"></rect>${bars}
    </svg>
    <p class="line-foot">
      ${parts.map(
        ([kind, size, name]) => html`<span class="key"
          ><i class="swatch ${kind}"></i>${count(size)} ${name}</span
        >`,
      )}
      <span class="key muted">of ${count(shape.n_ctx)} tokens, ${percent(
        shape.sent + output,
        shape.n_ctx,
      )} full</span>
    </p>
    ${given > 0
      ? html`<p class="note">The client sent ${count(shape.client)} tokens; ${count(given)} were
          removed: ${count(shape.cleared)} results shortened, ${count(shape.folded)} turns folded
          (tier ${shape.tier}${shape.is_new ? ", compacted at this request" : ""}).</p>`
      : nothing}
    ${shape.answer === null
      ? nothing
      : html`<p class="note">Only ${count(shape.answer)} tokens were left for the answer.</p>`}
  `;
}

function facts(row, models, seconds) {
  const { tokens } = row;
  const told = [
    ["Model", modelOf(row, models)],
    ["Preset", presetOf(row, models)],
    ["Backend", row.backend],
    ["Client", row.client],
    ["Priority", row.priority === "normal" ? null : row.priority],
    ["Path", row.path],
    ["Received at", html`<time title=${utc(row.at)}>${clock(row.at)}</time>`],
    ["Prompt", tokens.prompt === null ? null : `${count(tokens.prompt)} tokens`],
    ["From the cache", tokens.cached === null ? null : `${count(tokens.cached)} tokens`],
    ["Output", tokens.output === null ? null : output(tokens.output, row, seconds)],
    ["Finish reason", row.finish_reason],
    ["Status", row.status],
    ["Request id", html`<span class="id">${row.request_id}</span>`],
    ["Trace", row.trace && html`<span class="id">${row.trace}</span>`],
  ].filter(([, value]) => value !== null && value !== "" && value !== undefined);
  return html`<section>
    <h3>Details</h3>
    <dl class="facts">
      ${told.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>
  </section>`;
}

function output(tokens, row, seconds) {
  const long = seconds - (row.first_token ?? seconds);
  const speed = long > 0.05 && row.stream ? `, ${Math.round(tokens / long)} per second` : "";
  return `${count(tokens)} tokens${speed}`;
}

function beforeAfter(row, exchange) {
  return html`<section>
    <h3>Before and after</h3>
    ${exchange === null
      ? html`<p class="muted">Loading.</p>`
      : exchange.reason
        ? missing(exchange)
        : shownExchange(exchange)}
  </section>`;
}

function missing({ reason, message }) {
  const [title, remedy] = REASONS[reason] ?? [message, ""];
  return html`<p class="note"><strong>${title}</strong> ${remedy}</p>`;
}

function shownExchange(exchange) {
  const { generations } = exchange;
  const got = asText(exchange);
  const last = generations.at(-1);
  const [before, after] = diff(last ? asText(last) : "", got);
  return html`
    ${generations.slice(0, -1).map(
      (one) => html`${wrote(one, cut(asText(one)) || empty())} ${one.nudge.map(added)}`,
    )}
    <div class="sides">
      ${last ? wrote(last, marked(before)) : nothing}
      <div class="said got">
        <h4>The client received</h4>
        <pre>${got ? marked(after) : empty()}</pre>
      </div>
    </div>
    ${last ? last.nudge.map(added) : nothing}
  `;
}

function wrote(one, text) {
  return html`<div class="said">
    <h4>The model wrote</h4>
    ${one.thoughts
      ? html`<details><summary>Reasoning</summary><pre>${cut(one.thoughts)}</pre></details>`
      : nothing}
    <pre>${text}</pre>
  </div>`;
}

function added({ role, text }) {
  return html`<div class="said nudge">
    <h4>${addedBy(role)}</h4>
    <pre>${cut(text)}</pre>
  </div>`;
}

function addedBy(role) {
  if (role === "tool") return "Result of a tool that Temper ran";
  return html`Temper added <span class="muted">as ${role}</span>`;
}

function empty() {
  return html`<span class="muted">nothing</span>`;
}

function asText({ text, calls }) {
  const called = calls.map((call) => `${call.name}(${call.arguments})`);
  return [text, ...called].filter(Boolean).join("\n");
}

function marked(parts) {
  if (!parts.some((part) => part.text)) return empty();
  let room = MOST_SHOWN;
  return parts.map(({ text, changed }) => {
    const shown = visible(text.slice(0, Math.max(0, room)));
    room -= text.length;
    return changed ? html`<mark>${shown}</mark>` : shown;
  });
}

function cut(text) {
  const rest = text.length - MOST_SHOWN;
  const shown = visible(text.slice(0, MOST_SHOWN));
  return rest > 0 ? `${shown}\n… ${count(rest)} more characters` : shown;
}

function request(row, exchange, view, actions) {
  if (!exchange || exchange.reason) return nothing;
  const { messages = [], tools = [] } = exchange.request;
  return html`<section>
    <h3>Request</h3>
    ${messages.map(
      (message) => html`<details>
        <summary><b>${visible(String(message.role))}</b> <span class="muted">${opening(
          message,
        )}</span></summary>
        <pre>${cut(contentOf(message))}</pre>
      </details>`,
    )}
    ${tools.length
      ? html`<details>
          <summary><b>tools</b> <span class="muted">${visible(
            tools.map((tool) => tool.function?.name ?? tool.type).join(", "),
          ).slice(0, 200)}</span></summary>
          <pre>${cut(JSON.stringify(tools, null, 2))}</pre>
        </details>`
      : nothing}
    <p class="actions">
      <button type="button" @click=${() => actions.copy(exchange)}>
        ${view.copied ? "Copied" : "Copy as curl"}
      </button>
      <button type="button" @click=${() => actions.download(row, exchange)}>
        Download for temper replay
      </button>
    </p>
    ${view.curl ? html`<pre class="curl">${cut(view.curl)}</pre>` : nothing}
  </section>`;
}

function contentOf(message) {
  if (typeof message.content === "string" && !message.tool_calls) return message.content;
  return JSON.stringify(message, null, 2);
}

function opening(message) {
  return visible(contentOf(message).slice(0, 90).replace(/\s+/g, " "));
}

/** A curl command that repeats the request; it refers to a key by variable and never contains one. */
export function curl(exchange, origin, hasKey) {
  const body = JSON.stringify(exchange.request).replaceAll("'", `'\\''`);
  const key = hasKey ? ` -H "authorization: Bearer $TEMPER_KEY"` : "";
  return `curl ${origin}/v1/chat/completions -H 'content-type: application/json'${key} -d '${body}'`;
}
