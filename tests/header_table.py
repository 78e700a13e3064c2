"""Every header that Temper reads or writes, and its meaning."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Header:
    """A header: whether clients send it (`in`), Temper does (`out`), or both."""

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
        "`on`, `observe` (change nothing, report what would be done) or `off` for this request",
    ),
    Header("in", "x-temper-compaction", "`auto`, `report` or `off` for this request"),
    Header(
        "in",
        "x-temper-priority",
        "`high`, `normal` or `low`: whom this request waits behind, at most what"
        " `server.priorities` gives its key",
    ),
    Header("in and out", "x-request-id", "taken over, or made when absent"),
    Header(
        "in",
        "idempotency-key",
        "the same key and request within five minutes: the same answer, generated once; of several"
        " workers or replicas each remembers the keys that it heard itself, unless they share them"
        " (`state.url`)",
    ),
    Header("out", "x-temper-attempts", "generations that were asked for"),
    Header("out", "x-temper-version", "Temper's own version, where Ollama's is answered"),
    Header("out", "x-temper-outcome", "`clean`, `repaired`, `retried` or `exhausted`"),
    Header("out", "x-temper-repairs", "what was repaired, e.g. `rescued=hermes;coerced=2`"),
    Header(
        "out",
        "x-temper-context",
        "how the conversation was fitted into the window, e.g. `n_ctx=8192; sent=6100;"
        " client=14020; tier=1; cleared=12; folded=0; epoch=2`; `answer=96` if so little is left"
        " for it, `filled=1` if it ended because the window was full",
    ),
    Header(
        "out",
        "x-temper-tools",
        "calls of the operator's tools by their servers, e.g. `search=2, time=1`",
    ),
    Header(
        "out",
        "x-temper-state",
        "`alone` on an answer that other replicas should know, and do not: the store at `state.url`"
        " cannot be used",
    ),
    Header("out", "x-temper-backend", "the server that answered"),
    Header(
        "in and out",
        "x-temper-prefix",
        "16 hexadecimal digits that name the conversation, for balancers",
    ),
    Header(
        "in",
        "x-session-id",
        "the client's session, which names the conversation instead; `session_id`,"
        " `x-session-affinity` and the like are read as well",
    ),
)
