// A card for each tool server.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { TOOL_SERVER_STATES, count } from "./words.js";

export function toolServers(servers) {
  if (!servers.length) return nothing;
  return html`<section aria-label="Tool servers" class="cards">
    ${repeat(servers, (server) => server.name, card)}
  </section>`;
}

function card(server) {
  const { protocol, asking, refused } = server;
  return html`<article class="card model-card tool-server">
    <header>
      <i class="state ${server.state}"></i>
      <h2 title=${server.transport === "tcp" ? "over HTTP" : "a program"}>${server.name}</h2>
      <span class="muted">${TOOL_SERVER_STATES[server.state] ?? server.state}</span>
    </header>
    ${server.problem ? html`<p class="problem">It ${server.problem}</p>` : nothing}
    <dl>
      <div><dt>Tools offered</dt><dd>${server.tools ?? "–"}${asking
        ? html`<span class="muted"> (${asking} ${asking === 1 ? "needs" : "need"} approval)</span>`
        : nothing}</dd></div>
      <div><dt>Calls</dt><dd>${count(server.calls)}</dd></div>
      <div><dt>Failed</dt><dd>${count(server.failures)}</dd></div>
      ${asking || refused ? html`<div><dt>Refused</dt><dd>${count(refused)}</dd></div>` : nothing}
      <div><dt>MCP</dt><dd>${protocol || "–"}</dd></div>
    </dl>
    ${server.failure ? html`<p class="muted">Last failure: ${server.failure}</p>` : nothing}
  </article>`;
}
