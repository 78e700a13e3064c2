"""Puts back the rounds of Temper's own tools, which no client has in its history.

    reply 1          calls find_tools; its result is appended, and the model generates again
    reply 2          calls read_file, and only this one reaches the client
    next request     ..., {"role": "assistant", "tool_calls": [read_file]}, its result
    sent upstream    ..., find_tools and its result, then the same messages

Without them the prompt would differ from the previous one before reply 2, and the engine would read
everything after it again. The identity of a message, the bounds and the eviction are those of
`kept_reasoning`. Evicted rounds are not put back, which costs one reading of the prompt.
"""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.messages import Message, Messages
from proxy.conversation.replies import ReplyEvent, ReplyInProgress
from proxy.conversation.tools import ToolCall
from proxy.dialects.openai_chat.decode import decode_messages
from proxy.inference.kept_reasoning import History, ReasoningStore, begin_key, extend_key


class AnswerRounds:
    """The completed messages of one request, and its answer so far."""

    def __init__(self, store: ReasoningStore, history: History) -> None:
        self._store, self._owner = store, history.owner
        self._used = dict[bytes, None]()
        self._reply = ReplyInProgress()
        self._key = begin_key(history)
        messages: list[Message] = []
        for message in history.messages:
            self._key = extend_key(self._key, message)
            if message.role == "assistant":
                messages += self._find()
            messages.append(message)
        store.touch(self._used)
        self.messages: Messages = tuple(messages)

    def _find(self) -> Sequence[Message]:
        """Return the rounds before the message whose key is current."""
        rounds = self._store.find(self._key)
        if rounds is None:
            return ()
        self._used[self._key] = None
        return decode_messages(json.split_array(rounds))

    def collect(self, events: Sequence[ReplyEvent]) -> None:
        """Collect the answer that the client is sent."""
        for event in events:
            self._reply.add(event)

    def keep(self, added: Messages) -> None:
        """Store the messages of the rounds after the end of the answer, which is last if a text."""
        is_text = bool(added) and added[-1].role == "assistant" and not added[-1].calls
        rounds = added[:-1] if is_text else added
        if not rounds:
            return
        reply = self._reply.finish("")
        calls = tuple(
            ToolCall(call.id or "", call.name, f"{call.arguments}") for call in reply.calls
        )
        key = extend_key(self._key, Message("assistant", reply.text, b"", calls))
        sources = json.join_array([message.source for message in rounds])
        self._store.add(self._owner, {key: sources}, self._used)
