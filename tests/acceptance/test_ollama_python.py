"""ollama-python, sync and async, in front of a mock of Ollama and a real llama-server.

The mock makes no mistakes and is also queried directly; the llama-server's model writes its calls
as text.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, cast

import httpx
import ollama
import pytest
from pydantic import BaseModel

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_list, as_object
from proxy.processes.process import RunningServer
from tests.fakes.command import ended, running_temper
from tests.fakes.right_ollama import (
    ANSWER,
    BLIND,
    BREAK,
    BROKEN,
    PICTURE,
    TAGGED,
    THINK,
    THOUGHT,
    RightOllama,
    temper_with_right_ollama,
)
from tests.fakes.tool_loops import (
    FACT,
    FACT_SCHEMA,
    FACTS,
    MODEL,
    TRIP,
    Served,
    Tools,
    check_trip,
    temper_with_leaking_llama_server,
)

pytestmark = pytest.mark.usefixtures(
    "llama_server"
)  # `llama_server` has session scope, so its event loop keeps running after this module


class Way(Protocol):
    """A way to call a method of the client; streamed responses are merged into one."""

    def __call__(self, url: str, method: str, /, **fields: object) -> JsonObject: ...


@pytest.fixture(scope="module")
def mock() -> RightOllama:
    return RightOllama()


@pytest.fixture(scope="module")
def both(mock: RightOllama) -> Iterator[tuple[str, Served]]:
    """The address of the mock, and that of Temper in front of it."""
    with temper_with_right_ollama(mock) as served:
        yield served


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with temper_with_leaking_llama_server(tmp_path_factory.mktemp("leaks")) as served:
        yield replace(served, url=served.url.removesuffix("/v1"))


def whole(url: str, method: str, /, **fields: object) -> JsonObject:
    with ollama.Client(url) as client:
        return dumped(getattr(client, method)(**fields))


def streamed(url: str, method: str, /, **fields: object) -> JsonObject:
    with ollama.Client(url) as client:
        return add_up([dumped(line) for line in getattr(client, method)(**fields, stream=True)])


def awaited(url: str, method: str, /, **fields: object) -> JsonObject:
    async def ask() -> JsonObject:
        async with ollama.AsyncClient(url) as client:
            return dumped(await getattr(client, method)(**fields))

    return asyncio.run(ask())


def async_streamed(url: str, method: str, /, **fields: object) -> JsonObject:
    async def ask() -> JsonObject:
        async with ollama.AsyncClient(url) as client:
            lines = await getattr(client, method)(**fields, stream=True)
            return add_up([dumped(line) async for line in lines])

    return asyncio.run(ask())


WAYS = (whole, streamed, awaited, async_streamed)


def dumped(answer: BaseModel) -> JsonObject:
    return cast("JsonObject", answer.model_dump(exclude_none=True))


def add_up(lines: list[JsonObject]) -> JsonObject:
    """Merge the lines of a stream into one response."""
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    total = {**lines[-1]}
    for line in lines[:-1]:
        for name in ("response", "thinking", "logprobs"):
            if name in line:
                total[name] = _plus(total.get(name), line[name])
        message, more = total.get("message"), line.get("message")
        if isinstance(message, dict) and isinstance(more, dict):
            texts = {name: more[name] for name in more if name != "role"}
            total["message"] = {
                **message,
                **{name: _plus(message.get(name), value) for name, value in texts.items()},
            }
    return total


def _plus(before: JsonValue, more: JsonValue) -> JsonValue:
    if isinstance(more, list):
        return [*cast("list[JsonValue]", before or []), *more]
    return f"{before or ''}{more}"


def without_times(answer: JsonObject) -> JsonObject:
    return {name: value for name, value in answer.items() if name != "created_at"}


def user(words: str, **more: JsonValue) -> JsonObject:
    return {"role": "user", "content": words, **more}


TOOLS = [Tools([]).get_weather, Tools([]).get_time]
QUESTIONS: dict[str, tuple[str, dict[str, object]]] = {
    "words": ("chat", {"messages": [user("Who are you?")]}),
    "thoughts": ("chat", {"messages": [user(THINK)], "think": True}),
    "no thoughts": ("chat", {"messages": [user(THINK)], "think": False}),
    "calls": ("chat", {"messages": [user(TRIP)], "tools": TOOLS}),
    "a form": ("chat", {"messages": [user(FACTS)], "format": FACT_SCHEMA}),
    "json": ("chat", {"messages": [user(FACTS)], "format": "json"}),
    "log probabilities": ("chat", {"messages": [user(FACTS)], "logprobs": True}),
    "a picture": ("chat", {"messages": [user("See?", images=[PICTURE])]}),
    "options": ("chat", {"messages": [user("Hi")], "options": {"temperature": 0, "top_k": 5}}),
    "a prompt": ("generate", {"prompt": "Who are you?", "system": "Be brief."}),
    "a prompt with thoughts": ("generate", {"prompt": THINK, "think": True}),
    "nothing": ("generate", {}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_response_through_temper_equals_that_of_ollama_except_for_durations(
    mock: RightOllama, both: tuple[str, Served], way: Way, question: str
) -> None:
    direct, served = both
    method, fields = QUESTIONS[question]
    expected = way(direct, method, model=MODEL, **fields)
    before = mock.generations
    got = way(served.url, method, model=MODEL, **fields)
    assert without_times(got) == without_times(expected)
    assert mock.generations - before == (question != "nothing")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_model_lists_details_and_embeddings_through_temper_equal_those_of_ollama(
    both: tuple[str, Served], *, is_async: bool
) -> None:
    lookups: list[tuple[str, dict[str, object]]] = [
        ("list", {}),
        ("ps", {}),
        ("show", {"model": MODEL}),
        ("embed", {"model": MODEL, "input": ["a", "b"]}),
        ("embed", {"model": MODEL, "input": "a"}),
        ("embeddings", {"model": MODEL, "prompt": "a"}),
    ]
    ask = awaited if is_async else whole
    direct, served = both
    for method, members in lookups:
        assert ask(served.url, method, **members) == ask(direct, method, **members)


def test_model_management_is_forwarded_to_ollama(
    mock: RightOllama, both: tuple[str, Served]
) -> None:
    _, served = both
    mock.managed.clear()
    with ollama.Client(served.url) as client:
        progress = [update.status for update in client.pull("new", stream=True)]
        assert client.pull("new").status == "success"
        assert client.create("own", from_="new").status == "success"
        assert client.copy("new", "old").status == "success"
        assert client.delete("new").status == "success"
    assert progress == ["pulling manifest", "pulling", "success"]
    assert [name for name, _ in mock.managed] == ["pull", "pull", "create", "copy", "delete"]
    assert mock.managed[-1][1] == {"model": "new"}


def test_requests_without_messages_load_and_unload_a_model(
    mock: RightOllama, both: tuple[str, Served]
) -> None:
    _, served = both
    mock.managed.clear()
    assert whole(served.url, "chat", model=MODEL, keep_alive="10m")["done_reason"] == "load"
    assert whole(served.url, "generate", model=MODEL, keep_alive=0)["done_reason"] == "unload"
    assert [(name, body.get("keep_alive")) for name, body in mock.managed] == [
        ("load", "10m"),
        ("unload", 0),
    ]


def test_load_options_are_forwarded_to_ollama(mock: RightOllama, both: tuple[str, Served]) -> None:
    _, served = both
    options = {"num_gpu": 3, "num_ctx": 4096, "temperature": 0.5}
    messages = [user("Hi")]
    whole(served.url, "chat", model=MODEL, messages=messages, options=options, keep_alive="7m")
    body = mock.bodies[-1]
    assert body["keep_alive"] == "7m"
    # Temper keeps the window (num_ctx) with which the model is already loaded
    assert body["options"] == {"num_gpu": 3, "num_ctx": 8192, "temperature": 0.5}


@pytest.fixture(params=["mock", "leaking llama-server"])
def loop(request: pytest.FixtureRequest) -> Served:
    if request.param == "mock":
        return cast("tuple[str, Served]", request.getfixturevalue("both"))[1]
    leaking: Served = request.getfixturevalue("leaking")
    return leaking


def run_tools(url: str, way: Way, tools: Tools) -> str:
    """Run a tool loop as in the documentation of ollama-python."""
    messages: list[object] = [user(TRIP)]
    while True:
        offered = [tools.get_weather, tools.get_time]
        answer = way(url, "chat", model=MODEL, messages=messages, tools=offered)
        message = cast("JsonObject", answer["message"])
        messages.append(message)
        calls = cast("list[JsonObject]", message.get("tool_calls", []))
        if not calls:
            return f"{message['content']}"
        for call in calls:
            function = cast("JsonObject", call["function"])
            arguments = cast("dict[str, str]", function["arguments"])
            result = tools.run(f"{function['name']}", arguments)
            messages.append({"role": "tool", "tool_name": function["name"], "content": result})


@pytest.mark.parametrize("way", WAYS)
def test_an_ollama_python_loop_runs_its_tools_and_gets_the_answer(loop: Served, way: Way) -> None:
    check_trip(loop, lambda tools: run_tools(loop.url, way, tools))


class HomeAssistant:
    """Sends requests like the Ollama integration of Home Assistant.

    Calls have no ids, and results no tool names. Numbers are floats, because the forms of Home
    Assistant return floats.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.history: list[ollama.Message] = [ollama.Message(role="system", content="You are HA.")]

    def look(self) -> tuple[ollama.ListResponse, ollama.ProcessResponse]:
        async def ask() -> tuple[ollama.ListResponse, ollama.ProcessResponse]:
            async with ollama.AsyncClient(self.url, verify=False) as client:
                listed: ollama.ListResponse
                running: ollama.ProcessResponse
                listed, running = await asyncio.gather(client.list(), client.ps())
                return listed, running

        return asyncio.run(ask())

    def ask(self, *tools: JsonObject, form: JsonObject | None = None) -> JsonObject:
        return async_streamed(
            self.url,
            "chat",
            model=MODEL,
            messages=[*self.history],
            tools=[*tools] or None,
            keep_alive=-1,
            options={"num_ctx": 8192.0},
            think=False,
            format=form,
        )

    def run(self, tools: Tools) -> str:
        city: JsonObject = {"properties": {"city": {"type": "string"}}, "required": ["city"]}
        nothing: JsonObject = {"properties": {}, "required": []}
        offered: list[JsonObject] = [
            {
                "type": "function",
                "function": {"name": name, "parameters": {"type": "object", **tool}},
            }
            for name, tool in (("get_weather", city), ("get_time", nothing))
        ]
        self.history.append(ollama.Message(role="user", content=TRIP))
        while True:
            message = cast("JsonObject", self.ask(*offered)["message"])
            made = [
                ollama.Message.ToolCall.model_validate({"function": as_object(call)["function"]})
                for call in as_list(message.get("tool_calls"))
            ]
            content = f"{message.get('content')}"
            self.history.append(ollama.Message(role="assistant", content=content, tool_calls=made))
            if not made:
                return content
            for call in made:
                data = tools.run(call.function.name, {**call.function.arguments})
                payload = json.dump_text({"data": data, "error": None})
                self.history.append(ollama.Message(role="tool", content=payload))


