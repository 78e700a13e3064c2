"""A simulated model over HTTP. With `pace=0.0` its server sends every reply without waiting."""

import httpx
import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.replies import ReadMessage, events_in
from temper_evals.scenarios.suite import FAMILIES
from temper_evals.scenarios.task import calls_of
from temper_evals.scenarios.worlds import objects_in
from temper_evals.simulated.profiles import Flaw, ModelProfile, load_profile
from temper_evals.simulated.server import SimulatedServer, serve
from tests.unit.temper_evals.players import follow_plan, play

CHAT = "/v1/chat/completions"
TASKS = [FAMILIES[name](n) for name in ("single", "verbatim", "parallel", "none") for n in range(6)]


def server(profile: str = "p-small", window: int = 8192) -> SimulatedServer:
    return SimulatedServer(load_profile(profile), pace=0.0, window=window)


def client_of(simulated: SimulatedServer) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(simulated.app())
    return httpx.AsyncClient(transport=transport, base_url="http://simulated")


async def streamed(client: httpx.AsyncClient, body: JsonObject) -> tuple[bytes, ReadMessage]:
    answer = await client.post(CHAT, json={**body, "stream": True})
    reply = ReadMessage()
    for event in events_in(answer.text.splitlines()):
        reply.take(event)
    return answer.content, reply


async def test_equal_requests_get_byte_identical_replies() -> None:
    async with client_of(server()) as first, client_of(server()) as other:
        for task in TASKS:
            assert (await streamed(first, task.request(3)))[0] == (
                await streamed(other, task.request(3))
            )[0]


async def test_a_streamed_reply_has_the_same_message_as_an_unstreamed_reply() -> None:
    async with client_of(server()) as client:
        for task in TASKS:
            _, reply = await streamed(client, task.request(3))
            whole = ReadMessage()
            whole.take((await client.post(CHAT, json=task.request(3))).json())
            assert without_ids(reply.message()) == without_ids(whole.message())
            assert reply.reason == whole.reason
            assert {*reply.usage} == {*whole.usage}


@pytest.mark.parametrize("stream", [True, False])
async def test_each_call_of_a_conversation_has_a_different_id(*, stream: bool) -> None:
    async with client_of(server("healthy")) as client:
        body, ids = {**TASKS[0].request(0), "stream": stream}, list[JsonValue]()
        messages = objects_in(body["messages"])
        # the same number of messages, as after a retry that the client does not see
        for number in range(2):
            before: list[JsonValue] = [{"id": used, "type": "function"} for used in ids]
            earlier: list[JsonValue] = [*messages[:-1], {**messages[-1], "tool_calls": before}]
            reply, sent = ReadMessage(), {**body, "messages": earlier}
            answer = await client.post(CHAT, json=sent)
            documents = events_in(answer.text.splitlines()) if stream else [answer.json()]
            for document in documents:
                reply.take(document)
            ids += [call["id"] for call in calls_of(reply.message())]
            assert len({*ids}) == number + 1


def without_ids(message: JsonObject) -> JsonObject:
    calls = message.get("tool_calls")
    functions = (
        [call["function"] for call in calls if isinstance(call, dict)]
        if isinstance(calls, list)
        else []
    )
    return {"content": message["content"], "calls": functions}


async def test_streamed_argument_deltas_have_at_most_six_characters() -> None:
    async with client_of(server("healthy")) as client:
        answer = await client.post(CHAT, json={**TASKS[0].request(1), "stream": True})
    events = [*events_in(answer.text.splitlines())]
    pieces = []
    for event in events[:-1]:
        choices = event["choices"]
        assert isinstance(choices, list)
        assert isinstance(choices[0], dict)
        delta = choices[0]["delta"]
        assert isinstance(delta, dict)
        calls = delta.get("tool_calls")
        if isinstance(calls, list) and isinstance(calls[0], dict):
            function = calls[0]["function"]
            assert isinstance(function, dict)
            pieces.append(str(function["arguments"]))
    assert len(pieces) > 5
    assert all(len(piece) <= 6 for piece in pieces)


