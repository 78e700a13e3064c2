"""The rows of the fault table: each fault with its right outcome."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One fault; tests name it with `@pytest.mark.fault("F01")`."""

    id: str
    section: str
    fault: str
    outcome: str


def _rows(section: str, *rows: tuple[str, str, str]) -> tuple[Row, ...]:
    return tuple(Row(number, section, fault, outcome) for number, fault, outcome in rows)


ROWS = (
    *_rows(
        "Upstream",
        (
            "F01",
            "backend down",
            "at once: 503 with Retry-After if Temper starts the backend, else 502",
        ),
        (
            "F02",
            "backend accepts a request and never answers",
            "504 at the deadline; keep-alives to a streaming client",
        ),
        ("F03", "stall in the middle of a stream", "error event at the idle deadline"),
        (
            "F04",
            "minutes of prompt processing with progress events",
            "no error; keep-alives, and progress extends the deadline",
        ),
        ("F05", "half-close or incomplete body", "502; one retry if no byte had arrived"),
        (
            "F06",
            "reset in the middle of a stream",
            "error event; a partial call is never completed",
        ),
        ("F07", "garbage instead of HTTP", "502; the bytes appear only in the debug log"),
        (
            "F08",
            "no JSON, empty body, wrong content type, no choices",
            "502 backend_protocol_error; a valid body with a wrong content type is read",
        ),
        (
            "F09",
            "unusual server-sent events",
            "the same events at any chunking; a missing end counts as truncation",
        ),
        ("F10", "endless stream", "stopped at its bounds; the generation ends"),
        ("F11", "body of 1 GB", "rejected at 32 MB; memory stays flat"),
        (
            "F12",
            "errors of the backend, streamed or not",
            "the same status, in OpenAI's error format",
        ),
        ("F13", "503 while loading", "the request waits, then 503 with Retry-After"),
        ("F14", "429 with Retry-After", "passed on"),
        (
            "F15",
            "context overflow",
            "one retry with a shortened prompt, then 400 with the size of the prompt and of the "
            "window",
        ),
        (
            "F16",
            "reply that the backend cannot parse",
            "retry without the backend's parser; the raw body is never shown",
        ),
        ("F17", "broken history", "repaired in the same way every time, and reported"),
        ("F18", "Ollama truncates a prompt silently", "an error"),
        ("F19", "prompt that leaves no room for the user's message", "the message is kept"),
    ),
    *_rows(
        "Processes that Temper started",
        (
            "F20",
            "server killed in the middle of a stream",
            "error event, restart with back-off, circuit breaker",
        ),
        ("F21", "Temper killed with -9", "no server keeps running"),
        (
            "F22",
            "port in use, or a foreign server on it",
            "a separate port; a key proves the server's identity",
        ),
        ("F23", "SIGTERM during streams", "the streams finish within the grace time; exit code 0"),
        ("F24", "invalid GGUF, unknown flag", "the reason in one sentence, no endless restarts"),
        ("F25", "sleeping or unloaded model", "treated as loading"),
        (
            "F77",
            "a worker that is killed repeatedly; a limit of open files that is too low",
            "the worker is restarted while the others serve; an error in one sentence",
        ),
        (
            "F111",
            "a reload with several workers under load; a second one, or a stop, during it; a new "
            "worker that does not start",
            "no request is lost; one additional worker at most; without it the old ones continue",
        ),
    ),
    *_rows(
        "Clients",
        ("F26", "client disconnects while streaming", "the generation ends; no further attempt"),
        (
            "F27",
            "client disconnects while queued, before the first token, or between attempts",
            "the generation ends; work that has not begun never begins",
        ),
        ("F28", "client disconnects from a response that is not streamed", "the same"),
        ("F29", "slow reader", "a bounded buffer; the backend waits"),
        ("F30", "slow heads and bodies", "deadlines; other clients are served"),
        (
            "F31",
            "huge or compressed body",
            "413 before parsing, compressed or not; 400 if the body is damaged",
        ),
        ("F32", "deep, huge, ambiguous or badly encoded JSON", "400 with the position"),
        ("F33", "wrong types in every field", "400 with the field, never a 5xx"),
        ("F34", "request smuggling, thousands of headers", "400, and the connection is closed"),
        (
            "F35",
            "line breaks in names and ids",
            "400, or the value is replaced; none reaches a header or a path",
        ),
        ("F36", "unusual paths", "404"),
        (
            "F37",
            "listening beyond loopback without a key, key in the URL",
            "rejected; the key is ignored",
        ),
        (
            "F38",
            "DNS rebinding, cross-site posts, CORS",
            "403 for a foreign host, 415 for a form post, no CORS headers for a foreign origin",
        ),
        ("F39", "URLs in image_url", "never fetched, 400"),
        ("F40", "secrets", "in no log, error, metric or trace"),
        ("F41", "control characters in names and arguments", "escaped in logs"),
        (
            "F80",
            "a body with the maximum number of messages, items, parts, blocks, calls or tools: 1 "
            "MB of reasoning or system items, 12,000 tools, 5,000 calls with outputs, 6,000 "
            "namespaces",
            "linear work for each; a large body is parsed in a thread",
        ),
        (
            "F83",
            "200 feeds of the dashboard at once; a feed opened by a page of another site",
            "503 for feeds above the limit; 403 for the page",
        ),
        (
            "F74",
            "a stray byte after an answered request, a body that is never read, endless chunk "
            "extensions and trailers",
            "a deadline; the connection closes after its response; other clients are served",
        ),
        (
            "F75",
            "an invalid, incomplete or endless request after a request that is still being "
            "answered",
            "the response is complete; the error follows it",
        ),
        (
            "F102",
            "one key floods the stored responses, the idempotency keys, the queue of a model, or "
            "the calls waiting for approval",
            "entries of the key with the most entries are dropped; those of other keys are kept",
        ),
        (
            "F103",
            "escape sequences, line breaks and markup in names, errors and calls: `temper chat`, "
            "`models`, `top`, `doctor`, `tune`, `eval` and log lines; a long call for approval",
            "printed as visible text on one line; an approval shows the whole call",
        ),
        (
            "F76",
            "client that closes its sending side after its request",
            "the client receives its response; a closed connection is detected",
        ),
    ),
    *_rows(
        "Tool calls under attack",
        ("F42", "quoted calls", "no calls"),
        ("F43", "control tokens in content", "neutralized and reported"),
        (
            "F104",
            "a call inside reasoning, or inside a result that the model invented",
            "no call; the reasoning is separated, and the result is not shown",
        ),
        (
            "F105",
            "a reply that ends for an unknown reason, or because the engine failed",
            "the reply counts as truncated, and so does its last call; the reason is not passed on",
        ),
        (
            "F106",
            "control tokens in tools, forged reminders in results, results with the role "
            "`function` or of hosted tools",
            "escaped, and treated as data",
        ),
        ("F44", "floods of markup", "linear time; other clients are served"),
        ("F45", "truncated call", "never completed"),
        ("F46", "misspelled tool name", "corrected if there is one match"),
        ("F47", "colliding or missing ids", "unique ids and indexes"),
        (
            "F48",
            "a client's tool named `respond`, mixed and invalid calls of it",
            "Temper's tool gets another name, calls take precedence, text is kept",
        ),
        ("F49", "the text of nudges in a reply", "never shown"),
        ("F50", "required step that cannot be satisfied", "a bounded number of attempts"),
        (
            "F60",
            "call that becomes invalid after its beginning was streamed",
            "the call is completed with the same beginning, or the reply ends with `length` or "
            "an error event; half a call is never executed",
        ),
        (
            "F101",
            "schemas with small patterns that expand: 400 nested repeats, `\\p{L}{1,500}`, 10,000 "
            "patterns, lookaheads in repeats; a long value for a large pattern",
            "the size is estimated before compilation; a pattern that is too large is not "
            "evaluated, and that is reported",
        ),
        (
            "F81",
            "floods in text and in arguments: one key 300,000 times, 700,000 invalid items, "
            "400,000 levels, 20,000 calls, a repeated opening tag with a tool's name",
            "linear work within a budget; other clients are served meanwhile",
        ),
    ),
    *_rows(
        "Load",
        ("F51", "every reply malformed", "at most 3 generations, 1.2 on average under load"),
        (
            "F52",
            "200 clients waiting for a start",
            "one start; clients are served in order of arrival",
        ),
        ("F53", "1,000 concurrent requests", "bounded queue, 429 with Retry-After"),
        ("F54", "one client floods the queue", "other clients take turns with it"),
        ("F56", "the same Idempotency-Key twice", "one generation"),
        ("F57", "1,000 idle streams, thousands of requests", "memory stays flat"),
        ("F58", "clock jump", "only monotonic clocks are used"),
        ("F59", "cancellation at every await", "no task, slot or connection remains"),
    ),
    *_rows(
        "Files",
        (
            "F82",
            "files that are endless, nested too deeply, too large, or not regular files: a "
            "device, 100,000 brackets, a key of 50,000 dots, a model header of a million keys",
            "an error in one sentence, before the content is processed",
        ),
        ("F84", "a full disk when a response is to be deleted", "503 with the reason"),
    ),
    *_rows(
        "Stores",
        (
            "F85",
            "a store that sends invalid responses (`:1`, 200,000 nested arrays), or a client "
            "that loses a cancellation",
            "the store counts as failed: responses are marked `alone`, or 503; shutdown is not "
            "delayed",
        ),
    ),
    *_rows(
        "Tool servers",
        (
            "F61",
            "server that never answers `initialize`",
            "503 with Retry-After for requests that name it; other requests do not wait",
        ),
        (
            "F62",
            "server dies during a call",
            "the model is informed that the effect is unknown; the call is never repeated, the "
            "server is restarted",
        ),
        ("F63", "server dies five times", "it stays down, with one log line; 503"),
        (
            "F64",
            "a result of 5 MB; a compressed or endless HTTP response; an endless line of a program",
            "the result is truncated; the response is rejected without reading it all; the "
            "program is terminated",
        ),
        (
            "F65",
            "control tokens, a quoted call, `isError` in a result",
            "neutralized, no call, an error",
        ),
        (
            "F66",
            "500 tools on several pages",
            "read to the last page; clients get the tools that they name",
        ),
        ("F67", "definition that changes after a restart", "the tool is withdrawn until a reload"),
        (
            "F68",
            "flood on standard error, or of unsolicited messages",
            "read within bounds, calls continue; a server with an endless flood is disconnected",
        ),
        ("F69", "client disconnects during a call", "the server receives the cancellation"),
        ("F70", "SIGTERM during a call", "ended within the grace time; no program keeps running"),
        ("F71", "Temper killed with -9 during a call", "no program keeps running"),
        (
            "F72",
            "request with an address, a header or a key of a tool server",
            "400; no call is made",
        ),
        (
            "F86",
            "a tool without a name, 40,000 tools, a result of 100,000 parts or values",
            "skipped with a warning, or rejected before it is decoded",
        ),
        ("F87", "a tool that yields values without end", "bounded; an abandoned tool ends at once"),
        (
            "F73",
            "a key that may not use the tools",
            "403 if the request names a server; otherwise no tools are offered",
        ),
    ),
    *_rows(
        "Hosts and networks",
        (
            "F88",
            "engine's host gone before a request",
            "the request goes to the next engine, else 502, within `backend.connect_seconds`",
        ),
        (
            "F89",
            "the same, with a persistent connection; a link that works in one direction only",
            "the same, within `backend.lost_seconds`",
        ),
        (
            "F90",
            "the same, while waiting for the first byte",
            "the same, regardless of `backend.first_byte_seconds`",
        ),
        (
            "F91",
            "the same, in the middle of a stream",
            "error event within `backend.lost_seconds`; no other engine is used",
        ),
        (
            "F92",
            "engine's host that returns with the same address",
            "earlier requests end with an error; new requests are answered once",
        ),
        (
            "F93",
            "link down for less than `backend.lost_seconds`, in the middle of a stream",
            "the complete stream arrives, in order and once",
        ),
        (
            "F94",
            "path that drops large packets (MTU)",
            "502 for large requests within `backend.lost_seconds`, other requests are answered; a "
            "deadline for large responses",
        ),
        (
            "F95",
            "client's host gone while it waits, reads, or keeps a connection open",
            "generation and connection end within `server.stall_seconds`",
        ),
        (
            "F96",
            "host of one of two Tempers gone, with a load balancer in front of both",
            "its streams break off; all other requests go to the other Temper",
        ),
        (
            "F97",
            "the store's host gone, and back",
            "responses continue, marked `alone`; one generation per key as soon as the store is "
            "back",
        ),
        (
            "F107",
            "the host's wall clock jumps by a day or by ten years, during a stream",
            "the stream continues; durations, limits and idempotency keys are not affected",
        ),
        (
            "F108",
            "a disk that accepts no writes, under stored responses and a recording",
            "no request waits more than 2 s for it; what was waiting is written when it continues",
        ),
        (
            "F109",
            "a name server that does not answer, a name that vanishes or gets another address",
            "only requests to that name wait, for at most `backend.connect_seconds`; new "
            "connections use the new address",
        ),
        (
            "F110",
            "a network without IPv4",
            "every dialect and failover work as with IPv4",
        ),
    ),
)