def test_a_tool_loop_with_the_requests_of_home_assistant_gets_the_answer(
    mock: RightOllama, loop: Served
) -> None:
    home = HomeAssistant(loop.url)
    listed, running = home.look()
    assert [model.model for model in running.models] == [listed.models[0].model]
    check_trip(loop, home.run)
    if not loop.leaks:
        body = mock.bodies[-1]
        assert (body["keep_alive"], body["think"], body["options"]) == (
            -1,
            False,
            {"num_ctx": 8192},
        )


def test_home_assistant_gets_structured_output(loop: Served) -> None:
    home = HomeAssistant(loop.url)
    home.history.append(ollama.Message(role="user", content=FACTS))
    message = cast("JsonObject", home.ask(form=FACT_SCHEMA)["message"])
    assert json.parse(f"{message['content']}") == FACT


def test_the_requests_of_vs_code_get_the_model_list_and_a_chat_completion(loop: Served) -> None:
    with httpx.Client(base_url=loop.url, trust_env=False, timeout=60) as client:
        version = f"{client.get('/api/version').json()['version']}"
        assert [*map(int, version.split("."))] >= [
            0,
            6,
            4,
        ]  # the oldest version that VS Code accepts
        name = client.get("/api/tags").json()["models"][0]["model"]
        shown = client.post("/api/show", json={"model": name}).json()
        about = shown["model_info"]
        assert about[f"{about['general.architecture']}.context_length"] >= 8192
        assert "tools" in shown["capabilities"]
        body = {"model": name, "messages": [user("Who are you?")], "stream": True}
        keyless = {"Authorization": "Bearer"}
        answer = client.post("/v1/chat/completions", json=body, headers=keyless)
    assert answer.status_code == 200
    assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("way", WAYS)
