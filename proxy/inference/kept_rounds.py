"""Restores the calls of Temper's own tools and their results in the client's next request.

Temper never sends these calls and results (the rounds) to the client, so they are missing in the
client's history. This module inserts them again.

    reply 1          calls find_tools; its result is appended, and the model generates again
    reply 2          calls read_file, the only call that reaches the client
    next request     ..., {"role": "assistant", "tool_calls": [read_file]}, its result
    sent upstream    ..., find_tools and its result, then the same messages

Without the call of find_tools, the prompt would differ from the previous prompt at this position,
and the engine would have to read the remaining prompt again. This happens only if the stored rounds
were evicted. The rounds are stored like the reasoning in `kept_reasoning`, with the same bounds and
eviction, and with keys from the same function.
"""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.messages import Message, Messages
from proxy.conversation.replies import ReplyEvent, ReplyInProgress
from proxy.conversation.tools import ToolCall
from proxy.dialects.openai_chat.decode import decode_messages
from proxy.inference.kept_reasoning import History, ReasoningStore, begin_key, extend_key


class AnswerRounds:
    """The messages of a request with the restored rounds, and the answer so far."""

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
        """Return the rounds to insert before the message for which `_key` was just computed."""
        rounds = self._store.find(self._key)
        if rounds is None:
            return ()
        self._used[self._key] = None
        return decode_messages(json.split_array(rounds))

    def collect(self, events: Sequence[ReplyEvent]) -> None:
        """Collect events of the answer that is sent to the client."""
        for event in events:
            self._reply.add(event)

    def keep(self, added: Messages) -> None:
        """Store the rounds once the answer is complete.

        `added` has the messages that Temper appended during the request. If the last message is an
        assistant message without calls, it is not stored: it is the answer, which the client has.
        """
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
