"""If a client drops reasoning, Temper restores it in the prompts of a real llama-server.

The template behaves like Qwen3's: it opens the reasoning block, and it renders only the reasoning
after the user's last message.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from proxy.api.app import ReasoningMode, ServerOptions
from proxy.backends.client import Headers, ReplyEvents
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.replies import EventSink
from proxy.conversation.requests import UpstreamRequest
from proxy.processes.process import RunningServer
from temper_evals.demo.chat_template import chat_template
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes.llama import plan_for, serving
from tests.fakes.reasoning_clients import CLIENTS, EVERYWHERE, ReasoningClient
from tests.fakes.running_proxy import in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.timeouts import TIMEOUT_SECONDS

LAST = """{%- set last = namespace(index=0) %}
{%- for message in messages %}
  {%- if message.role == 'user' %}{% set last.index = loop.index0 %}{% endif %}
{%- endfor %}
"""
RENDERED = "message.reasoning_content"
PROMPT = "{{- '<|im_start|>assistant\\n' }}"
CALL = '<tool_call>\n{"name": "%s", "arguments": {"path": "%s"}}\n</tool_call>'
SCRIPTS = {
    "default": "First I list all files.\n</think>\n\n" + CALL % ("list", "/"),
    "[[listed]]": "Now I read one.\n</think>\n\n" + CALL % ("read", "/a"),
    "[[read]]": "That is enough.\n</think>\n\nThere is one file.",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    template = chat_template(thinking=True)
    template = template.replace(f"if {RENDERED}", f"if {RENDERED} and loop.index0 > last.index")
    head, prompt, tail = template.rpartition(PROMPT)
    template = LAST + head + prompt.replace("\\n'", "\\n<think>\\n'") + tail
    model = tmp_path_factory.mktemp("model") / "thinking.gguf"
    build_scripted_model(model, SCRIPTS, context_tokens=4096, template=template)
    with serving(plan_for(model, context_tokens=4096)) as running:
        yield running


class Renderer(LlamaServer):
    """Records the prompts of upstream requests as the server renders them."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__(BackendClient(server.base_url, server.api_key))
        self._server = server
        self.requests: list[UpstreamRequest] = []

    def stream(
        self, upstream_request: UpstreamRequest, headers: Headers, sink: EventSink | None = None
    ) -> ReplyEvents:
        self.requests.append(upstream_request)
        return super().stream(upstream_request, headers, sink)

    async def prompts(self) -> list[JsonValue]:
        headers = {"authorization": f"Bearer {self._server.api_key}"}
        rendered: list[JsonValue] = []
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False) as client:
            for request in self.requests:
                body: dict[str, JsonValue] = {
                    "messages": [json.parse(message.source) for message in request.messages],
                    "tools": [json.parse(tool.source) for tool in request.tools],
                }
                url = f"{self._server.base_url}/apply-template"
                answer = await client.post(url, json=body, headers=headers)
                rendered.append(answer.raise_for_status().json()["prompt"])
        return rendered


@asynccontextmanager
async def client_of(
    engine: LlamaServer, language: str, *, keeps: bool, streams: bool, mode: ReasoningMode
) -> AsyncGenerator[ReasoningClient]:
    async with in_front_of(engine, ServerOptions(reasoning=mode), ScriptedBackend()) as proxy:
        yield CLIENTS[language](proxy.client, keeps=keeps, streams=streams)


async def prompts_of(
    server: RunningServer,
    language: str,
    *,
    keeps: bool,
    streams: bool = False,
    mode: ReasoningMode = "auto",
) -> list[JsonValue]:
    """Return the prompts of a conversation with two tool rounds and a second user message."""
    engine = Renderer(server)
    async with client_of(engine, language, keeps=keeps, streams=streams, mode=mode) as client:
        await client.say("Look around.")
        await client.answer_calls("[[listed]]")
        await client.answer_calls("[[read]]")
        await client.say("Thank you. [[read]]")
        return await engine.prompts()


@pytest.mark.parametrize(("language", "streams"), EVERYWHERE)
async def test_the_prompts_are_equal_if_a_client_drops_reasoning_or_sends_it(
    server: RunningServer, language: str, streams: bool
) -> None:
    kept = await prompts_of(server, language, keeps=True, streams=streams)
    assert len(kept) == 4
    assert "First I list all files." in str(kept[2])
    assert "Now I read one." in str(kept[2])
    assert "First I list" not in str(
        kept[3]
    )  # the template drops reasoning before the user's last message
    assert await prompts_of(server, language, keeps=False, streams=streams) == kept


async def test_the_prompts_lack_dropped_reasoning_if_reasoning_is_not_stored(
    server: RunningServer,
) -> None:
    prompts = await prompts_of(server, "chat", keeps=False, mode="off")
    assert "I list all files." not in str(prompts)