def test_llama_server_response_has_ollamas_format(leaking: Served, way: Way) -> None:
    answer = way(leaking.url, "chat", model=MODEL, messages=[user(FACTS)], format=FACT_SCHEMA)
    message = cast("JsonObject", answer["message"])
    assert json.parse(f"{message['content']}") == FACT
    assert (answer["model"], answer["done_reason"]) == (MODEL, "stop")
    assert all(cast("int", answer[name]) > 0 for name in ("eval_count", "prompt_eval_count"))
    assert cast("int", answer["eval_duration"]) > 0


def test_a_llama_server_is_listed_and_described_like_an_ollama_model(leaking: Served) -> None:
    with ollama.Client(leaking.url) as client:
        (listed,) = client.list().models
        (running,) = client.ps().models
        assert listed.model is not None
        shown = client.show(listed.model)
    assert listed.model.endswith(":latest")
    assert (listed.size or 0) > 0
    assert running.context_length == 131_072
    assert shown.modelinfo is not None
    architecture = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{architecture}.context_length"] == 131_072
    assert {"completion", "tools"} <= {*(shown.capabilities or ())}


def test_the_reasoning_is_in_the_field_thinking_if_think_is_set(both: tuple[str, Served]) -> None:
    _, served = both
    answer = whole(served.url, "chat", model=MODEL, messages=[user(THINK)], think=True)
    message = cast("JsonObject", answer["message"])
    assert (message["thinking"], message["content"]) == (THOUGHT, ANSWER)


