"""The fault table: every row that the suite has to show, with the outcome that is right."""

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
        ("F01", "backend down", "503 with Retry-After if Temper starts it, else 502, at once"),
        (
            "F02",
            "backend accepts and never answers",
            "504 at the deadline; signs of life to a streaming client",
        ),
        ("F03", "stall in the middle of a stream", "error event at the idle deadline"),
        ("F04", "minutes of prefill with progress", "no error; signs of life, the deadline moves"),
        ("F05", "half-close or short body", "502; asked once more only if nothing had come"),
        ("F06", "reset in the middle of a stream", "error event; a partial call is never complete"),
        ("F07", "garbage instead of HTTP", "502; the bytes only in the debug log"),
        (
            "F08",
            "no JSON, empty body, wrong type, no choices",
            "502 backend_protocol_error; a right body under a wrong type is read",
        ),
        (
            "F09",
            "oddities of server-sent events",
            "the same events at any chunking; a missing end is truncation",
        ),
        ("F10", "endless stream", "cut at its bounds, generation ended"),
        ("F11", "1 GB body", "refused at 32 MB, memory stays flat"),
        ("F12", "errors of the backend, streamed or not", "their own status in OpenAI's shape"),
        ("F13", "503 while loading", "held, then 503 with Retry-After"),
        ("F14", "429 with Retry-After", "passed on"),
        ("F15", "context overflow", "compacted once, asked once more, else 400 with both numbers"),
        (
            "F16",
            "reply that the backend cannot parse",
            "asked again raw; the raw body is never shown",
        ),
        ("F17", "broken history", "mended in the same way every time, and reported"),
        ("F18", "Ollama cuts a prompt in silence", "an error"),
        ("F19", "prompt that leaves no room for the user's message", "the message stays"),
    ),
    *_rows(
        "Processes that Temper started",
        (
            "F20",
            "server killed in the middle of a stream",
            "error event, restart with back-off, breaker",
        ),
        ("F21", "Temper killed with -9", "no server stays behind"),
        ("F22", "port taken, or a stranger on it", "own port; identity proven by a key"),
        ("F23", "SIGTERM during streams", "they finish within the grace time; exit 0"),
        ("F24", "bad GGUF, bad flag", "the reason in one sentence, no endless restart"),
        ("F25", "sleeping or unloaded model", "treated as loading"),
        (
            "F77",
            "a worker killed again and again; too few files may be open",
            "it is started again, the other workers serve on; one sentence",
        ),
    ),
    *_rows(
        "Clients",
        ("F26", "client leaves while streaming", "generation ends, no further attempt"),
        (
            "F27",
            "client leaves while queued, before the first token, between attempts",
            "the same; what had not begun never does",
        ),
        ("F28", "client of a whole answer leaves", "the same"),
        ("F29", "slow reader", "a bounded buffer, the backend waits"),
        ("F30", "slow heads and bodies", "deadlines; others are served"),
        (
            "F31",
            "huge or compressed body",
            "413 before it is parsed, compressed or not; 400 if it is damaged",
        ),
        ("F32", "deep, huge, ambiguous or badly encoded JSON", "400 with the place"),
        ("F33", "wrong types everywhere", "400 with the field, never a 5xx"),
        ("F34", "request smuggling, masses of headers", "400 and the connection is closed"),
        ("F35", "line breaks in names and ids", "a strict alphabet for what is echoed"),
        ("F36", "odd paths", "404"),
        ("F37", "open beyond loopback, key in the address", "refused; no key"),
        ("F38", "DNS rebinding, cross-site posts, CORS", "403, 415, no permission"),
        ("F39", "addresses in image_url", "never fetched, 400"),
        ("F40", "secrets", "in no log, error, metric, trace"),
        ("F41", "control characters in names and arguments", "escaped in logs"),
        (
            "F80",
            "as many messages, items, parts, blocks, calls or tools as a body holds: 1 MB of "
            "reasoning or system items, 12,000 tools, 5,000 calls with outputs, 6,000 namespaces",
            "linear work for each of them; a large body is read in a thread",
        ),
        (
            "F83",
            "200 feeds of the dashboard at once, or one that a page of another site reads",
            "as many as are allowed, counted when they are let in; 403",
        ),
        (
            "F74",
            "a stray byte after an answered request, a body that is never read, endless chunk "
            "extensions and trailers",
            "a deadline; the connection ends after its response; others are served",
        ),
        (
            "F75",
            "an invalid, incomplete or endless request behind one that is being answered",
            "the response is whole; the error comes after it",
        ),
        (
            "F102",
            "one key floods the stored responses, the idempotency keys, the queue for a model, or "
            "the calls that wait for a person",
            "the key with the most loses its own; what others have is kept",
        ),
        (
            "F103",
            "escape sequences, line breaks and markup in names, errors and calls: `temper chat`, "
            "`models`, `top`, `doctor`, `tune`, `eval` and log lines; a long call for approval",
            "printed as visible text on one line; an approval shows the whole call",
        ),
        (
            "F76",
            "client that ends its side of the connection after its request",
            "it gets its response; one that has gone is noticed",
        ),
    ),
    *_rows(
        "Tool calls under attack",
        ("F42", "quoted calls", "no calls"),
        ("F43", "control tokens in content", "neutralised and reported"),
        (
            "F104",
            "a call within reasoning, or within a result that the model invented",
            "no call; the reasoning is split off, and the result is not shown",
        ),
        (
            "F105",
            "a reply that ends for an unknown reason, or because the engine failed",
            "the reply counts as cut, and so does its last call; the reason is not passed on",
        ),
        (
            "F106",
            "control tokens in tools, forged reminders in results, results in the role "
            "`function` or of hosted tools",
            "broken, and treated as data",
        ),
        ("F44", "floods of markup", "linear time, others are served"),
        ("F45", "call cut off", "never completed"),
        ("F46", "near-miss name", "fixed if there is one match"),
        ("F47", "colliding or missing ids", "unique ids and indexes"),
        (
            "F48",
            "a client's tool called `respond`, mixed and broken calls of it",
            "another name, calls win, text is kept",
        ),
        ("F49", "words of nudges", "never shown"),
        ("F50", "impossible required step", "bounded"),
        (
            "F60",
            "call that breaks after a part of it was shown",
            "completed as it began, else `length` or an error event; never half a call to run",
        ),
        (
            "F101",
            "schemas whose patterns are small as text: 400 nested repeats, `\\p{L}{1,500}`, 10,000 "
            "patterns, lookaheads in repeats; a long value for a large pattern",
            "estimated before they are compiled; one that is too much is not checked, and that is "
            "reported",
        ),
        (
            "F81",
            "floods in text and in arguments: one key 300,000 times, 700,000 wrong items, 400,000 "
            "levels, 20,000 calls, an opening tag with a tool's name over and over",
            "linear work within a budget, and others are served in between",
        ),
    ),
    *_rows(
        "Load",
        ("F51", "every reply malformed", "at most 3 generations, 1.2 on average under load"),
        ("F52", "200 clients waiting for a start", "one start, served in their order"),
        ("F53", "1,000 in flight", "bounded queue, 429 with Retry-After"),
        ("F54", "one client floods", "others take their turns"),
        ("F56", "the same Idempotency-Key twice", "one generation"),
        ("F57", "1,000 idle streams, masses of requests", "memory stays flat"),
        ("F58", "clock jump", "only monotonic clocks"),
        ("F59", "end at every await", "nothing is left"),
    ),
    *_rows(
        "Files",
        (
            "F82",
            "files that never end, are nested or large beyond sense, or are no files: a device, "
            "100,000 brackets, a key of 50,000 dots, a model's header of a million keys",
            "one sentence, before anything is made of them",
        ),
        ("F84", "a disk that is full when a response is to be deleted", "503 with the reason"),
    ),
    *_rows(
        "Stores",
        (
            "F85",
            "a store that answers what cannot be (`:1`, 200,000 nested arrays), or loses a "
            "cancellation",
            "counts as a failure: alone, or 503; it never holds up the end",
        ),
    ),
    *_rows(
        "Tool servers",
        (
            "F61",
            "server that never answers initialize",
            "503 with Retry-After to who names it; nobody else waits",
        ),
        (
            "F62",
            "server dies in a call",
            "the model reads that the effect is unknown; never called twice, started again",
        ),
        ("F63", "server dies five times", "it stays down, and the log says so once; 503"),
        (
            "F64",
            "result of 5 MB, an answer that is compressed or never ends, an endless line",
            "cut, and the server goes on; refused unread; the program is ended",
        ),
        (
            "F65",
            "control tokens, a quoted call, `isError` in a result",
            "neutralised, no call, an error",
        ),
        ("F66", "500 tools over pages", "read to the last page; clients get what they name"),
        ("F67", "definition that changes after a restart", "the tool is withdrawn until a reload"),
        (
            "F68",
            "flood on standard error, or of messages that nobody asked for",
            "read and bounded; calls go on; disconnected, if it has no end",
        ),
        ("F69", "client leaves during a call", "the server hears the cancellation"),
        ("F70", "SIGTERM during a call", "ended within the grace time; no program stays behind"),
        ("F71", "Temper killed with -9 during a call", "no program stays behind"),
        ("F72", "request with an address, a header or a key", "400; nothing is called"),
        (
            "F86",
            "a tool without a name, 40,000 tools, a result of 100,000 parts or values",
            "left out with a warning, or refused before it is decoded",
        ),
        ("F87", "a tool that yields values without end", "bounded; given up, it ends at once"),
        ("F73", "a stranger's key", "403 where a server is named, else nothing is offered"),
    ),
    *_rows(
        "Hosts of their own, and what is between them",
        (
            "F88",
            "engine's host gone before a question",
            "the next engine is asked, else 502, within `backend.connect_seconds`",
        ),
        (
            "F89",
            "the same, with a connection that was kept; heard in one direction only",
            "the same, within `backend.lost_seconds`",
        ),
        (
            "F90",
            "the same, while the first byte is waited for",
            "the same, however long `backend.first_byte_seconds` is",
        ),
        (
            "F91",
            "the same, in the middle of a stream",
            "error event within `backend.lost_seconds`; nobody else is asked",
        ),
        (
            "F92",
            "engine's host that comes back under its address",
            "what was asked before is an error, what is asked now is answered, once",
        ),
        (
            "F93",
            "link down for less than that, in the middle of a stream",
            "all of it arrives, in order and once",
        ),
        (
            "F94",
            "path that swallows large packets (MTU)",
            "502 for large questions within `backend.lost_seconds`, others are answered; "
            "a deadline where answers are large",
        ),
        (
            "F95",
            "client's host gone while it waits or reads, or keeps a connection",
            "generation and connection end within `server.stall_seconds`",
        ),
        (
            "F96",
            "a Temper's host gone, behind the balancer",
            "its streams break off; whatever else is asked goes to the other one",
        ),
        (
            "F97",
            "the store's host gone, and back",
            "answers go on, marked `alone`; one generation for a key as soon as it is back",
        ),
    ),
)
