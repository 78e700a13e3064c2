"""Checks invariants of the conversion of items to messages, with generated histories."""

from itertools import count
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.dialects.foreign_history import sign
from proxy.guardrails.history_repair.history import replay_thoughts
from proxy.guardrails.transcript import rounds_since_user
from tests.fakes.responses import (
    call,
    decode,
    objects,
    result,
)


class Style(NamedTuple):
    """The notation of a client; the meaning of its items is the same in every style."""

    as_blocks: bool = False
    has_types: bool = True
    has_ids: bool = False
    has_marks: bool = False
    has_empty_texts: bool = False
    shows_content: bool = False


class Turn(NamedTuple):
    """A turn of the conversation; each round is (reasoning, text, number of calls)."""

    user: str
    remark: str | None
    rounds: tuple[tuple[str | None, str | None, int], ...]
    answer: str


MARKS = count()
TEXT = st.text(st.sampled_from('ab" \\\n\u00e9<'), min_size=1, max_size=8)
ROUND = st.tuples(st.none() | TEXT, st.none() | TEXT, st.integers(1, 3))
TURNS = st.lists(
    st.builds(Turn, TEXT, st.none() | TEXT, st.lists(ROUND, max_size=3).map(tuple), TEXT),
    min_size=1,
    max_size=4,
)
STYLES = st.builds(Style, *[st.booleans()] * 6)


class Client:
    """Writes turns as items; for each model answer, `cuts` counts the items before it."""

    def __init__(self, style: Style) -> None:
        self.items: list[JsonValue] = []
        self.cuts: list[int] = []
        self._style = style

    def write(self, turns: list[Turn]) -> "Client":
        for turn in turns:
            self._message("user", turn.user, "input_text")
            if turn.remark is not None:
                self._message("developer", turn.remark, "input_text")
            for thought_, text, calls in turn.rounds:
                self._round(thought_, text, calls)
            self._ask()
            self._message("assistant", turn.answer, "output_text")
        return self

    def _round(self, thought_: str | None, text: str | None, calls: int) -> None:
        self._ask()
        if thought_ is not None:
            kind = "content" if self._style.shows_content else "summary"
            part = "reasoning_text" if self._style.shows_content else "summary_text"
            shape: JsonObject = {"summary": [], "content": None}
            shape[kind] = [{"type": part, "text": thought_}]
            self._add({"type": "reasoning", **shape, "encrypted_content": sign(thought_)})
        if text is not None:
            self._message("assistant", text, "output_text")
        ids = [f"c{len(self.items)}_{number}" for number in range(calls)]
        for call_id in ids:
            self._add(call("f", call_id, '{"a": 1.0}'))
        for call_id in ids:
            self._add({**result("r", call_id), "output": self._content("r", "input_text")})

    def _ask(self) -> None:
        self.cuts.append(len(self.items))

    def _message(self, role: str, text: str, kind: str) -> None:
        typed: JsonObject = {"type": "message"} if self._style.has_types else {}
        self._add({**typed, "role": role, "content": self._content(text, kind)})

    def _content(self, text: str, kind: str) -> JsonValue:
        if not self._style.as_blocks:
            return text
        marks: JsonObject = {}
        if self._style.has_marks:
            marks = {"annotations": [], "prompt_cache_breakpoint": {"mode": "explicit"}}
        parts: list[JsonValue] = [{"type": kind, "text": text, **marks}]
        if self._style.has_empty_texts:
            parts.append({"type": kind, "text": ""})
        return parts

    def _add(self, item: JsonObject) -> None:
        marks: JsonObject = {}
        if self._style.has_ids:
            marks |= {"id": f"item_{len(self.items)}", "status": "completed"}
        if self._style.has_marks:
            marks |= {"phase": "commentary"}
        self.items.append({**item, **marks})


def sources(items: list[JsonValue]) -> list[bytes]:
    return [message.source for message in decode(input=items).request.messages]


@given(TURNS, STYLES, STYLES)
def test_equivalent_histories_become_the_same_bytes(
    turns: list[Turn], first: Style, other: Style
) -> None:
    assert sources(Client(first).write(turns).items) == sources(Client(other).write(turns).items)


@given(TURNS, STYLES)
def test_decoding_a_history_a_second_time_from_the_cache_gives_the_same_result(
    turns: list[Turn], style: Style
) -> None:
    items = objects(Client(style).write(turns).items)
    gone: JsonObject = {"type": "web_search_call", "action": {}}
    never_read: JsonValue = [{**item, "mark": next(MARKS)} for item in (*items, gone)]
    first, again = decode(input=never_read), decode(input=never_read)
    assert (again.request, again.facts) == (first.request, first.facts)


@given(TURNS, STYLES)
def test_adding_items_to_a_history_does_not_change_the_bytes_of_earlier_messages(
    turns: list[Turn], style: Style
) -> None:
    client = Client(style).write(turns)
    everything = sources(client.items)
    for cut in client.cuts:
        shorter = sources(client.items[:cut])
        assert everything[: len(shorter)] == shorter


@given(TURNS)
def test_system_messages_do_not_change_the_counted_turns_and_rounds(turns: list[Turn]) -> None:
    def of(remark: str | None) -> tuple[Message, ...]:
        remarked = [turn._replace(remark=remark) for turn in turns]
        return decode(input=Client(Style()).write(remarked).items).request.messages

    plain, reminded = of(None), of("Be brief.")
    assert [message.role for message in plain] == [message.role for message in reminded]
    assert rounds_since_user(plain) == rounds_since_user(reminded)
    last = [replay_thoughts(messages, "last") for messages in (plain, reminded)]
    kept = [[b"reasoning_content" in message.source for message in messages] for messages in last]
    assert kept[0] == kept[1]
