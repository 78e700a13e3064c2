"""Tests how the store of reasoning recognizes and evicts messages."""

import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.requests import Request
from proxy.conversation.tools import ToolCall
from proxy.facts import ReasoningRestored
from proxy.inference.kept_reasoning import AnswerReasoning, Bounds, History, ReasoningStore

ORIGIN = ("model", "conversation")
ASK = user_message("List the files.")
LIST = ToolCall("call_1", "list", '{"path":"/","depth":1}')
CALLED = assistant_message("", (LIST,))
HISTORY = (ASK, CALLED, tool_result("call_1", "a b"))


def begin_answer(
    store: ReasoningStore,
    *messages: Message,
    owner: str = "",
    origin: tuple[str, ...] = ORIGIN,
    start: int = 0,
    members: tuple[str, ...] = ("reasoning_content",),
    is_streamed: bool = False,
) -> AnswerReasoning:
    history = History(owner, origin, messages, members, start)
    return store.restore(history, is_streamed=is_streamed)


def store_answer(
    store: ReasoningStore,
    *messages: Message,
    thoughts: str = "Look.",
    answer: tuple[ReplyEvent, ...] = (ToolCalled(0, LIST),),
    owner: str = "",
) -> None:
    """Answer a request with the given messages, so that its reasoning is stored."""
    reasoning = begin_answer(store, *messages, owner=owner)
    reasoning.add([ReplyStarted(), ReasoningDelta(thoughts)])
    reasoning.add([*answer, ReplyFinished("stop")])


def complete_messages(reasoning: AnswerReasoning, *messages: Message) -> tuple[Message, ...]:
    return reasoning.complete(Request("m", messages, {"messages": b"[]"})).messages


def thoughts_of(store: ReasoningStore, *messages: Message, owner: str = "") -> list[object]:
    """Return the reasoning of each assistant message as it is sent upstream."""
    sent = complete_messages(begin_answer(store, *messages, owner=owner), *messages)
    sources = [json.parse(message.source) for message in sent if message.role == "assistant"]
    return [source.get("reasoning_content") for source in sources if isinstance(source, dict)]


@pytest.fixture
def store() -> ReasoningStore:
    """A store with the reasoning of the first call."""
    store = ReasoningStore()
    store_answer(store, ASK)
    return store


def test_reasoning_is_inserted_before_the_calls(store: ReasoningStore) -> None:
    reasoning = begin_answer(store, *HISTORY)
    request = Request("m", HISTORY, {"messages": b"[]", "model": b'"m"'})
    complete = reasoning.complete(request)
    assert complete.messages[1] == assistant_message("", (LIST,), reasoning="Look.")
    assert complete.messages[0] is ASK
    assert complete.fields == {"model": b'"m"'}
    assert reasoning.facts == (ReasoningRestored(1),)


def test_a_request_is_unchanged_if_no_message_lacks_reasoning(store: ReasoningStore) -> None:
    for history in ((ASK,), (ASK, assistant_message("", (LIST,), reasoning="Mine."))):
        request = Request("m", history, {"messages": b"[]"})
        reasoning = begin_answer(store, *history)
        assert reasoning.complete(request) is request
        assert reasoning.facts == ()


def test_reasoning_is_inserted_in_every_reasoning_field_of_the_engine(
    store: ReasoningStore,
) -> None:
    reasoning = begin_answer(store, *HISTORY, members=("reasoning_content", "reasoning"))
    source = complete_messages(reasoning, *HISTORY)[1].source
    assert b'"reasoning_content":"Look.","reasoning":"Look.","tool_calls"' in source


def with_source(message: Message, **members: bytes) -> Message:
    return replace(
        message, source=json.join_object({**json.split_object(message.source), **members})
    )


WITH_REASONING = (
    with_source(CALLED, reasoning=b'"Mine."'),
    with_source(CALLED, thinking=b'"Mine."'),
    with_source(CALLED, content=b'[{"type":"thinking","thinking":"Mine."}]'),
    with_source(
        CALLED, thinking_blocks=b'[{"type":"thinking","thinking":"Mine.","signature":"s"}]'
    ),
    assistant_message("<think>Mine.</think>", (LIST,)),
)


