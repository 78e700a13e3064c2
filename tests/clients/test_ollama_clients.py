"""langchain-ollama and LlamaIndex's Ollama: tool loops, streams, thoughts, forms and pictures.

They need the extra `clients-ollama`.
"""

from collections.abc import Callable, Iterator
from typing import Protocol, cast

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes.right_ollama import (
    ANSWER,
    BLIND,
    PICTURE,
    THINK,
    THOUGHT,
    RightOllama,
    before_right_ollama,
)
from tests.fakes.tool_loops import (
    FACTS,
    MODEL,
    TRIP,
    TRIP_ANSWER,
    TRIP_CALLS,
    TRIP_GENERATIONS,
    Served,
    Tools,
    before_leaking_llama_server,
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
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.ollama import Ollama as LlamaIndexOllama
from ollama import Client

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
}
FACT = {"city": "Paris", "country": "France"}


OPENED: list[Client] = []  # nobody else closes them


@pytest.fixture(autouse=True)
def every_client_is_closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()  # type: ignore[no-untyped-call]


class Asking(Protocol):
    """A client as a test needs it: a loop, words with thoughts, a form, a picture."""

    def run(self, url: str, tools: Tools, *, stream: bool) -> str: ...

    def think(self, url: str, *, stream: bool) -> tuple[str, str]: ...

    def fill(self, url: str) -> object: ...

    def show(self, url: str, model: str) -> str: ...


class LangChain:
    """As its documentation has it."""

    def model(self, url: str, model: str = MODEL, **options: object) -> ChatOllama:
        made = ChatOllama(model=model, base_url=url, **options)
        OPENED.append(made._client)  # noqa: SLF001 - nothing else leads to it
        return made

    def run(self, url: str, tools: Tools, *, stream: bool) -> str:
        bound = self.model(url).bind_tools([tools.get_weather, tools.get_time])
        messages: list[BaseMessage] = [HumanMessage(TRIP)]
        while True:
            answer = self.ask(bound.stream if stream else bound.invoke, messages)
            messages.append(answer)
            if not answer.tool_calls:
                return f"{answer.content}"
            for call in answer.tool_calls:
                said = run(tools, call["name"], call["args"])
                messages.append(ToolMessage(said, tool_call_id=f"{call['id']}"))

    def ask(
        self, put: Callable[[list[BaseMessage]], object], messages: list[BaseMessage]
    ) -> AIMessage:
        answer = put(messages)
        if isinstance(answer, AIMessage):
            return answer
        whole: AIMessageChunk | None = None
        for piece in cast("Iterator[AIMessageChunk]", answer):
            whole = piece if whole is None else whole + piece
        assert whole is not None
        return AIMessage(content=whole.content, tool_calls=whole.tool_calls)

    def think(self, url: str, *, stream: bool) -> tuple[str, str]:
        model = self.model(url, reasoning=True)
        pieces = [*model.stream(THINK)] if stream else [model.invoke(THINK)]
        thoughts = "".join(one.additional_kwargs.get("reasoning_content", "") for one in pieces)
        return thoughts, "".join(f"{one.content}" for one in pieces)

    def fill(self, url: str) -> object:
        return self.model(url).with_structured_output(SCHEMA, method="json_schema").invoke(FACTS)

    def show(self, url: str, model: str) -> str:
        picture = {"type": "image_url", "image_url": f"data:image/png;base64,{PICTURE}"}
        content = [{"type": "text", "text": "See?"}, picture]
        return f"{self.model(url, model).invoke([HumanMessage(content)]).content}"


class LlamaIndex:
    """As its documentation has it."""

    def model(self, url: str, model: str = MODEL, **options: object) -> LlamaIndexOllama:
        client = Client(url)
        OPENED.append(client)
        return LlamaIndexOllama(model=model, client=client, request_timeout=60.0, **options)

    def run(self, url: str, tools: Tools, *, stream: bool) -> str:
        model = self.model(url)
        offered = [
            FunctionTool.from_defaults(fn=one) for one in (tools.get_weather, tools.get_time)
        ]
        messages = [ChatMessage(role="user", content=TRIP)]
        while True:
            if stream:
                *_, answer = model.stream_chat_with_tools(offered, chat_history=messages)
            else:
                answer = model.chat_with_tools(
                    offered, chat_history=messages, allow_parallel_tool_calls=True
                )
            messages.append(answer.message)
            calls = model.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
            if not calls:
                return f"{answer.message.content}"
            for call in calls:
                said = run(tools, call.tool_name, call.tool_kwargs)
                named = {"tool_call_id": call.tool_id}
                messages.append(
                    ChatMessage(role=MessageRole.TOOL, content=said, additional_kwargs=named)
                )

    def think(self, url: str, *, stream: bool) -> tuple[str, str]:
        model = self.model(url, thinking=True)
        asked = [ChatMessage(role="user", content=THINK)]
        if stream:
            pieces = [*model.stream_chat(asked)]
            thoughts = "".join(one.additional_kwargs.get("thinking_delta") or "" for one in pieces)
            return thoughts, f"{pieces[-1].message.content}"
        answer = model.chat(asked).message
        thoughts = "".join(getattr(block, "content", None) or "" for block in answer.blocks)
        return thoughts, f"{answer.content}"

    def fill(self, url: str) -> object:
        answer = self.model(url).chat([ChatMessage(role="user", content=FACTS)], format=SCHEMA)
        return json.parse(f"{answer.message.content}")

    def show(self, url: str, model: str) -> str:
        blocks = [TextBlock(text="See?"), ImageBlock(image=PICTURE.encode())]
        asked = [ChatMessage(role="user", blocks=blocks)]
        return f"{self.model(url, model).chat(asked).message.content}"


def run(tools: Tools, name: str, arguments: dict[str, str]) -> str:
    return tools.get_weather(**arguments) if name == "get_weather" else tools.get_time(**arguments)


@pytest.fixture(scope="module")
def mock() -> Iterator[Served]:
    with before_right_ollama(RightOllama()) as (_, served):
        yield served


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with before_leaking_llama_server(tmp_path_factory.mktemp("leaks")) as served:
        yield served


@pytest.fixture(params=["mock", "leaking"])
def server(request: pytest.FixtureRequest) -> Served:
    found: Served = request.getfixturevalue(request.param)
    return found


CLIENTS: tuple[Asking, ...] = (LangChain(), LlamaIndex())
each = pytest.mark.parametrize("client", CLIENTS, ids=lambda one: type(one).__name__)
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@each
@both
def test_a_loop_runs_its_tools_and_answers(client: Asking, server: Served, *, stream: bool) -> None:
    tools, before = Tools([]), server.generations()
    answer = client.run(server.url.removesuffix("/v1"), tools, stream=stream)
    assert answer.endswith(TRIP_ANSWER)
    assert tools.called == [*TRIP_CALLS]
    assert server.generations() - before == TRIP_GENERATIONS


@each
def test_an_answer_has_its_form(client: Asking, server: Served) -> None:
    assert client.fill(server.url.removesuffix("/v1")) == FACT


@each
@both
def test_thoughts_stand_apart(client: Asking, mock: Served, *, stream: bool) -> None:
    assert client.think(mock.url, stream=stream) == (THOUGHT, ANSWER)


@each
def test_a_picture_is_seen_or_refused(client: Asking, mock: Served) -> None:
    assert client.show(mock.url, MODEL)
    with pytest.raises(Exception, match="takes no pictures") as refused:
        client.show(mock.url, BLIND)
    assert getattr(refused.value, "status_code", 400) == 400
