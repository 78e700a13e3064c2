"""Ollama's clients for Python and npm: tool loops, streams, reasoning, formats and images.

Those for Python need the extra `clients-ollama`. Those for npm run in `ollama_clients.mjs`;
`.ci/run` lists the versions that are known to pass, and the variable `OLLAMA_NODE_MODULES` names
their folder.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.right_ollama import (
    ANSWER,
    BLIND,
    BREAK,
    BROKEN,
    PICTURE,
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
    TIME,
    TRIP,
    WEATHER,
    Served,
    Tools,
    check_trip,
    temper_with_leaking_llama_server,
)

pytest.importorskip("langchain_ollama", reason="needs the extra `clients-ollama`")
pytest.importorskip("llama_index.llms.ollama", reason="needs the extra `clients-ollama`")

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_ollama import ChatOllama
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ImageBlock,
    MessageRole,
    TextBlock,
)
from llama_index.core.tools import FunctionTool
from llama_index.llms.ollama import Ollama as LlamaIndexOllama
from ollama import Client

OPENED: list[Client] = []  # the frameworks do not close these


@pytest.fixture(autouse=True)
def every_client_is_closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()  # type: ignore[no-untyped-call]


class Asking(Protocol):
    """The features of a client that are tested: tool loop, chat, reasoning, schema, image."""

    def run(self, url: str, tools: Tools, *, stream: bool) -> str: ...

    def tell(self, url: str, words: str, *, stream: bool) -> JsonObject: ...

    def think(self, url: str, *, stream: bool) -> tuple[str, str]: ...

    def fill(self, url: str) -> object: ...

    def show(self, url: str, model: str) -> str: ...


_KEPT = ("content", "tool_calls", "response_metadata", "usage_metadata")


class LangChain:
    """LangChain's client, used as in its documentation."""

    def model(self, url: str, model: str = MODEL, **options: object) -> ChatOllama:
        made = ChatOllama(model=model, base_url=url, **options)
        OPENED.append(made._client)  # noqa: SLF001 - the only way to the client
        return made

    def run(self, url: str, tools: Tools, *, stream: bool) -> str:
        messages: list[BaseMessage] = [HumanMessage(TRIP)]
        while True:
            answer = self.put(url, tools, messages, stream=stream)
            messages.append(answer)
            if not answer.tool_calls:
                return f"{answer.content}"
            for call in answer.tool_calls:
                result = tools.run(call["name"], call["args"])
                messages.append(ToolMessage(result, tool_call_id=f"{call['id']}"))

    def tell(self, url: str, words: str, *, stream: bool) -> JsonObject:
        answer = self.put(url, Tools([]), [HumanMessage(words)], stream=stream)
        calls = [(call["name"], call["args"]) for call in answer.tool_calls]
        parts: object = [
            f"{answer.content}",
            calls,
            answer.response_metadata,
            answer.usage_metadata,
        ]
        return cast("JsonObject", {"told": parts})

    def put(
        self, url: str, tools: Tools, messages: list[BaseMessage], *, stream: bool
    ) -> AIMessage:
        bound = self.model(url).bind_tools([tools.get_weather, tools.get_time])
        if not stream:
            return bound.invoke(messages)
        first, *others = cast("Iterator[AIMessageChunk]", bound.stream(messages))
        whole = sum(others, first)
        return AIMessage(**{name: getattr(whole, name) for name in _KEPT})

    def think(self, url: str, *, stream: bool) -> tuple[str, str]:
        model = self.model(url, reasoning=True)
        pieces = [*model.stream(THINK)] if stream else [model.invoke(THINK)]
        thoughts = "".join(piece.additional_kwargs.get("reasoning_content", "") for piece in pieces)
        return thoughts, "".join(f"{piece.content}" for piece in pieces)

    def fill(self, url: str) -> object:
        return (
            self.model(url).with_structured_output(FACT_SCHEMA, method="json_schema").invoke(FACTS)
        )

    def show(self, url: str, model: str) -> str:
        picture = {"type": "image_url", "image_url": f"data:image/png;base64,{PICTURE}"}
        content = [{"type": "text", "text": "See?"}, picture]
        return f"{self.model(url, model).invoke([HumanMessage(content)]).content}"


