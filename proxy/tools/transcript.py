"""The messages of a conversation, as an append-only log.

The log is never shortened. Each request starts again from the complete log and shortens only its
own prompt, so that the prompt prefix stays the same from request to request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby, takewhile
from typing import TypeAlias, cast

import msgspec
from msgspec.structs import replace

from proxy.context.message_sizes import weight
from proxy.conversation import json
from proxy.conversation.failures import reports_failure
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolCall
from proxy.dialects.openai_chat.decode import decode_messages
from proxy.dialects.raw_json import read_object
from proxy.errors import InvalidRequest
from proxy.tools.executor import Outcome, Round, Status
from proxy.tools.history_forms import HistoryForm, read_form, write_form

_FAILED = "failed"
_FLAGS = {b"true": True, b"false": False}

Append: TypeAlias = Callable[[Message], None]


class Exchanged(msgspec.Struct, frozen=True):
    """A user message, the rounds of tool calls after it, and the answer ("" if there is none)."""

    user: str
    rounds: tuple[Round, ...] = ()
    answer: str = ""


class Conversation:
    """The messages of one conversation, in order.

    Only one run at a time can add messages; otherwise, messages of two runs would be mixed.
    """

    def __init__(self, history: Iterable[Message] = ()) -> None:
        self._history = [*history]
        self._is_held = False

    @classmethod
    def of(
        cls, messages: Iterable[Mapping[str, JsonValue]], form: HistoryForm = "openai"
    ) -> "Conversation":
        """Make a conversation from the messages of a request; raises `InvalidRequest`.

        The `form` is the format of OpenAI's chat completions, of Anthropic's Messages API, or of
        Gemini's `contents`. The system prompt is not part of a conversation: agents have
        `instructions` instead.
        """
        if isinstance(messages, str | Mapping):
            raise TypeError("a conversation needs a list of messages: Conversation.of([...])")
        return cls(read_form(messages, form))

    def to(self, form: HistoryForm) -> JsonObject:
        """Return the conversation as members of a request in another format.

        The members are `messages` for OpenAI, `messages` and `system` for Anthropic, `contents` and
        `systemInstruction` for Gemini. Raises `InvalidRequest` for content without an equivalent.
        """
        return write_form(self.history, form)

    def estimate_tokens(self) -> int:
        """Return an upper estimate of the tokens; `Model.count_tokens` returns the exact number.

        An image or audio part counts as 2,048 tokens.
        """
        return sum(size.pieces + size.media for size in map(weight, self._history))

    @classmethod
    def load(cls, lines: bytes | str) -> "Conversation":
        """Read the output of `dump`; raises `InvalidRequest`."""
        raw = lines.encode() if isinstance(lines, str) else lines
        messages_json = [line for line in raw.split(b"\n") if line.strip()]
        try:
            for line in messages_json:
                read_object(line)
            members = [json.split_object(line) for line in messages_json]
            failed = [_FLAGS.get(message.pop(_FAILED, b"")) for message in members]
            messages = decode_messages([json.join_object(message) for message in members])
        except InvalidRequest as error:
            raise InvalidRequest(f"not written by Conversation.dump(): {error}") from error
        pairs = zip(messages, failed, strict=True)
        return cls(replace(message, failed=flag) for message, flag in pairs)

    def dump(self) -> bytes:
        """Write each message as a line of JSON; a tool result may have a member `failed`."""
        lines: list[bytes] = []
        for message in self._history:
            members = json.split_object(message.source)
            # `failed` is added here, because the format of chat completions has no such member
            if message.failed is not None:
                members[_FAILED] = json.dump(message.failed)
            lines.append(json.join_object(members) + b"\n")
        return b"".join(lines)

    @property
    def history(self) -> tuple[Message, ...]:
        return tuple(self._history)

    @property
    def messages(self) -> tuple[JsonObject, ...]:
        """The messages in OpenAI's chat format."""
        return tuple(map(object_of, self._history))

    def turns(self) -> tuple[Exchanged, ...]:
        turns: list[Exchanged] = []
        for is_user, group in groupby(self._history, lambda message: message.role == "user"):
            part = [*group]
            if is_user:
                turns.append(Exchanged("\n".join(message.text for message in part)))
            elif turns:
                last = part[-1]
                answer = last.text if last.role == "assistant" and not last.calls else ""
                turns[-1] = replace(turns[-1], rounds=_rounds(part), answer=answer)
        return tuple(turns)

    def fork(self, at: int | None = None) -> "Conversation":
        """Return a new conversation with the first `at` messages, by default with all."""
        return Conversation(self._history[:at])

    def __len__(self) -> int:
        return len(self._history)

    @contextmanager
    def hold(self) -> Iterator[Append]:
        """Yield a function that appends messages; raises RuntimeError while another run appends."""
        if self._is_held:
            raise RuntimeError("another run is adding to this conversation; fork() it instead")
        self._is_held = True
        try:
            yield self._history.append
        finally:
            self._is_held = False


def object_of(message: Message) -> JsonObject:
    """Return a message in OpenAI's chat format."""
    return cast("JsonObject", json.parse(message.source))


def _rounds(messages: list[Message]) -> tuple[Round, ...]:
    rounds: list[Round] = []
    for index, reply in enumerate(messages):
        if reply.calls:
            following = takewhile(lambda message: message.role == "tool", messages[index + 1 :])
            results = {result.tool_call_id: result for result in following}
            outcomes = tuple(_outcome(call, results.get(call.id)) for call in reply.calls)
            rounds.append(Round(reply.text, outcomes))
    return tuple(rounds)


def _outcome(call: ToolCall, result: Message | None) -> Outcome:
    if result is None:
        return Outcome(call, "There is no result.", Status.LOST)
    status = Status.FAILED if reports_failure(result) else Status.DONE
    return Outcome(call, result.text, status)
