import asyncio
import dataclasses
import logging
from collections.abc import Callable
from contextlib import aclosing

import httpx
import pytest
import respx
from msgspec.structs import replace

from proxy.backends.adaptive import AdaptiveEngine
from proxy.backends.client import Description, Health
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyFinished
from proxy.conversation.requests import Question
from proxy.conversation.tools import NamedTool
from proxy.errors import BackendRefused, ContextOverflow, TemperError
from tests.fakes.backend import every
from tests.fakes.engine_errors import OVERFLOWS, Overflow
from tests.fakes.passages import PASSAGE, relayed_by
from tests.fakes.questions import HELLO, chunk, question, stream

CHAT = "http://host/v1/chat/completions"
MODELS = "http://host/v1/models"
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
NO_OBJECT = "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
HI = httpx.Response(200, content=HELLO)


class ConnectionPool:
    """An engine that plays answers to chats and serves documents."""

    def __init__(self, *answers: httpx.Response, **documents: JsonValue) -> None:
        self.routes = respx.MockRouter(assert_all_called=False)
        self.chat = self.routes.post(CHAT)
        self.chat.side_effect = list(answers)
        counted = {"count": 21, "max_model_len": 4096, "tokens": [1]}
        self.tokenize = self.routes.post("http://host/tokenize").respond(json=counted)
        for path, value in documents.items():
            self.routes.get(f"http://host/{path.replace('_', '/')}").respond(json=value)
        self.routes.route().respond(404)

    def engine(self, clock: Callable[[], float] = lambda: 0.0) -> AdaptiveEngine:
        wire = httpx.MockTransport(self.routes.async_handler)
        return AdaptiveEngine(BackendClient("http://host", transport=wire), clock=clock)

    @property
    def asked(self) -> list[JsonObject]:
        bodies = [json.parse(call.request.content) for call in self.chat.calls]
        return [body for body in bodies if isinstance(body, dict)]


async def replied(engine: AdaptiveEngine, asked: Question) -> list[ReplyEvent]:
    async with aclosing(engine.ask(asked, {})) as reply:
        return await every(reply)


def listed(owner: str, **others: JsonValue) -> JsonObject:
    return {"object": "list", "data": [{"id": "m", "owned_by": owner, **others}]}


def test_what_an_engine_refuses_is_asked_another_way_and_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire = ConnectionPool(
        httpx.Response(400, json={"object": "error", "message": NO_PARSER}), HI, HI
    )

    async def scene() -> list[ReplyEvent]:
        engine = wire.engine()
        first = await replied(engine, question())
        await replied(engine, question())
        return first

    with caplog.at_level(logging.WARNING):
        events = asyncio.run(scene())
    assert events[-1] == ReplyFinished("stop")
    assert [body.get("tool_choice") for body in wire.asked] == [None, "none", "none"]
    assert caplog.text.count("--tool-call-parser NAME") == 1


@pytest.mark.parametrize(("others", "told"), [((), ("tool_parser",)), (({"id": "b"},), ())])
def test_what_was_refused_is_told_of_the_only_model_whatever_clients_call_it(
    others: tuple[JsonObject, ...], told: tuple[str, ...]
) -> None:
    models: JsonValue = {"data": [{"id": "a", "owned_by": "vllm"}, *others]}
    refusal = httpx.Response(400, json={"error": NO_PARSER})
    wire = ConnectionPool(refusal, HI, v1_models=models)

    async def scene() -> tuple[Description, Description]:
        engine = wire.engine()
        before = await engine.describe("a")
        await replied(engine, question())
        return before, await engine.describe("a")

    before, after = asyncio.run(scene())
    assert (before.engine, before.lacks) == ("vLLM", ())
    assert (after.engine, after.lacks) == ("vLLM", told)


