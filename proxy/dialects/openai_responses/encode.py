"""Writer of answers in the Responses API: server-sent events, or one response object.

    event: response.output_text.delta
    data: {"type":"response.output_text.delta","sequence_number":4,...,"delta":"Hi"}

The stream and the object are built from the same items.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta, UsageReported
from proxy.dialects import sse
from proxy.dialects.dialect import IdsAndClock, Problem
from proxy.dialects.openai_responses.output import Event, OutputItems
from proxy.dialects.openai_responses.response import (
    COMPLETED,
    FAILED,
    AnswerOptions,
    ResponseState,
    ending_of,
    response_object,
    stream_error,
    usage_of,
)

# Stores a complete answer. Its arguments are the answer's items and the whole response object.
Keep: TypeAlias = Callable[[Sequence[bytes], bytes], None]

_PROGRESS = "response.in_progress"
# SDKs require `logprobs` in a delta, even if the list is empty
_TEXT_DELTA, _TAIL = "response.output_text.delta", b',"logprobs":[]}'


class AnswerInProgress:
    """An answer in progress; it builds the whole response even if the answer is streamed."""

    def __init__(
        self, options: AnswerOptions, initial: ResponseState, stamp: IdsAndClock, keep: Keep
    ) -> None:
        self.output = OutputItems(options, stamp.token)
        self._options = options
        self._initial = initial
        self._now = stamp.now
        self._keep = keep
        self._usage: JsonObject | None = None
        self._status = COMPLETED
        self._incomplete_reason: str | None = None

    def add(self, event: ReplyEvent, /) -> None:
        self.convert(event)

    def build(self) -> bytes:
        return self.finish()[1]

    def convert(self, event: ReplyEvent) -> list[Event]:
        match event:
            case UsageReported(usage):
                self._usage = usage
                return []
            case ReplyFinished(reason):
                self._status, self._incomplete_reason = ending_of(reason)
                return self.output.finish(self._status)
            case _:
                return self.output.convert(event)

    def start(self) -> bytes:
        return response_object(self._options, self._initial)

    def finish(self) -> tuple[str, bytes]:
        """Return the status and the object of a complete answer, and store it."""
        completed = int(self._now()) if self._status == COMPLETED else None
        usage = usage_of(self._usage)
        response = self._object(
            status=self._status,
            usage=usage,
            completed=completed,
            incomplete_reason=self._incomplete_reason,
        )
        self._keep(tuple(self.output.done), response)
        return self._status, response

    def fail_object(self, problem: Problem) -> bytes:
        error = stream_error(problem)
        usage = None if self._usage is None else usage_of(self._usage)
        return self._object(status=FAILED, usage=usage, error=error)

    def _object(self, **changes: object) -> bytes:
        state = replace(self._initial, output=self.output.done, **changes)
        return response_object(self._options, state)


class ResponseEncoder:
    """Writes one answer as a stream.

        response.created, response.in_progress                      the object without output
        response.output_item.added                                  for each item
            response.content_part.added, response.output_text.delta ..., response.output_text.done
        response.output_item.done
        response.completed | incomplete | failed                    the whole object

    Every event has a sequence number, and its type both as the event name and in the data. As in
    OpenAI's Responses API, no `[DONE]` follows the last event.
    """

    def __init__(self, answer: AnswerInProgress) -> None:
        self._answer = answer
        self._number = 0

    def encode_all(self, events: Sequence[ReplyEvent], /) -> bytes:
        chunks = [self._begin_stream()]
        for event in events:
            if type(event) is TextDelta and (text_event := self._write_text(event)):
                chunks.append(text_event)
            else:
                for kind, members in self._answer.convert(event):
                    chunks.append(self._event(kind, b"," + json.dump(members)[1:]))
        return b"".join(chunks)

    def keep_alive(self) -> bytes:
        """Return a repeated status event, because comments do not reset Codex's timeout."""
        return self._begin_stream() or self._lifecycle(_PROGRESS, self._answer.start())

    def comment(self, text: str) -> bytes:
        return sse.encode_comment(text)

    def end(self) -> bytes:
        beginning = self._begin_stream()
        status, response = self._answer.finish()
        return beginning + self._lifecycle(f"response.{status}", response)

    def fail(self, problem: Problem) -> bytes:
        return self._begin_stream() + self._lifecycle(
            "response.failed", self._answer.fail_object(problem)
        )

    def _write_text(self, delta: TextDelta) -> bytes:
        """Write a delta of the open text; this takes a third of the time of `convert`."""
        if delta.logprobs is not None or not delta.text:
            return b""
        item_id = self._answer.output.extend_text(delta.text)
        if item_id is None:
            return b""
        position = b',"item_id":"%b","output_index":%d' % (
            item_id.encode(),
            self._answer.output.index,
        )
        text = json.dump(delta.text)
        return self._event(
            _TEXT_DELTA, position + b',"content_index":0,"delta":%b%b' % (text, _TAIL)
        )

    def _begin_stream(self) -> bytes:
        if self._number:
            return b""
        initial = self._answer.start()
        return self._lifecycle("response.created", initial) + self._lifecycle(_PROGRESS, initial)

    def _lifecycle(self, kind: str, response: bytes) -> bytes:
        return self._event(kind, b',"response":' + response + b"}")

    def _event(self, kind: str, members_json: bytes) -> bytes:
        name = kind.encode()
        head = b'{"type":"%b","sequence_number":%d' % (name, self._number)
        self._number += 1
        return b"event: %b\ndata: %b%b\n\n" % (name, head, members_json)
