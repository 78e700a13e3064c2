"""Answers with a `response_format` while tools are offered, on a real llama-server."""

import itertools
from collections.abc import Iterator

import httpx
import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.processes.process import RunningServer
from temper_evals.demo.scripted_model import build_scripted_model
from tests.acceptance.test_ladder import WatchedServer, ladder
from tests.fakes.llama import plan_for, serving
from tests.fakes.scripts import TOOLS, call
from tests.timeouts import TIMEOUT_SECONDS

CITY = '{"city": "Paris"}'
SCRIPTS = {
    "default": "Hello.",
    "[[call]]": call(CITY),
    "[[json]]": CITY,
    "[[fenced]]": '```json\n{"city": "Oslo"}\n```',
    "[[prose]]": "It is Paris, I think.",
    "has the wrong form": '{"city": "Paris" }',
}
FORM: JsonObject = {
    "type": "json_schema",
    "json_schema": {
        "name": "city",
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a model that answers in JSON or in prose, depending on the prompt."""
    model = tmp_path_factory.mktemp("model") / "form.gguf"
    build_scripted_model(model, SCRIPTS, context_tokens=4096)
    with serving(plan_for(model, context_tokens=4096)) as running:
        yield running


def test_without_temper_a_request_with_a_response_format_gets_no_call(
    server: RunningServer,
) -> None:
    body: JsonObject = {
        "messages": [{"role": "user", "content": "[[call]]"}],
        "tools": list(TOOLS),
        "response_format": FORM,
        "max_tokens": 30,
    }
    headers = {"authorization": f"Bearer {server.api_key}"}
    url = f"{server.base_url}/v1/chat/completions"
    answer = httpx.post(url, json=body, headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS)
    assert "tool_calls" not in answer.json()["choices"][0]["message"]


async def test_with_temper_the_model_may_call_a_tool_despite_a_response_format(
    server: RunningServer, *, stream: bool
) -> None:
    async with ladder(server) as temper:
        answer = await temper.ask("[[call]]", stream=stream, response_format=FORM)
    assert (answer.called, answer.reason) == ([("get_weather", {"city": "Paris"})], "tool_calls")
    assert answer.report["outcome"] == "clean"


@pytest.mark.parametrize(
    ("prompt", "city", "attempts"),
    [("[[json]]", "Paris", 1), ("[[fenced]]", "Oslo", 1), ("[[prose]]", "Paris", 2)],
)
async def test_an_answer_without_a_call_matches_the_response_format(
    server: RunningServer, prompt: str, city: str, attempts: int, *, stream: bool
) -> None:
    async with ladder(server) as temper:
        answer = await temper.ask(prompt, stream=stream, response_format=FORM)
    assert json.parse(answer.text or "") == {"city": city}
    assert answer.report["attempts"] == str(attempts)
    assert answer.called == []
    check_cached(temper.engine)


def check_cached(engine: WatchedServer) -> None:
    """Check that each attempt reuses the cached prompt of the previous attempt."""
    for before, after in itertools.pairwise(engine.attempts):
        assert after.cached >= 0.9 * before.prompt
