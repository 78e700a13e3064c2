import asyncio

import pytest

from proxy.agents.results import RunEvent
from proxy.conversation.messages import Message, user_message
from temper import (
    Added,
    Agent,
    BackendFailed,
    Finished,
    Hooks,
    InvalidRequest,
    Model,
    Progress,
    RunStream,
    Stop,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
)
from tests.fakes.agents import WEATHER_CALLED, get_weather, scripted
from tests.fakes.scripted_backend import Ending, Script, refuses
from tests.fakes.sse import START, delta, end, part, says, text


def test_hooks_may_be_sync_or_async_or_missing() -> None:
    received: list[object] = []

    async def on_message(message: Message) -> None:
        await asyncio.sleep(0)
        received.append(message.text)

    def on_chunk(event: RunEvent) -> None:
        received.append(event)

    async def call(hooks: Hooks) -> None:
        await hooks.add_message(user_message("Hi"))
        await hooks.show(Text("Ho"))

    asyncio.run(call(Hooks()))
    assert received == []
    asyncio.run(call(Hooks(on_message=on_message, on_chunk=on_chunk)))
    assert received == ["Hi", Text("Ho")]


THINKS = START + delta({"reasoning_content": "Hm."}) + text("It is ", "fine.") + end()


async def test_text_and_tool_calls_are_streamed_as_they_arrive() -> None:
    events: list[RunEvent] = []
    async with (
        scripted(WEATHER_CALLED, THINKS) as (model, _),
        Agent(model, [get_weather]).stream("How is Paris?") as stream,
    ):
        with pytest.raises(RuntimeError, match="has not finished"):
            _ = stream.result
        events += [event async for event in stream]
        result = stream.result
    kinds = [type(event) for event in events]
    assert kinds == [
        *(ToolStarted, ToolFinished),
        *(Added, Added, Added),
        *(Thought, Text, Text),
        *(Added, Finished),
    ]
    assert [event.text for event in events if isinstance(event, Text)] == ["It is ", "fine."]
    assert events[-1] == Finished(result)  # type: ignore[arg-type] # of any output


async def test_a_stream_can_be_read_only_once() -> None:
    async with scripted(says("Hi.")) as (model, _), Agent(model).stream("Hi") as stream:
        assert len([event async for event in stream]) == 4
        assert [event async for event in stream] == []


async def test_leaving_the_stream_block_cancels_the_run() -> None:
    never = Script((START, text("It is"), Ending.NEVER))
    async with scripted(never) as (model, backend):
        async with Agent(model).stream("Hi") as stream:
            async for event in stream:
                assert event == Text("It is")
                break
        await backend.upstream_requests[0].left.wait()


async def test_a_canceled_stream_ends_with_the_event_finished() -> None:
    never = Script((START, text("It is"), Ending.NEVER))
    async with scripted(never) as (model, _), Agent(model).stream("Hi") as stream:
        events = aiter(stream)
        assert await anext(events) == Text("It is")
        stream.cancel()
        stream.cancel()
        assert [type(event) async for event in events] == [Finished]
        assert stream.result.stop is Stop.CANCELLED


async def test_a_stream_canceled_by_a_hook_after_the_answer_keeps_the_answer() -> None:
    streams: list[RunStream] = []
    hooks = Hooks(on_message=lambda _: streams[0].cancel())
    async with (
        scripted(says("Hi.")) as (model, _),
        Agent(model).stream("Hi", hooks=hooks) as stream,
    ):
        streams.append(stream)
        assert [type(event) async for event in stream][-1] is Finished
        assert (stream.result.stop, stream.result.output) == (Stop.ANSWERED, "Hi.")


async def test_canceling_the_task_that_reads_a_stream_cancels_the_run() -> None:
    never = Script((START, text("It is"), Ending.NEVER))
    streams: list[RunStream] = []

    async def read(model: Model) -> None:
        async with Agent(model).stream("Hi") as stream:
            streams.append(stream)
            await asyncio.Event().wait()

    async with scripted(never) as (model, backend):
        reader = asyncio.create_task(read(model))
        await backend.next_request()
        reader.cancel()
        await asyncio.sleep(0)  # the reader leaves its block, which ends the run
        streams[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        with pytest.raises(asyncio.CancelledError):
            _ = streams[0].result


async def test_an_error_of_the_run_is_raised_while_its_stream_is_read() -> None:
    async with (
        scripted(refuses(400, {"message": "no"})) as (model, _),
        Agent(model).stream("Hi") as stream,
    ):
        with pytest.raises((BackendFailed, InvalidRequest)):
            await anext(aiter(stream))


async def test_an_error_of_the_run_is_not_raised_if_its_stream_is_never_read() -> None:
    async with (
        scripted(refuses(400, {"message": "no"})) as (model, backend),
        Agent(model).stream("Hi"),
    ):
        await backend.next_request()
        await asyncio.sleep(0)


def progress(processed: int, total: int = 1100, cached: int = 100) -> bytes:
    return part([], prompt_progress={"total": total, "cache": cached, "processed": processed})


async def test_the_progress_of_each_attempt_is_reported_before_any_content() -> None:
    wrong = START + text("I'll check the weather.") + end()
    slow = START + progress(100) + progress(500) + progress(1100) + text("Fi", "ne.") + end()
    all_cached = START + progress(100, 100) + text("Fine.") + end()
    received: list[Progress] = []
    async with scripted(wrong, slow, all_cached) as (model, _):
        agent = Agent(model, [get_weather])
        await agent.run("How is Paris?", hooks=Hooks(on_progress=received.append))
        announced, stages = (
            "announced",
            [(event.stage, event.share, event.defect) for event in received],
        )
        assert stages == [
            *(("reading", None, ""), ("generating", None, "")),
            *(("reading", None, announced), ("reading", 0.0, announced)),
            *(("reading", 0.4, announced), ("generating", None, announced)),
        ]
        received.clear()
        await agent.run("And now?", hooks=Hooks(on_progress=received.append))
    assert [event.stage for event in received] == ["reading", "generating"]