def test_what_was_learnt_of_one_model_is_not_held_against_another() -> None:
    wire = ConnectionPool(httpx.Response(400, json={"error": NO_OBJECT}), HI, HI)
    named = question(tool_choice=NamedTool("get_weather"))

    async def scene() -> None:
        engine = wire.engine()
        await replied(engine, named)
        await replied(engine, replace(named, request=replace(named.request, model="other")))

    asyncio.run(scene())
    choices = [body["tool_choice"] for body in wire.asked]
    assert choices[1] == "required"
    assert choices[0] == choices[2]


def test_what_was_learnt_is_tried_again_after_a_while() -> None:
    wire = ConnectionPool(httpx.Response(400, json={"error": NO_PARSER}), HI, HI)

    async def scene() -> None:
        now = 0.0
        engine = wire.engine(lambda: now)
        await replied(engine, question())
        now = 3600.0
        await replied(engine, question())

    asyncio.run(scene())
    assert "tool_choice" not in wire.asked[-1]


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_without_a_way_out_is_passed_on(status: int) -> None:
    wire = ConnectionPool(*[httpx.Response(status, json={"detail": "Bad schema"})] * 2)

    with pytest.raises(BackendRefused, match="Bad schema"):
        asyncio.run(replied(wire.engine(), question()))
    assert len(wire.asked) == 1


def test_the_same_refusal_twice_is_passed_on() -> None:
    wire = ConnectionPool(*[httpx.Response(400, json={"error": NO_PARSER})] * 3)

    with pytest.raises(BackendRefused):
        asyncio.run(replied(wire.engine(), question()))
    assert len(wire.asked) == 2


def test_after_the_first_event_nothing_is_asked_again() -> None:
    begun = stream(chunk({"content": "Hel"}), {"error": {"message": NO_PARSER, "code": 400}})
    wire = ConnectionPool(httpx.Response(200, content=begun))

    with pytest.raises(BackendRefused):
        asyncio.run(replied(wire.engine(), question()))
    assert len(wire.asked) == 1


def failure(response: httpx.Response) -> TemperError:
    with pytest.raises(TemperError) as caught:
        asyncio.run(replied(ConnectionPool(response).engine(), question()))
    return caught.value


@pytest.mark.parametrize("overflow", OVERFLOWS, ids=[one.engine for one in OVERFLOWS])
def test_an_overflow_is_told_with_numbers_whatever_the_engine_says(overflow: Overflow) -> None:
    error = failure(httpx.Response(overflow.status, json=overflow.body))

    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.window) == (overflow.prompt, overflow.window)
    assert overflow.message in str(error)


@pytest.mark.parametrize("overflow", OVERFLOWS, ids=[one.engine for one in OVERFLOWS])
def test_an_overflow_in_a_stream_is_the_same(overflow: Overflow) -> None:
    said: JsonValue = overflow.body
    if "error" not in overflow.body:
        said = {"error": overflow.body}
    error = failure(httpx.Response(200, content=stream(said, done=False)))

    assert isinstance(error, ContextOverflow)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, {"error": "Model unloaded."}, "Model unloaded."),
        (422, {"detail": "Field required"}, "Field required"),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "bad"}]}, '"msg":"bad"'),
        (404, {"object": "error", "message": "No model", "code": 404}, "No model"),
        (401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}, "API key"),
        (429, {"error": {"message": "Rate limit: 6000 tokens per minute"}}, "Rate limit"),
        (500, {"message": "boom"}, "boom"),
    ],
)
def test_the_words_of_an_error_are_kept_in_whatever_shape_it_comes(
    status: int, body: JsonObject, message: str
) -> None:
    error = failure(httpx.Response(status, json=body))

    assert isinstance(error, BackendRefused)
    assert error.status == status
    assert message in error.message


def test_a_field_that_is_blamed_is_named() -> None:
    body = {"error": {"message": "No.", "param": "messages.0.role", "type": "x"}}
    error = failure(httpx.Response(400, json=body))

    assert isinstance(error, BackendRefused)
    assert error.param == "messages.0.role"