@pytest.mark.parametrize("message", WITH_REASONING)
def test_a_message_with_reasoning_from_the_client_is_unchanged(
    store: ReasoningStore, message: Message
) -> None:
    assert complete_messages(begin_answer(store, ASK, message), ASK, message)[1] is message


WITH_EMPTY_REASONING = (
    with_source(CALLED, reasoning_content=b"null"),
    with_source(CALLED, reasoning_content=b'""'),
    with_source(CALLED, reasoning=b"null"),
)


@pytest.mark.parametrize("message", WITH_EMPTY_REASONING)
def test_empty_reasoning_from_the_client_is_replaced(
    store: ReasoningStore, message: Message
) -> None:
    assert thoughts_of(store, ASK, message) == ["Look."]


REWRITTEN = (
    assistant_message("", (ToolCall("toolu_9", "list", LIST.arguments),)),
    assistant_message("", (ToolCall("", "list", LIST.arguments),)),
    assistant_message("", (ToolCall("call_1", "list", '{ "depth": 1.0, "path": "/" }'),)),
    assistant_message("I list them.", (LIST,)),
)


@pytest.mark.parametrize("message", REWRITTEN)
def test_a_message_gets_its_reasoning_despite_a_different_call_id_text_or_spacing(
    store: ReasoningStore, message: Message
) -> None:
    assert thoughts_of(store, ASK, message) == ["Look."]


def test_a_message_is_recognized_despite_different_white_space_and_added_reminders() -> None:
    store = ReasoningStore()
    answer = TextDelta(" There are\n\ntwo.\n")
    store_answer(store, user_message("How many?"), answer=(answer,))
    reminded = user_message("How many?\n<system-reminder>\nBe brief.\n</system-reminder>")
    assert thoughts_of(store, reminded, assistant_message("There are two.")) == ["Look."]


OTHER_HISTORIES = (
    (user_message("List all."), CALLED),
    (ASK, assistant_message("", (replace(LIST, name="read"),))),
    (ASK, assistant_message("", (replace(LIST, arguments='{"path":"/a"}'),))),
    (ASK, assistant_message("", (replace(LIST, arguments="{broken"),))),
    (ASK, assistant_message("", (LIST, LIST))),
    (ASK, assistant_message("list")),
    (ASK, assistant_message("Hm."), CALLED),
)


@pytest.mark.parametrize("history", OTHER_HISTORIES)
def test_a_message_gets_no_reasoning_if_its_call_its_text_or_its_history_differs(
    store: ReasoningStore, history: tuple[Message, ...]
) -> None:
    assert set(thoughts_of(store, *history)) == {None}


def test_reasoning_of_another_owner_model_or_conversation_is_not_used(
    store: ReasoningStore,
) -> None:
    assert thoughts_of(store, *HISTORY, owner="eve") == [None]
    for origin in (("model", "other"), ("other", "conversation"), ("modelc", "onversation")):
        assert begin_answer(store, *HISTORY, origin=origin).facts == ()
    assert thoughts_of(store, *HISTORY) == ["Look."]


def test_messages_before_the_given_start_index_get_no_reasoning(store: ReasoningStore) -> None:
    assert begin_answer(store, *HISTORY, start=2).facts == ()
    assert begin_answer(store, *HISTORY, start=1).facts == (ReasoningRestored(1),)


def test_two_equal_calls_get_their_reasoning_by_their_call_ids(
    store: ReasoningStore,
) -> None:
    again = replace(LIST, id="call_2")
    store_answer(store, ASK, thoughts="Look again.", answer=(ToolCalled(0, again),))
    assert thoughts_of(store, ASK, CALLED) == ["Look."]
    assert thoughts_of(store, ASK, assistant_message("", (again,))) == ["Look again."]
    assert thoughts_of(store, ASK, REWRITTEN[0]) == ["Look."]


def test_stored_reasoning_is_never_replaced(store: ReasoningStore) -> None:
    store_answer(store, ASK, thoughts="Look again.")
    assert thoughts_of(store, ASK, CALLED) == ["Look."]


def test_a_message_that_was_sent_without_reasoning_never_gets_reasoning() -> None:
    store = ReasoningStore()
    assert thoughts_of(store, ASK, CALLED) == [None]
    store_answer(store, ASK)
    assert thoughts_of(store, ASK, CALLED) == [None]