def error_of(url: str, way: Way, method: str = "chat", **fields: object) -> tuple[int, str]:
    with pytest.raises(ollama.ResponseError) as raised:
        way(url, method, **fields)
    return raised.value.status_code, raised.value.error


@pytest.mark.parametrize("way", WAYS)
def test_errors_have_status_400_or_404_and_an_ollama_error_message(
    both: tuple[str, Served], way: Way
) -> None:
    url = both[1].url
    picture = [user("See?", images=[PICTURE])]
    status, message = error_of(url, way, model=BLIND, messages=picture)
    assert (status, "does not accept images" in message) == (400, True)
    status, message = error_of(url, way, model="nobody", messages=[user("Hi")])
    assert (status, message.startswith("model 'nobody' not found")) == (404, True)
    status, message = error_of(url, way, "generate", model=MODEL, prompt="a", suffix="b")
    assert (status, message.startswith("suffix: ")) == (400, True)


@pytest.mark.parametrize("way", [streamed, async_streamed])
def test_truncated_reply_ends_with_an_error_that_clients_raise(
    both: tuple[str, Served], way: Way
) -> None:
    url = both[1].url
    _, message = error_of(url, way, model=MODEL, messages=[user(BREAK)])
    assert BROKEN in message
    body: JsonObject = {"model": MODEL, "messages": [user(BREAK)]}
    answer = httpx.post(f"{url}/api/chat", json=body, trust_env=False)
    *begun, last = map(json.parse, answer.content.splitlines())
    assert (answer.status_code, last) == (200, {"error": message})
    assert [as_object(line)["done"] for line in begun] == [False, False]


def test_a_request_without_the_api_key_gets_401(both: tuple[str, Served]) -> None:
    surroundings = {"TEMPER_SERVER__API_KEY": "sesame", "TEMPER_BACKEND__KIND": "ollama"}
    with running_temper("--backend-url", both[0], environment=surroundings) as url:
        status, message = error_of(url, whole, model=MODEL, messages=[user("Hi")])
        assert (status, "key" in message) == (401, True)
        key = {"Authorization": "Bearer sesame"}  # as ollama-python sends OLLAMA_API_KEY
        with ollama.Client(url, headers=key) as client:
            assert client.chat(MODEL, [user("Hi")]).done
            assert client.list().models


def test_a_reply_stopped_at_the_deadline_ends_with_a_done_reason_or_an_error(
    llama_server: RunningServer,
) -> None:
    key = {"TEMPER_BACKEND__API_KEY": llama_server.api_key, "TEMPER_BACKEND__DEADLINE_SECONDS": "1"}
    with running_temper("--backend-url", llama_server.base_url, environment=key) as url:
        body: JsonObject = {"model": "m", "messages": [user("[[forever]]")]}
        answer = httpx.post(f"{url}/api/chat", json=body, trust_env=False, timeout=60)
    assert answer.status_code == 200
    last = cast("JsonObject", json.parse(answer.content.splitlines()[-1]))
    assert last.get("done_reason") == "length" or "error" in last


@contextmanager
def like_ollama(port: int, backend: str) -> Iterator[str]:
    with running_temper("--like-ollama", f"{port}", "--backend-url", backend, environment={}):
        yield f"http://127.0.0.1:{port}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_the_port_for_ollama_clients_answers_like_ollama(both: tuple[str, Served]) -> None:
    direct, served = both
    with like_ollama(free_port(), direct) as url:
        assert httpx.get(url, trust_env=False).text == "Ollama is running"
        assert httpx.head(url, trust_env=False).status_code == 200
        with ollama.Client(url) as client:
            assert [model.model for model in client.list().models] == [TAGGED, BLIND]
    assert httpx.head(served.url, trust_env=False).status_code == 200


def test_a_used_port_for_ollama_clients_is_an_error_with_a_remedy(both: tuple[str, Served]) -> None:
    direct, _ = both
    port = direct.rpartition(":")[2]
    failure = ended("serve", "--port", "0", "--like-ollama", port, "--backend-url", direct)
    assert failure.returncode == 1
    assert f"port {port} is used by an Ollama or another program" in failure.stderr
    assert "omit --like-ollama" in failure.stderr
