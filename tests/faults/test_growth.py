"""F80, F81: the work grows linearly with the length of each part of a request or reply.

Work is the number of executed lines. For requests, lengths of one, two and four units are measured.
The increase from two to four units is compared with the increase from one to two units, so that
constant work does not count.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from proxy.conversation import json
from proxy.conversation.document_cache import LruCache
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyStarted
from proxy.conversation.tools import Tool
from proxy.dialects.anthropic_messages.dialect import MessagesDialect
from proxy.dialects.dialect import Client, Dialect, IdsAndClock
from proxy.dialects.openai_chat.dialect import ChatDialect
from proxy.dialects.openai_chat.encode import encode_request
from proxy.dialects.openai_responses.dialect import ResponsesDialect
from proxy.errors import CallBrokeOff
from proxy.guardrails.reasoning import EnoughReadError
from proxy.guardrails.schemas.arguments import check
from proxy.guardrails.schemas.schema import compile_schema
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from proxy.serving.request_preparation import RequestPreparation
from proxy.serving.services import ServiceOptions
from tests.examples import share
from tests.fakes.backend import ScriptedBackend
from tests.fakes.playbook import Playbook, make_request
from tests.fuzz.growing_replies import REPLIES, Reply
from tests.fuzz.growing_requests import CHAT, MESSAGES, RESPONSES, Growing

if TYPE_CHECKING:
    from _typeshed import TraceFunction

STAMP = IdsAndClock(lambda: 0.0, lambda: "0" * 24)
PARTS: Mapping[str, tuple[Dialect, Growing]] = {
    f"{dialect.name}: {name}": (dialect, make)
    for dialect, table in (
        (ChatDialect(STAMP), CHAT),
        (MessagesDialect(STAMP), MESSAGES),
        (ResponsesDialect(STAMP), RESPONSES),
    )
    for name, make in table.items()
}
COUNT = 16  # elements of a part; then twice and four times as many
MOST_GROWTH = 2.4  # twice the work, with a margin
UNITS = 300  # repetitions in a reply, which must fill several read buffers
NOISE = 200  # lines
MOST_LINES_OF_A_CHECK = 1_000_000


@pytest.fixture
def disable_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LruCache, "find", lambda *_: None)


def lines_run(work: Callable[[], object]) -> int:
    """Return the number of lines that `work` executes."""
    lines = 0

    def trace(_: FrameType, event: str, __: object) -> "TraceFunction":
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def answer(dialect: Dialect, body: bytes) -> None:
    """Do all the work of a request except the upstream request, with a short reply."""
    decoded = dialect.decode(body, Client())
    plan = plan_request(decoded.request, Policy())
    turn = begin(plan, decoded.answering.new_call_id, lambda: True)
    upstream_request = turn.next_request()
    assert upstream_request is not None
    encode_request(upstream_request, {})
    builder = decoded.answering.builder(ReplyStarted())
    builder.build()


def assert_linear(once: int, twice: int, four_times: int) -> None:
    assert four_times - twice <= MOST_GROWTH * (twice - once) + NOISE, (once, twice, four_times)


@pytest.mark.fault("F80")
@pytest.mark.usefixtures("disable_caches")
@pytest.mark.parametrize("part", share([*PARTS]))
def test_executed_lines_grow_linearly_with_each_part_of_a_request(part: str) -> None:
    dialect, make = PARTS[part]
    bodies = [json.dump(make(factor * COUNT)) for factor in (1, 2, 4)]
    answer(dialect, bodies[0])  # the first request also imports modules and fills caches
    assert_linear(*[lines_run(partial(answer, dialect, body)) for body in bodies])


def receive_reply(reply: Reply) -> None:
    book = Playbook.of(make_request(stream=True), Policy(attempts=1)).ask()
    with suppress(CallBrokeOff, EnoughReadError):  # the work for rejected replies counts as well
        book.receive(*reply)


@pytest.mark.fault("F81")
@pytest.mark.parametrize("part", share([*REPLIES]))
def test_executed_lines_grow_linearly_with_each_part_of_a_reply(part: str) -> None:
    few, many = REPLIES[part](UNITS), REPLIES[part](4 * UNITS)
    receive_reply(few)
    once, four_times = (
        lines_run(partial(receive_reply, few)),
        lines_run(partial(receive_reply, many)),
    )
    assert four_times <= 4 * MOST_GROWTH / 2 * once + NOISE


def demanding(members: int) -> Tool:
    """Return a tool whose schema checks each of `members` members by `members` schemas."""
    each: JsonObject = {f"p{number}": {"type": "integer"} for number in range(members)}
    depending: JsonObject = {name: {"properties": dict(each)} for name in each}
    return Tool("look", {"dependentSchemas": depending, "properties": {"": {"$ref": "#"}}}, b"{}")


@pytest.mark.deep
@pytest.mark.fault("F81")
@pytest.mark.parametrize("value", ["x", "1", 1.5])
def test_arguments_with_many_applicable_schemas_are_checked_in_few_lines(value: JsonValue) -> None:
    arguments = json.dump_text({f"p{number}": value for number in range(100)})
    checking = partial(check, demanding(100), arguments)
    checking()  # compiles the schema
    assert lines_run(checking) < MOST_LINES_OF_A_CHECK


@pytest.mark.fault("F80")
def test_schemas_of_a_large_request_are_compiled_in_another_thread() -> None:
    tool = demanding(120)
    function: JsonObject = {"name": tool.name, "parameters": tool.parameters}
    body: JsonObject = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": function}],
    }
    preparation = RequestPreparation(ServiceOptions().services_for(ScriptedBackend()), Policy())
    decoded = ChatDialect(STAMP).decode(json.dump(body), Client())

    async def plan() -> None:
        await preparation.plan(await preparation.resolve(decoded), {})

    asyncio.run(plan())
    assert lines_run(partial(compile_schema, tool.parameters)) < NOISE
