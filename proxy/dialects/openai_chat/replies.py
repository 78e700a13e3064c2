"""Reader of replies and errors of chat-completions engines.

    data: {"choices": [{"index": 0, "delta": {"tool_calls": [
           {"index": 0, "id": "k", "function": {"name": "f", "arguments": "{"}}]}}]}
    -> ToolCallStarted(0, "k", "f"), ToolCallArgumentsDelta(0, "{")

The reader accepts every deviation from the format that was seen in an engine, but it never guesses.
For each deviation, a comment names the issue or the version of the engine.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TypeAlias

import msgspec

from proxy import bounds
from proxy.conversation import json
from proxy.conversation.endings import CALLS, LENGTH, STOP, ending_of
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.dialects.lenient_json import as_text, parse_object
from proxy.dialects.openai_chat.chunks import (
    NOTHING,
    OTHER_FORM,
    CallFragment,
    Choice,
    Chunk,
    Delta,
    as_chunk,
    read_chunk,
)
from proxy.dialects.openai_chat.fragments import ArgumentsFragment, Fragment
from proxy.dialects.raw_json import kind

CallEvent: TypeAlias = ToolCallStarted | ToolCallArgumentsDelta


class _ArrivingCall(msgspec.Struct):
    """A call in progress; `index` is the number that Temper assigns to it within the reply.

    The arguments are reported as soon as the name is known. `name_was_repeated` is set when the
    engine repeats the name after complete arguments. Further arguments then begin another call.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = msgspec.field(default_factory=list)
    name_was_repeated: bool = False

    def add(self, name: str, arguments: str) -> Sequence[CallEvent]:
        """Read a fragment; the name counts only if the call has none yet."""
        if self.name:
            return self.add_texts((arguments,))
        self.name = name
        self.arguments.append(arguments)
        return self.start() if name else []

    def add_texts(self, texts: Iterable[str]) -> list[ToolCallArgumentsDelta]:
        fragments = [*filter(None, texts)]
        self.arguments += fragments
        return [*map(ToolCallArgumentsDelta, repeat(self.index), fragments)]

    @property
    def is_complete_call(self) -> bool:
        # Parsing all arguments after each fragment would take quadratic time. Therefore, they are
        # parsed only if they end with a brace.
        seems_complete = "".join(self.arguments[-2:]).rstrip().endswith("}")
        return seems_complete and parse_object("".join(self.arguments)) is not None

    def continues(self, name: str, arguments: str) -> bool:
        """Return whether a fragment belongs to this call although the fragment has a new id.

        Some gateways generate a new id for every fragment (BerriAI/litellm#40040), and some repeat
        the name. A fragment with a different name begins another call. A fragment with the same
        name begins another call in two cases: the arguments so far are complete, or neither the
        call nor the fragment has arguments.
        """
        if not (self.id and self.name):
            return False
        is_open = (
            bool("".join(self.arguments).strip() or arguments.strip()) and not self.is_complete_call
        )
        return not name or (name == self.name and is_open)

    def start(self) -> list[CallEvent]:
        started = ToolCallStarted(self.index, self.id or None, self.name)
        arguments = "".join(self.arguments)
        return [started, ToolCallArgumentsDelta(self.index, arguments)] if arguments else [started]


class CallsInProgress(msgspec.Struct):
    """Numbers the calls of one reply and converts their fragments into events."""

    _calls: list[_ArrivingCall] = msgspec.field(default_factory=list)
    _latest: dict[int, _ArrivingCall] = msgspec.field(default_factory=dict)
    _by_id: dict[str, _ArrivingCall] = msgspec.field(default_factory=dict)
    is_full: bool = False

    def add(self, position: int, fragment: CallFragment) -> Sequence[CallEvent]:
        """Read the fragment at `position` among the fragments of its chunk."""
        function = fragment.function
        name = (function and function.name) or ""
        arguments = (function and function.arguments) or ""
        call_id = (fragment.id or "").strip()  # some backends send an id of blanks
        key = position if fragment.index is None else fragment.index
        call = self._latest.get(key)
        if call is not None and call.name and not call_id:
            if not name and not call.name_was_repeated:  # the most common fragment
                return call.add_texts((arguments,))
            if name in ("", call.name) and not call.id and self._is_another(call, arguments):
                name = call.name
                del self._latest[key]
        is_numbered = fragment.index is not None or not name
        is_new_id = is_numbered and bool(call_id) and call_id not in self._by_id
        if call is None or not (is_new_id and call.continues(name, arguments)):
            call = self._find(key, fragment.index, call_id, name)
        return [] if call is None else call.add(name, arguments)

    def add_texts(self, index: int, arguments: list[str]) -> list[ToolCallArgumentsDelta] | None:
        """Add arguments to a started call; returns None if the fragments must be read by `add`."""
        call = self._latest.get(index)
        if call is None or call.name_was_repeated or not call.name:
            return None
        return call.add_texts(arguments)

    def finish(self) -> list[CallEvent]:
        """Report the calls that never got a name, so that the guardrails review them as well."""
        return [event for call in self._calls if not call.name for event in call.start()]

    def _is_another(self, call: _ArrivingCall, arguments: str) -> bool:
        """Return whether a repeated name without an id begins another call of the same tool.

        This is the case if the arguments before the repeated name are complete, and more arguments
        follow the name.
        """
        call.name_was_repeated = call.name_was_repeated or call.is_complete_call
        return call.name_was_repeated and bool(arguments.strip())

    @property
    def reason(self) -> str:
        """The finish reason if the engine sent none; "length" if the last call is truncated."""
        if not self._calls:
            return STOP
        fragments = "".join(self._calls[-1].arguments).rstrip()
        return CALLS if not fragments or fragments.endswith("}") else LENGTH

    def _find(self, key: int, number: int | None, call_id: str, name: str) -> _ArrivingCall | None:
        """Return the call of a fragment, if necessary a new call; None if there are too many calls.

        One call more than `bounds.CALLS` is stored, so that the guardrails report the excess.
        """
        call = self._latest.get(key)
        if call_id and (number is None or (call is not None and call.id not in {"", call_id})):
            # Some engines send no index, or the index 0 for every call. In this case, only the ids
            # distinguish the calls.
            call = self._by_id.get(call_id)
        elif call is not None and not call_id and name and call.name and not call.id:
            # another name at the same index, without an id, begins another call
            call = call if name == call.name else None
        if call is None and len(self._calls) > bounds.CALLS:
            self.is_full = True
            return None
        if call is None:
            call = _ArrivingCall(len(self._calls))
            self._calls.append(call)
        self._latest[key] = call
        if call_id:
            call.id = call_id
            self._by_id[call_id] = call
        return call


