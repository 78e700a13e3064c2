import asyncio

from proxy.api.fronts import CHAT
from proxy.backends.client import Description
from proxy.context.prefix import PrefixBroken
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, assistant_message, tool_result
from proxy.conversation.replies import TextDelta
from proxy.conversation.tools import ToolCall
from proxy.dialects.front import Sender
from proxy.errors import ContextOverflow
from proxy.inference.preparation import Policy
from proxy.serving.request_preparation import RequestPreparation
from proxy.serving.run_turns import RunTurns
from proxy.serving.services import ServiceOptions
from proxy.tool_rounds.run import Ask
from tests.fakes.backend import ScriptedBackend

SPOKEN: list[JsonValue] = [
    {"role": role, "content": f"{number} " * 300}
    for number in range(12)
    for role in ("user", "assistant")
]
CALL = ToolCall("1", "find", "{}")
ROUND: tuple[Message, ...] = (assistant_message("", (CALL,)), tool_result("1", "found"))
TOO_LONG = ContextOverflow("too long", 9_000, 3_000)


def turns_of(backend: ScriptedBackend, *said: JsonValue, workers: int = 1) -> RunTurns:
    preparation = RequestPreparation(ServiceOptions().alone(backend), Policy())
    body: JsonObject = {"model": "m", "messages": [*said, {"role": "user", "content": "Hi"}]}
    parsed = preparation.address(CHAT.decode(json.dump(body), Sender()))
    return RunTurns(
        preparation=preparation,
        parsed=parsed,
        sender=Sender(),
        upstream={"x-request-id": "r"},
        may_retry=lambda: True,
        workers=workers,
    )


def test_each_turn_is_prepared_anew_and_its_prompt_watched() -> None:
    async def work() -> None:
        turns = turns_of(ScriptedBackend(description=Description(("m",), slots=4)), workers=2)
        request = turns.parsed.request
        first = await turns.begin(Ask(request))
        second = await turns.begin(Ask(request.append_messages(ROUND)))
        assert turns.turns == [first, second]
        question = second.next_question()
        assert question is not None
        assert [one.role for one in question.messages] == ["user", "assistant", "tool"]
        assert turns.prepared.headers["x-request-id"] == "r"
        assert turns.prefix_broken is None
        line = turns.prepared.service.admission.line
        places = [line.join(str(number)) for number in range(3)]
        assert [one is not None and one.is_served for one in places] == [True, True, False]

    asyncio.run(work())


def test_a_session_goes_on_from_the_last_prompt_of_a_run() -> None:
    async def work() -> None:
        turns = turns_of(ScriptedBackend())
        request = turns.parsed.request
        await turns.begin(Ask(request.append_messages(ROUND)))
        other = assistant_message("It is found.", ())
        await turns.begin(Ask(request.append_messages((other,))))
        assert isinstance(turns.prefix_broken, PrefixBroken)
        assert turns.prefix_broken.place == 1

    asyncio.run(work())


def test_a_turn_that_somebody_has_begun_is_the_first() -> None:
    async def work() -> None:
        turns = turns_of(ScriptedBackend())
        request = turns.parsed.request
        prepared = await turns.prepare(request)
        begun = await turns.preparation.turn(prepared, lambda: True)
        turns.go_on_with(prepared, begun)
        assert await turns.begin(Ask(request)) is begun
        assert await turns.begin(Ask(request.append_messages(ROUND))) is not begun
        assert turns.turns[0] is begun

    asyncio.run(work())


def test_a_prompt_that_proves_too_long_is_shortened_until_something_was_shown() -> None:
    async def work() -> None:
        turns = turns_of(ScriptedBackend(), *SPOKEN)
        long = await turns.begin(Ask(turns.parsed.request))
        short = await turns.shorter(TOO_LONG)
        assert short is not None
        assert turns.turns == [short] != [long]
        turns.note([TextDelta("It")])
        assert await turns.shorter(TOO_LONG) is None
        await turns.begin(Ask(turns.parsed.request))
        assert await turns.shorter(TOO_LONG) is not None

    asyncio.run(work())


def test_a_prompt_of_which_nothing_can_go_stays() -> None:
    async def work() -> None:
        turns = turns_of(ScriptedBackend())
        turn = await turns.begin(Ask(turns.parsed.request))
        assert await turns.shorter(ContextOverflow("too long", 10, 5)) is None
        assert turns.turns == [turn]

    asyncio.run(work())
