"""The response object: the echoed fields of the request and the state of the answer.

    {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m",
     "output": [{"type": "message", ...}], "usage": {"input_tokens": 3, ...}, "store": true,
     "tools": [...], "temperature": null, ...}

SDKs reject an object without the echoed fields.
"""

from collections.abc import Mapping, Sequence

import msgspec

from proxy.conversation import endings, json
from proxy.conversation.json import JsonObject
from proxy.dialects.dialect import Problem
from proxy.dialects.lenient_json import read_usage
from proxy.dialects.openai_responses.client_tools import Origin, ToolKind

IN_PROGRESS, COMPLETED, INCOMPLETE, FAILED = "in_progress", "completed", "incomplete", "failed"

# The echoed fields of a request, each with the value that is echoed if the request omits the field.
_ECHOED: Mapping[str, bytes] = {
    "instructions": b"null",
    "tools": b"[]",
    "tool_choice": b'"auto"',
    "parallel_tool_calls": b"true",
    "temperature": b"null",
    "top_p": b"null",
    "max_output_tokens": b"null",
    "max_tool_calls": b"null",
    "previous_response_id": b"null",
    "reasoning": b'{"effort":null,"summary":null}',
    "text": b'{"format":{"type":"text"}}',
    "truncation": b'"disabled"',
    "metadata": b"{}",
    "user": b"null",
    "prompt_cache_key": b"null",
    "safety_identifier": b"null",
    "top_logprobs": b"0",
}
_ECHOED_IF_SENT = ("prompt_cache_retention", "prompt_cache_options")  # SDKs do not require these
# equal in every response, because Temper has neither background responses nor service tiers
_FIXED: Mapping[str, bytes] = {"background": b"false", "service_tier": b'"default"'}
_NULL = b"null"
_RATE_LIMIT = 429


class AnswerOptions(msgspec.Struct, frozen=True):
    """The options of an answer, from its request.

    - `echo`: the fields of the request that the answer repeats.
    - `origins`: the client's tool that each function represents, by the function's name.
    - `summarizes`: whether reasoning is sent as a summary.
    - `signs`: whether reasoning is signed, in `encrypted_content`.
    - `compacts`: whether the text is a summary of the conversation, in a `compaction` item.
    """

    echo: Mapping[str, bytes]
    origins: Mapping[str, Origin]
    is_stored: bool = False
    summarizes: bool = False
    signs: bool = False
    compacts: bool = False

    def origin_of(self, name: str) -> Origin:
        """Return the client's tool that a function represents."""
        return self.origins.get(name, Origin(ToolKind.FUNCTION, name))

    @property
    def previous_id(self) -> str | None:
        previous_id = json.parse(self.echo["previous_response_id"])
        return previous_id if isinstance(previous_id, str) else None


def echo_of(fields: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the fields of a request that an answer repeats, each on one line."""
    echo = {
        name: _on_one_line(fields.get(name, _NULL), default) for name, default in _ECHOED.items()
    }
    for name in _ECHOED_IF_SENT:
        if name in fields:
            echo[name] = _on_one_line(fields[name], _NULL)
    return {**echo, **_FIXED}


def _on_one_line(raw: bytes, default: bytes) -> bytes:
    """Remove line ends between JSON tokens, because a line end would end a line of an event.

    Returns `default` if the value is null.
    """
    return default if raw == _NULL else raw.replace(b"\r", b" ").replace(b"\n", b" ")


class ResponseState(msgspec.Struct, frozen=True):
    """The state of an answer; times are Unix times in seconds.

    `output` has only the complete items.
    """

    id: str
    created: int
    model: str
    status: str = IN_PROGRESS
    output: Sequence[bytes] = ()
    usage: JsonObject | None = None
    completed: int | None = None
    incomplete_reason: str | None = None
    error: JsonObject | None = None


def response_object(options: AnswerOptions, state: ResponseState) -> bytes:
    reason = state.incomplete_reason
    members: dict[str, bytes] = {
        "id": json.dump(state.id),
        "object": b'"response"',
        "created_at": json.dump(state.created),
        "completed_at": json.dump(state.completed),
        "status": json.dump(state.status),
        "error": json.dump(state.error),
        "incomplete_details": json.dump(None if reason is None else {"reason": reason}),
        "model": json.dump(state.model),
        "output": json.join_array([*state.output]),
        "usage": json.dump(state.usage),
        "store": json.dump(options.is_stored),
    }
    return json.join_object({**members, **options.echo})


def usage_of(reported: JsonObject | None) -> JsonObject:
    """Convert the usage of a chat completion; missing counts are 0."""
    counts = read_usage(reported)
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.answer,
        "output_tokens_details": {"reasoning_tokens": counts.thoughts},
        "total_tokens": counts.total,
    }


def ending_of(reason: str) -> tuple[str, str | None]:
    """Return the status for a finish reason; for an incomplete answer, also its reason."""
    cause = endings.ending_of(reason).responses
    return (COMPLETED if cause is None else INCOMPLETE), cause


def stream_error(problem: Problem) -> JsonObject:
    """Return the error that ends a stream; its code tells clients whether to retry.

    If the message contains a number of seconds, Codex 0.169.0 waits for this time. It does not
    retry after the codes for an overloaded server and for an invalid prompt, so Temper does not
    send these two codes.
    """
    # this code makes clients compact the conversation
    if problem.code == "context_length_exceeded":
        return {"code": problem.code, "message": problem.message}
    if problem.status == _RATE_LIMIT:
        wait = problem.headers.get("retry-after")
        hint = "" if wait is None else f" Please try again in {wait}s."
        return {"code": "rate_limit_exceeded", "message": f"{problem.message}{hint}"}
    return {"code": "server_error", "message": problem.message}