async def test_the_usage_of_a_case_consists_of_tokens_seconds_and_flaws() -> None:
    simulated = server("mismatch")
    async with client_of(simulated) as client:
        for seed in range(30):
            await client.post(CHAT, json=TASKS[0].request(seed))
    spent = simulated.usage_of(f"{TASKS[0].name}/0")
    assert spent.generations == 1
    assert spent.prompt > spent.cached >= 0
    assert spent.generated > 0
    assert spent.seconds > 0
    flaws = [
        flaw for seed in range(30) for flaw in simulated.usage_of(f"{TASKS[0].name}/{seed}").flaws
    ]
    assert flaws.count(Flaw.FOREIGN) > 20


SINGLE = FAMILIES["single"](0)
RUNAWAY = ModelProfile(
    "made", "", {Flaw.RUNAWAY: 1.0}, load_profile("p-small").reactions, call_forms=("{call}",)
)


def request_after_a_call(**members: JsonValue) -> JsonObject:
    """Return the request that follows the first call of a task and its result."""
    request = SINGLE.request(0)
    messages = request["messages"]
    assert isinstance(messages, list)
    return {**request, "messages": [*messages, *play(SINGLE, follow_plan)[1][:2]], **members}


@pytest.mark.parametrize("limit", [{"max_tokens": 100}, {"max_completion_tokens": 100}, {}])
async def test_a_runaway_reply_ends_at_max_tokens_or_at_the_window(limit: JsonObject) -> None:
    simulated = SimulatedServer(RUNAWAY, pace=0.0, window=1000)
    async with client_of(simulated) as client:
        whole = (await client.post(CHAT, json=request_after_a_call(**limit))).json()
        _, reply = await streamed(client, request_after_a_call(**limit))
    choice = whole["choices"][0]
    lines = choice["message"]["content"].splitlines()
    call = SINGLE.calls[0]
    assert len(lines) > 2
    assert json.parse(lines[0]) == {"name": call.name, "arguments": call.arguments}
    assert {*lines[:-1]} == {lines[0]}
    assert lines[0].startswith(lines[-1])
    assert choice["finish_reason"] == reply.reason == "length"
    tokens = whole["usage"]["completion_tokens"]
    assert tokens == 100 if limit else tokens > 100
    spent = simulated.usage_of(f"{SINGLE.name}/0")
    assert (spent.generations, spent.generated) == (2, 2 * tokens)
    assert spent.flaws == [Flaw.RUNAWAY] * 2


async def test_a_runaway_reply_ends_when_the_client_disconnects() -> None:
    simulated = SimulatedServer(RUNAWAY, pace=0.1)
    spent = simulated.usage_of(f"{SINGLE.name}/0")
    async with serve(simulated) as url, httpx.AsyncClient(base_url=url) as client:
        async with client.stream("POST", CHAT, json=request_after_a_call(stream=True)) as response:
            async for line in response.aiter_lines():
                if "reason" in line and spent.generated > 50:
                    break
        before = spent.generated
        assert (await client.get("/health")).status_code == 200
    assert 50 < before <= spent.generated < 6000
    assert spent.seconds > spent.generated / 30


async def test_a_prompt_larger_than_the_window_gets_the_error_of_llama_server() -> None:
    async with client_of(server(window=10)) as client:
        answer = await client.post(CHAT, json=TASKS[0].request(1))
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "exceed_context_size_error"
    assert answer.json()["error"]["n_ctx"] == 10


async def test_a_request_without_a_known_case_gets_a_text_reply() -> None:
    async with client_of(server()) as client:
        answer = await client.post(CHAT, json={"messages": []})
    assert "nothing of this case" in answer.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    ("path", "body", "member", "value"),
    [
        ("/tokenize", {"content": "12345678"}, "tokens", [1, 1]),
        ("/tokenize", {"content": ["1234", -1, "5"]}, "tokens", [1, -1, 1]),
        ("/apply-template", {"messages": []}, "prompt", "[]"),
        (f"{CHAT}/input_tokens", {"messages": []}, "input_tokens", 1),
    ],
)
async def test_tokenize_apply_template_and_input_tokens_return_the_expected_values(
    path: str, body: JsonObject, member: str, value: object
) -> None:
    async with client_of(server()) as client:
        assert (await client.post(path, json=body)).json()[member] == value


async def test_health_props_and_models_respond_like_llama_server() -> None:
    async with serve(server()) as url, httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/props")).json()["total_slots"] == 4
        models = (await client.get("/v1/models")).json()["data"]
        assert models[0]["owned_by"] == "llamacpp"
