"""The format of the chunks that nearly every engine sends.

    {"id": "c", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": null}]}

`as_chunk` reads chunks that deviate from this format: content in parts, a whole message in place of
a delta, or the arguments of a call as an object.
"""

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_count, as_list, as_object, as_text
from proxy.dialects.raw_json import kind

NOTHING = msgspec.Raw(b"null")


class CalledFunction(msgspec.Struct):
    """The name of a called function, and a fragment of its arguments."""

    name: str | None = None
    arguments: str | None = None


class CallFragment(msgspec.Struct):
    """A fragment of a tool call."""

    index: int | None = None
    id: str | None = None
    function: CalledFunction | None = None


class Delta(msgspec.Struct):
    """The new fragment of an answer."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallFragment] | None = None


class Choice(msgspec.Struct):
    """A choice; only the choice with index 0 is read, because `n` is limited to 1.

    The stop string is `stop_reason` in vLLM and `matched_stop` in SGLang. Both members are numbers
    if a token ended the answer.
    """

    delta: Delta
    index: int | None = None
    finish_reason: str | None = None
    logprobs: msgspec.Raw = NOTHING
    stop_reason: str | int | None = None
    matched_stop: str | int | None = None


class Progress(msgspec.Struct):
    """llama-server's progress of reading the prompt, in tokens."""

    total: int = 0
    cache: int = 0
    processed: int = 0


class Verbose(msgspec.Struct):
    """Members that llama-server adds to each chunk with `verbose`."""

    stopping_word: str = ""


class Chunk(msgspec.Struct, rename={"verbose": "__verbose"}):
    """One event of a reply; other members are skipped."""

    choices: list[Choice]
    id: str | None = None
    created: int | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    usage: msgspec.Raw = NOTHING
    timings: msgspec.Raw = NOTHING
    prompt_progress: Progress | None = None
    verbose: Verbose | None = None
    error: None = None  # an error makes this decoder fail, so that the slow path reads the error


# Raises one of the errors `OTHER_FORM` for a chunk that deviates from this format. RecursionError
# means that a skipped member is nested too deeply.
read_chunk = msgspec.json.Decoder(Chunk).decode
OTHER_FORM = (ValueError, RecursionError)


def as_chunk(raw: JsonObject) -> Chunk:
    """Read a chunk that may deviate from the format; raises ValueError if it is invalid."""
    usage, timings = (
        msgspec.Raw(json.dump(value)) if isinstance(value := raw.get(name), dict) else NOTHING
        for name in ("usage", "timings")
    )
    progress, verbose = raw.get("prompt_progress"), raw.get("__verbose")
    counts = [as_count(as_object(progress).get(name)) for name in Progress.__struct_fields__]
    chunk = Chunk(
        [_as_choice(choice) for choice in _elements(raw.get("choices"), "choices")],
        as_text(raw.get("id")),
        as_count(raw.get("created")),
        as_text(raw.get("model")),
        as_text(raw.get("system_fingerprint")),
        usage,
        timings,
        Progress(*counts) if isinstance(progress, dict) else None,
        Verbose(as_text(verbose.get("stopping_word"))) if isinstance(verbose, dict) else None,
    )
    accounts = (usage, timings, chunk.prompt_progress)
    if "choices" not in raw and accounts == (NOTHING, NOTHING, None):
        raise ValueError("a chunk has no known fields")
    return chunk


def _as_choice(raw: JsonValue) -> Choice:
    if not isinstance(raw, dict):
        raise ValueError(f"a choice must be an object, not {kind(raw)}")
    if raw.get("index"):  # a further choice, although Temper requests only one
        return Choice(Delta(), 1)
    delta = raw.get("delta")
    if delta is None:  # a whole completion; the engine has ignored `stream`
        delta = raw.get("message") or {}
    if not isinstance(delta, dict):
        raise ValueError(f"a delta must be an object, not {kind(delta)}")
    content, content_thoughts = _split_content(delta.get("content") or "")
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    thoughts = _flatten(reasoning) or content_thoughts
    calls = [as_fragment(call) for call in _elements(delta.get("tool_calls"), "tool_calls")]
    return Choice(
        Delta(content, thoughts, tool_calls=calls),
        finish_reason=as_text(raw.get("finish_reason")),
        logprobs=msgspec.Raw(json.dump(raw.get("logprobs"))),
        stop_reason=as_text(raw.get("stop_reason")) or None,
        matched_stop=as_text(raw.get("matched_stop")) or None,
    )


def _split_content(content: JsonValue) -> tuple[str, str]:
    """Return the text and the reasoning in a `content` member.

    Mistral's models and some gateways send parts: {"type": "text", "text": "..."}, and {"type":
    "thinking", "thinking": [{"type": "text", "text": "..."}]}.
    """
    if isinstance(content, str):
        return content, ""
    if not isinstance(content, list | dict):
        raise ValueError(f"content must be a string or an array, not {kind(content)}")
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, str | dict) for part in parts):
        raise ValueError("content must contain only strings and objects")
    is_reasoning = [as_object(part).get("type") in _REASONING_PARTS for part in parts]
    thoughts = [part for part, thinks in zip(parts, is_reasoning, strict=True) if thinks]
    texts = [part for part, thinks in zip(parts, is_reasoning, strict=True) if not thinks]
    return _flatten(texts), _flatten(thoughts)


_REASONING_PARTS = ("thinking", "reasoning", "reasoning_text")
_TEXT_MEMBERS = ("text", "thinking", "reasoning", "refusal")


def _flatten(value: JsonValue) -> str:
    """Join the text of nested parts; a value of another type has no text."""
    match value:
        case str():
            return value
        case list():
            return "".join(map(_flatten, value))
        case dict():
            return "".join(_flatten(value.get(name)) for name in _TEXT_MEMBERS)
        case _:
            return ""


def as_fragment(raw: JsonValue) -> CallFragment:
    """Read a fragment of a call; its arguments may be an object. Raises ValueError."""
    if not isinstance(raw, dict):
        raise ValueError(f"a tool call must be an object, not {kind(raw)}")
    function, index = raw.get("function") or {}, raw.get("index")
    if not isinstance(function, dict):
        raise ValueError("the function of a tool call must be an object")
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):  # an object, as Ollama sends it
        arguments = json.dump_text(arguments)
    return CallFragment(
        index if isinstance(index, int) else None,
        as_text(raw.get("id")),
        CalledFunction(as_text(function.get("name")), arguments),
    )


def _elements(value: JsonValue, name: str) -> list[JsonValue]:
    if value and not isinstance(value, list):
        raise ValueError(f"{name} must be an array, not {kind(value)}")
    return as_list(value)
