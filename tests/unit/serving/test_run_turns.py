from proxy.api.dialects import CHAT
from proxy.backends.client import Description
from proxy.context.prefix import PrefixBroken
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, assistant_message, tool_result
from proxy.conversation.replies import TextDelta
from proxy.conversation.tools import ToolCall
from proxy.dialects.dialect import Client
from proxy.errors import ContextOverflow
from proxy.inference.plan import Policy
from proxy.serving.request_preparation import RequestPreparation
from proxy.serving.run_turns import RunTurns
from proxy.serving.services import ServiceOptions
from proxy.tools.run import Ask
from tests.fakes.backend import ScriptedBackend

DIALOGUE: list[JsonValue] = [
    {"role": role, "content": f"{number} " * 300}
    for number in range(12)
    for role in ("user", "assistant")
]
CALL = ToolCall("1", "find", "{}")
ROUND: tuple[Message, ...] = (assistant_message("", (CALL,)), tool_result("1", "found"))
TOO_LONG = ContextOverflow("too long", 9_000, 3_000)


async def turns_of(backend: ScriptedBackend, *history: JsonValue, workers: int = 1) -> RunTurns:
    preparation = RequestPreparation(ServiceOptions().services_for(backend), Policy())
    body: JsonObject = {"model": "m", "messages": [*history, {"role": "user", "content": "Hi"}]}
    return RunTurns(
        preparation=preparation,
        resolved=await preparation.resolve(CHAT.decode(json.dump(body), Client())),
        upstream={"x-request-id": "r"},
        may_retry=lambda: True,
        workers=workers,
    )


async def test_each_turn_is_planned_and_fitted_like_a_request() -> None:
    backend = ScriptedBackend(description=Description(("m",), slots=4))
    turns = await turns_of(backend, workers=2)
    request = turns.resolved.request
    first = await turns.begin(Ask(request))
    second = await turns.begin(Ask(request.append_messages(ROUND)))
    assert turns.turns == [first, second]
    upstream_request = second.next_request()
    assert upstream_request is not None
    assert [message.role for message in upstream_request.messages] == ["user", "assistant", "tool"]
    assert turns.planned.headers["x-request-id"] == "r"
    assert turns.watched is not None
    assert turns.watched.broken is None
    queue = turns.planned.service.admission.queue
    tickets = [queue.join(str(number)) for number in range(3)]
    assert [ticket is not None and ticket.is_served for ticket in tickets] == [True, True, False]


async def test_a_turn_that_does_not_extend_the_last_prompt_breaks_the_prefix() -> None:
    turns = await turns_of(ScriptedBackend())
    request = turns.resolved.request
    await turns.begin(Ask(request.append_messages(ROUND)))
    other = assistant_message("It is found.", ())
    await turns.begin(Ask(request.append_messages((other,))))
    assert turns.watched is not None
    assert isinstance(turns.watched.broken, PrefixBroken)
    assert turns.watched.broken.place == 1


async def test_begin_returns_the_turn_that_was_already_fitted() -> None:
    turns = await turns_of(ScriptedBackend())
    request = turns.resolved.request
    planned = await turns.plan(request)
    turn = await turns.preparation.fit(planned, lambda: True)
    turns.begin_with(planned, turn)
    assert await turns.begin(Ask(request)) is turn
    assert await turns.begin(Ask(request.append_messages(ROUND))) is not turn
    assert turns.turns[0] is turn


async def test_a_rejected_prompt_is_shortened_unless_text_of_its_turn_was_sent() -> None:
    turns = await turns_of(ScriptedBackend(), *DIALOGUE)
    long = await turns.begin(Ask(turns.resolved.request))
    short = await turns.shorten(TOO_LONG)
    assert short is not None
    assert turns.turns == [short] != [long]
    turns.note([TextDelta("It")])
    assert await turns.shorten(TOO_LONG) is None
    await turns.begin(Ask(turns.resolved.request))
    assert await turns.shorten(TOO_LONG) is not None


async def test_shorten_returns_none_if_the_prompt_cannot_be_shortened() -> None:
    turns = await turns_of(ScriptedBackend())
    turn = await turns.begin(Ask(turns.resolved.request))
    assert await turns.shorten(ContextOverflow("too long", 10, 5)) is None
    assert turns.turns == [turn]