@pytest.mark.parametrize(
    ("wire", "description"),
    [
        (
            ConnectionPool(v1_models=listed("vllm", root="org/m", max_model_len=4096)),
            Description(("m", "org/m"), window=4096),
        ),
        (
            ConnectionPool(v1_models=listed("sglang", root="m", max_model_len=8192)),
            Description(("m",), window=8192),
        ),
        (
            ConnectionPool(
                v1_models=listed("organization_owner"),
                api_v0_models={
                    "data": [
                        {
                            "id": "m",
                            "arch": "qwen2",
                            "state": "loaded",
                            "max_context_length": 32768,
                            "loaded_context_length": 4096,
                        }
                    ]
                },
            ),
            Description(("m",), "qwen2", window=4096),
        ),
        (ConnectionPool(v1_models=listed("organization_owner")), Description(("m",))),
        (ConnectionPool(v1_models=listed("me", context_length=9)), Description(("m",), window=9)),
        (ConnectionPool(v1_models={"data": []}), Description(("m",))),
        (ConnectionPool(), Description(("m",), is_provisional=True)),
    ],
)
def test_an_engine_tells_its_window_in_its_own_place(
    wire: ConnectionPool, description: Description
) -> None:
    found = asyncio.run(wire.engine().describe("m"))
    assert dataclasses.replace(found, engine="", lacks=()) == description


def test_an_lm_studio_never_sees_an_object_or_the_longer_name() -> None:
    wire = ConnectionPool(HI, v1_models=listed("organization_owner"))
    named = question(tool_choice=NamedTool("get_weather"))
    fields = {**named.request.fields, "max_completion_tokens": b"9"}
    named = replace(named, request=replace(named.request, fields=fields, max_tokens=9))

    async def scene() -> str:
        engine = wire.engine()
        await engine.describe("m")
        await replied(engine, named)
        return engine.kind.name

    assert asyncio.run(scene()) == "LM Studio"
    assert wire.asked[0]["tool_choice"] == "required"
    assert wire.asked[0]["max_tokens"] == 9
    assert "max_completion_tokens" not in wire.asked[0]


@pytest.mark.parametrize(("owner", "count"), [("vllm", 21), ("sglang", None)])
def test_a_prompt_is_counted_where_the_engine_takes_a_chat(owner: str, count: int | None) -> None:
    wire = ConnectionPool(v1_models=listed(owner))

    async def scene() -> tuple[int | None, tuple[int, ...] | None]:
        engine = wire.engine()
        await engine.describe("m")
        return await engine.count(question(), {}), await engine.count_texts(["a"], {})

    assert asyncio.run(scene()) == (count, None)
    if count:
        body = json.parse(wire.tokenize.calls.last.request.content)
        assert isinstance(body, dict)
        assert {"messages", "tools"} <= body.keys()


def test_the_operators_headers_go_along_with_everything() -> None:
    wire = ConnectionPool(HI, v1_models=listed("vllm"))

    async def scene() -> None:
        transport = httpx.MockTransport(wire.routes.async_handler)
        extra = {"X-Team": "blue"}
        engine = AdaptiveEngine(BackendClient("http://host", headers=extra, transport=transport))
        await engine.models()
        await replied(engine, question())
        await engine.close()

    asyncio.run(scene())
    assert [call.request.headers["x-team"] for call in wire.routes.calls] == ["blue", "blue"]


def test_it_is_as_healthy_as_its_list_of_models() -> None:
    assert asyncio.run(ConnectionPool(v1_models=listed("vllm")).engine().health()) is Health.READY


def test_what_is_passed_on_is_not_put_another_way() -> None:
    routes = respx.MockRouter()
    route = routes.post("http://host/v1/embeddings").respond(content=b"{}")
    wire = httpx.MockTransport(routes.async_handler)
    engine = AdaptiveEngine(BackendClient("http://host", transport=wire))
    assert asyncio.run(relayed_by(engine)) == b"{}"
    assert route.calls.last.request.content == PASSAGE.body()