class LlamaIndex:
    """LlamaIndex's client, used as in its documentation."""

    def model(self, url: str, model: str = MODEL, **options: object) -> LlamaIndexOllama:
        client = Client(url)
        OPENED.append(client)
        return LlamaIndexOllama(model=model, client=client, request_timeout=60.0, **options)

    def run(self, url: str, tools: Tools, *, stream: bool) -> str:
        model = self.model(url)
        messages = [ChatMessage(role="user", content=TRIP)]
        while True:
            answer = self.put(model, tools, messages, stream=stream)
            messages.append(answer.message)
            calls = model.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
            if not calls:
                return f"{answer.message.content}"
            for call in calls:
                result = tools.run(call.tool_name, call.tool_kwargs)
                named = {"tool_call_id": call.tool_id}
                messages.append(
                    ChatMessage(role=MessageRole.TOOL, content=result, additional_kwargs=named)
                )

    def tell(self, url: str, words: str, *, stream: bool) -> JsonObject:
        messages = [ChatMessage(role="user", content=words)]
        return cast("JsonObject", self.put(self.model(url), Tools([]), messages, stream=stream).raw)

    def put(
        self, model: LlamaIndexOllama, tools: Tools, messages: list[ChatMessage], *, stream: bool
    ) -> ChatResponse:
        offered = [
            FunctionTool.from_defaults(fn=function)
            for function in (tools.get_weather, tools.get_time)
        ]
        if not stream:
            return model.chat_with_tools(
                offered, chat_history=messages, allow_parallel_tool_calls=True
            )
        *_, answer = model.stream_chat_with_tools(offered, chat_history=messages)
        return answer

    def think(self, url: str, *, stream: bool) -> tuple[str, str]:
        model = self.model(url, thinking=True)
        messages = [ChatMessage(role="user", content=THINK)]
        if stream:
            pieces = [*model.stream_chat(messages)]
            thoughts = "".join(
                piece.additional_kwargs.get("thinking_delta") or "" for piece in pieces
            )
            return thoughts, f"{pieces[-1].message.content}"
        answer = model.chat(messages).message
        thoughts = "".join(getattr(block, "content", None) or "" for block in answer.blocks)
        return thoughts, f"{answer.content}"

    def fill(self, url: str) -> object:
        answer = self.model(url).chat([ChatMessage(role="user", content=FACTS)], format=FACT_SCHEMA)
        return json.parse(f"{answer.message.content}")

    def show(self, url: str, model: str) -> str:
        blocks = [TextBlock(text="See?"), ImageBlock(image=PICTURE.encode())]
        messages = [ChatMessage(role="user", blocks=blocks)]
        return f"{self.model(url, model).chat(messages).message.content}"


@dataclass(frozen=True)
class Npm:
    """An npm client in a long-running program, which reads and writes a line per request."""

    process: subprocess.Popen[str]
    client: str

    def run(self, url: str, tools: Tools, *, stream: bool) -> str:
        results = self.ask("run", url, TRIP, stream=stream, weather=WEATHER, time=TIME)
        tools.called += [(name, city) for name, city in cast("list[list[str]]", results["called"])]
        return f"{results['answer']}"

    def tell(self, url: str, words: str, *, stream: bool) -> JsonObject:
        return cast("JsonObject", self.ask("tell", url, words, stream=stream)["answer"])

    def think(self, url: str, *, stream: bool) -> tuple[str, str]:
        thoughts, text = cast("list[str]", self.ask("think", url, THINK, stream=stream)["answer"])
        return thoughts, text

    def fill(self, url: str) -> object:
        return self.ask("fill", url, FACTS, form=FACT_SCHEMA)["answer"]

    def show(self, url: str, model: str) -> str:
        return f"{self.ask('show', url, 'See?', model=model, picture=PICTURE)['answer']}"

    def ask(self, what: str, url: str, words: str, **more: object) -> JsonObject:
        request = {"model": MODEL, "stream": False, "weather": {}, "time": "", **more}
        request |= {"client": self.client, "ask": what, "url": url, "words": words}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dump_text(cast("JsonObject", request)) + "\n")
        self.process.stdin.flush()
        reply = cast("JsonObject", json.parse(self.process.stdout.readline()))
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply


MODULES = os.environ.get("OLLAMA_NODE_MODULES", "")
NPM = ("ollama-js", "@langchain/ollama", "ai-sdk-ollama")
needs_npm = pytest.mark.skipif(not MODULES, reason="needs clients from npm, see .ci/run")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    folder = tmp_path_factory.mktemp("npm")
    (folder / "node_modules").symlink_to(MODULES)  # Node resolves modules next to the program
    program = shutil.copy(Path(__file__).with_name("ollama_clients.mjs"), folder)
    with subprocess.Popen(
        [shutil.which("node") or "node", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def mock() -> Iterator[tuple[str, Served]]:
    """The address of the mock, and that of Temper in front of it."""
    with temper_with_right_ollama(RightOllama()) as served:
        yield served


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with temper_with_leaking_llama_server(tmp_path_factory.mktemp("leaks")) as served:
        yield replace(served, url=served.url.removesuffix("/v1"))


@pytest.fixture(params=["mock", "leaking"])
def server(request: pytest.FixtureRequest) -> Served:
    if request.param == "mock":
        return cast("tuple[str, Served]", request.getfixturevalue("mock"))[1]
    leaking: Served = request.getfixturevalue("leaking")
    return leaking


@pytest.fixture(
    params=["LangChain", "LlamaIndex", *(pytest.param(client, marks=needs_npm) for client in NPM)]
)
def client(request: pytest.FixtureRequest) -> Asking:
    if request.param in NPM:
        return Npm(request.getfixturevalue("node"), request.param)
    return LangChain() if request.param == "LangChain" else LlamaIndex()


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both
def test_a_loop_runs_its_tools_and_answers(client: Asking, server: Served, *, stream: bool) -> None:
    check_trip(server, lambda tools: client.run(server.url, tools, stream=stream))


@both
def test_a_response_through_temper_equals_that_of_ollama_except_for_durations(
    client: Asking, mock: tuple[str, Served], *, stream: bool
) -> None:
    direct, served = mock
    asked_directly = without_times(client.tell(direct, TRIP, stream=stream))
    before = served.generations()
    assert without_times(client.tell(served.url, TRIP, stream=stream)) == asked_directly
    assert served.generations() - before == 1


def test_a_stream_that_breaks_off_raises_an_error(client: Asking, mock: tuple[str, Served]) -> None:
    with pytest.raises(Exception, match=BROKEN):
        client.tell(mock[1].url, BREAK, stream=True)


def without_times(answer: JsonValue) -> JsonValue:
    if isinstance(answer, dict):
        return {
            name: without_times(value)
            for name, value in answer.items()
            if name not in ("created_at", "id")  # LangChain generates these ids
        }
    return [*map(without_times, answer)] if isinstance(answer, list | tuple) else answer


def test_a_response_with_a_format_matches_its_schema(client: Asking, server: Served) -> None:
    assert client.fill(server.url) == FACT


@both
def test_reasoning_is_returned_separately_from_the_answer(
    client: Asking, mock: tuple[str, Served], *, stream: bool
) -> None:
    assert client.think(mock[1].url, stream=stream) == (THOUGHT, ANSWER)


def test_an_image_is_rejected_only_by_a_model_without_vision(
    client: Asking, mock: tuple[str, Served]
) -> None:
    url = mock[1].url
    assert client.show(url, MODEL)
    with pytest.raises(Exception, match="does not accept images") as refused:
        client.show(url, BLIND)
    assert getattr(refused.value, "status_code", 400) == 400
