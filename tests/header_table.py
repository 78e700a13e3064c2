"""Every header that Temper reads or writes, and its meaning."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Header:
    """A header that clients send (`in`), that Temper sends (`out`), or both (`in and out`)."""

    direction: str
    name: str
    meaning: str


HEADERS = (
    Header(
        "in", "x-temper-text-policy", "`auto`, `accept`, `respond` or `require` for this request"
    ),
    Header(
        "in",
        "x-temper-guardrails",
        "`on`, `observe` (report interventions without making them) or `off` for this request",
    ),
    Header("in", "x-temper-compaction", "`auto`, `report` or `off` for this request"),
    Header(
        "in",
        "x-temper-priority",
        "`high`, `normal` or `low`: the priority in the queue, at most the one that"
        " `server.priorities` allows for the key",
    ),
    Header("in and out", "x-request-id", "the id of the request; Temper adds it if it is missing"),
    Header(
        "in",
        "idempotency-key",
        "a repeated key with the same request receives the same response within five minutes, with"
        " one generation; workers and replicas share keys only with `state.url`",
    ),
    Header("out", "x-temper-attempts", "number of generations"),
    Header("out", "x-temper-version", "Temper's version, in Ollama's `GET /api/version`"),
    Header("out", "x-temper-outcome", "`clean`, `repaired`, `retried`, `fallback` or `exhausted`"),
    Header("out", "x-temper-repairs", "the repairs, e.g. `rescued=hermes;coerced=2`"),
    Header(
        "out",
        "x-temper-context",
        "the compaction of the conversation, e.g. `n_ctx=8192; sent=6100; client=14020; tier=1;"
        " cleared=12; folded=0; epoch=2`: window; tokens after and before;"
        " [tier](../context.md); shortened results; steps in the digest; number of cuts."
        " `answer=96` is the space for the answer if it is less than usual; `filled=1` means that"
        " the answer ended because the window was full",
    ),
    Header(
        "out",
        "x-temper-tools",
        "calls of the operator's and Temper's own tools by server, e.g. `search=2, time=1`",
    ),
    Header(
        "out",
        "x-temper-fallback",
        "the [other model](../guides/getting-a-model.md#a-last-attempt-at-another-model) and the"
        " result of its attempt, e.g. `big=answered`",
    ),
    Header(
        "out",
        "x-temper-state",
        "`alone` if other replicas do not know this response, because the store at `state.url` is"
        " unavailable",
    ),
    Header(
        "out",
        "x-temper-backend",
        "the backend server that generated the response; in a stream that of the first attempt",
    ),
    Header(
        "in and out",
        "x-temper-prefix",
        "16 hexadecimal digits that identify the conversation, for load balancers",
    ),
    Header(
        "in",
        "x-session-id",
        "the client's session, which identifies the conversation instead of its beginning;"
        " `session_id`, `x-session-affinity` and similar names are also accepted",
    ),
)