@dataclass(frozen=True, slots=True)
class StreamedError:
    """An error within a reply; `error` has the same members as the result of `decode_error`."""

    error: JsonObject


ReplyPart: TypeAlias = ReplyEvent | StreamedError


class SplitPairs:
    """Joins surrogate pairs whose halves are in two deltas (openclaw/openclaw#115536).

    A half that is followed by other text becomes U+FFFD. A half at the end of the reply is dropped.
    """

    def __init__(self) -> None:
        # the key is the text to which the half belongs: "content", "reasoning", or a call's index
        self._first_halves: dict[str, str] = {}

    def join(self, delta: Delta) -> Delta:
        for position, fragment in enumerate(delta.tool_calls or ()):
            if fragment.function is not None and fragment.function.arguments:
                index = position if fragment.index is None else fragment.index
                text = self._join(f"{index}", fragment.function.arguments)
                fragment.function.arguments = text
        delta.content = self._join("content", delta.content or "")
        reasoning = delta.reasoning_content or delta.reasoning or ""
        delta.reasoning_content = self._join("reasoning", reasoning)
        delta.reasoning = None
        return delta

    def _join(self, stream: str, text: str) -> str:
        if not text:
            return ""
        text = self._first_halves.pop(stream, "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._first_halves[stream] = text[-1]
            text = text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class ChunkDecoder:
    """Converts the chunks of one reply into events.

    `feed` and `finish` raise ValueError for an invalid reply. Chunks after the reply are ignored.
    """

    def __init__(self) -> None:
        self._is_started = False
        self._is_ended = False
        self._reason = ""
        self._stop = ""
        self._usage: JsonObject | None = None
        self._timings: JsonObject | None = None
        self._has_fingerprint = False
        self._late_fingerprint: str | None = None  # vLLM sends it only at the end
        self._calls = CallsInProgress()
        self._halves: SplitPairs | None = None
        self._has_content = False
        self.lacks_reason = False

    def feed(self, data: str) -> list[ReplyPart]:
        """Read the data of one server-sent event: a chunk or `[DONE]`."""
        parts: list[ReplyPart] = []
        self.feed_all([data.encode("utf-8", "surrogatepass")], parts)
        return parts

    def feed_all(self, payloads: Iterable[bytes], parts: list[ReplyPart]) -> None:
        for payload in payloads:
            if self._is_ended:
                return
            try:
                chunk = read_chunk(payload)
            except OTHER_FORM:
                parts += self._feed_any(payload.decode("utf-8", "replace"))
            else:
                self._handle_chunk(chunk, parts)

    def _feed_any(self, data: str) -> list[ReplyPart]:
        data = data.strip()
        if not data:
            return []
        if data == "[DONE]":
            return self.finish(is_complete=True)
        chunk = self._parse(data)
        if not isinstance(chunk, dict):
            raise ValueError(f"a chunk must be an object, not {kind(chunk)}")
        if chunk.get("error") or ("choices" not in chunk and as_text(chunk.get("message"))):
            self._is_ended = True
            return [StreamedError(_error(chunk))]
        parts: list[ReplyPart] = []
        self._handle_chunk(as_chunk(chunk), parts)
        return parts

    def _parse(self, data: str) -> JsonValue:
        try:
            return json.parse(data)
        except ValueError:
            chunk = json.parse_halves(data)
        # From now on, every chunk is checked for halves, because the other half may be anywhere.
        self._halves = self._halves or SplitPairs()
        return chunk

    def _handle_chunk(self, chunk: Chunk, parts: list[ReplyPart]) -> None:
        progress = chunk.prompt_progress
        # a chunk that only reports token counts does not begin a reply
        if not self._is_started and (chunk.choices or chunk.id or progress is not None):
            self._is_started = True
            parts.append(
                ReplyStarted(
                    chunk.id or None,
                    chunk.created or None,
                    chunk.model or None,
                    chunk.system_fingerprint or None,
                )
            )
            self._has_fingerprint = bool(chunk.system_fingerprint)
        self._store_usage(chunk)
        if progress is not None:
            parts.append(PromptProgress(progress.total, progress.cache, progress.processed))
        for choice in chunk.choices:
            if not choice.index:  # a further choice is ignored, because Temper requests only one
                self._handle_choice(choice, parts)

    def _store_usage(self, chunk: Chunk) -> None:
        """Store usage, timings and fingerprint; later values replace earlier values."""
        if chunk.system_fingerprint and not self._has_fingerprint:
            self._late_fingerprint = chunk.system_fingerprint
        if chunk.usage is not NOTHING:
            self._usage = _parse_or_keep(self._usage, chunk.usage)
        if chunk.timings is not NOTHING:
            self._timings = _parse_or_keep(self._timings, chunk.timings)
        if chunk.verbose is not None:
            self._stop = chunk.verbose.stopping_word

    def _handle_choice(self, choice: Choice, parts: list[ReplyPart]) -> None:
        delta = choice.delta if self._halves is None else self._halves.join(choice.delta)
        if reasoning := delta.reasoning_content or delta.reasoning:
            parts.append(ReasoningDelta(reasoning))
        # vLLM 0.32.0 also sends logprobs with empty deltas and with deltas of calls
        logprobs = None if choice.logprobs is NOTHING else json.parse(bytes(choice.logprobs))
        if delta.content or logprobs:
            parts.append(TextDelta(delta.content or "", logprobs))
        if delta.tool_calls:
            for position, fragment in enumerate(delta.tool_calls):
                parts += self._calls.add(position, fragment)
        self._has_content |= bool(delta.content or reasoning or delta.tool_calls)
        if self._calls.is_full:  # no further chunks are read, because the model may never stop
            self._reason = CALLS
            parts += self.finish()
        elif choice.finish_reason:
            self._reason = ending_of(choice.finish_reason).reason
            stop = choice.stop_reason or choice.matched_stop  # vLLM's name, and SGLang's
            self._stop = stop if isinstance(stop, str) else self._stop

    def add_texts(self, sample: Fragment, texts: list[str]) -> Sequence[ReplyEvent] | None:
        """Return the events of chunks that differ from the chunk of `sample` only in their `texts`.

        Returns None if the chunks must be decoded one by one.
        """
        if self._is_ended:
            return []
        if self._halves is not None:
            return None
        self._has_content = self._has_content or any(texts)
        match sample:
            case ArgumentsFragment(number):
                return self._calls.add_texts(number, texts) or None
            case TextDelta():
                return [*map(TextDelta, filter(None, texts))]
            case ReasoningDelta():
                return [*map(ReasoningDelta, filter(None, texts))]

    @property
    def has_reason(self) -> bool:
        """True after the finish reason; only the usage and `[DONE]` can follow."""
        return bool(self._reason) and not self._is_ended

    def finish(self, *, is_complete: bool = False) -> list[ReplyPart]:
        """Return the last events, which were held back because usage may follow the finish reason.

        `is_complete` means that the reply had an end mark, or was a whole document. In this case,
        the finish reason may be missing (waybarrios/vllm-mlx#628).
        """
        if self._is_ended:
            return []
        if not self._reason:
            if not (is_complete and self._has_content):
                raise ValueError("the reply ended before it was complete")
            self.lacks_reason = True
            self._reason = self._calls.reason
        self._is_ended = True
        parts: list[ReplyPart] = [*self._calls.finish()]
        if self._usage is not None:
            account = (self._usage, self._timings, self._stop, self._late_fingerprint)
            parts.append(UsageReported(*account))
        parts.append(ReplyFinished(self._reason))
        return parts


def decode_error(body: bytes) -> JsonObject:
    """Return the error in the body of a failure: an object with a string `message`."""
    try:
        document = json.parse(body)
    except ValueError:
        document = body.decode("utf-8", "replace").strip()
    if isinstance(document, dict):
        return _error(document)
    return {"message": document if isinstance(document, str) else json.dump_text(document)}


def _error(document: JsonObject) -> JsonObject:
    error = document.get("error")
    if isinstance(error, str):
        return {**document, "message": error}
    if not isinstance(error, dict):
        error = document
    message = error.get("message") or error.get("detail") or error
    return {**error, "message": message if isinstance(message, str) else json.dump_text(message)}


def _parse_or_keep(previous: JsonObject | None, raw: msgspec.Raw) -> JsonObject | None:
    document = parse_object(bytes(raw))
    return previous if document is None else document