def test_reasoning_before_a_streamed_call_is_stored_when_the_answer_ends() -> None:
    store = ReasoningStore()
    reasoning = begin_answer(store, ASK)
    pieces = [LIST.arguments[:9], LIST.arguments[9:]]
    reasoning.add(
        [ReasoningDelta("Lo"), ReasoningDelta("ok."), ToolCallStarted(0, "call_1", "list")]
    )
    reasoning.add([ToolCallArgumentsDelta(0, piece) for piece in pieces])
    reasoning.add([ReplyFinished("tool_calls")])
    assert thoughts_of(store, ASK, CALLED) == ["Look."]


def test_the_reasoning_of_an_answer_without_an_end_is_not_stored() -> None:
    store = ReasoningStore()
    begin_answer(store, ASK).add([ReasoningDelta("Look."), ToolCalled(0, LIST)])
    assert thoughts_of(store, ASK, CALLED) == [None]


@pytest.mark.parametrize(("is_streamed", "thoughts"), [(False, "Look."), (True, "Hm. Look.")])
def test_reasoning_of_a_rejected_reply_is_stored_only_if_it_was_streamed(
    is_streamed: bool, thoughts: str
) -> None:
    store = ReasoningStore()
    reasoning = begin_answer(store, ASK, is_streamed=is_streamed)
    reasoning.add([ReplyStarted(), ReasoningDelta("Hm. ")])
    reasoning.add([ReplyStarted(), ReasoningDelta("Look."), ToolCalled(0, LIST)])
    reasoning.add([ReplyFinished("tool_calls")])
    assert thoughts_of(store, ASK, CALLED) == [thoughts]


def run_agent(
    store: ReasoningStore, task: str, count: int, *, owner: str = "", size: int = 1
) -> tuple[Message, ...]:
    """Let an agent make `count` calls; return the history.

    The client drops reasoning. Each prompt must begin with the previous prompt.
    """
    history: tuple[Message, ...] = (user_message(task),)
    before: list[object] = []
    for number in range(count):
        called = ToolCall(f"{task}_{number}", "read", json.dump_text({"line": number}))
        thoughts = f"{number}".ljust(size, ".")
        store_answer(
            store, *history, thoughts=thoughts, answer=(ToolCalled(0, called),), owner=owner
        )
        history += (assistant_message("", (called,)), tool_result(called.id, "text"))
        now = thoughts_of(store, *history, owner=owner)
        assert now[:-1] == before
        before = now
    return history


LONG = 10  # calls of a long conversation; each has two entries, one with its id and one without


def test_a_full_store_evicts_the_least_recently_used_conversation() -> None:
    store = ReasoningStore(Bounds(entries=4 * LONG))
    first, second = run_agent(store, "first", LONG), run_agent(store, "second", LONG)
    assert None not in thoughts_of(store, *first)
    run_agent(store, "third", LONG + 2)
    assert None not in thoughts_of(store, *first)
    assert None in thoughts_of(store, *second)


@pytest.mark.parametrize("bounds", [Bounds(entries=20), Bounds(bytes=24_000)])
def test_a_full_store_keeps_the_beginning_of_a_long_conversation(bounds: Bounds) -> None:
    store = ReasoningStore(bounds)
    thoughts = thoughts_of(store, *run_agent(store, "task", 3 * LONG, size=1000))
    assert thoughts[LONG] is not None
    assert thoughts[-1] is None


def test_evicted_reasoning_is_not_restored_by_a_repeated_call() -> None:
    store = ReasoningStore(Bounds(entries=2 * LONG))
    history = run_agent(store, "first", 2)
    run_agent(store, "second", LONG)
    before = thoughts_of(store, *history)
    assert before == [None, None]
    run_agent(store, "first", 1)
    assert thoughts_of(store, *history) == before


def test_many_conversations_of_one_owner_evict_none_of_another_owner() -> None:
    store = ReasoningStore(Bounds(entries=6 * LONG))
    mine = run_agent(store, "mine", LONG, owner="me")
    for number in range(9):
        run_agent(store, f"flood {number}", LONG, owner="eve")
    assert None not in thoughts_of(store, *mine, owner="me")


def test_reasoning_larger_than_the_store_is_not_stored() -> None:
    store = ReasoningStore(Bounds(bytes=2_000))
    assert thoughts_of(store, *run_agent(store, "task", 1, size=3_000)) == [None]
