"""Presets: several names of one model, each with its own defaults, in every dialect.

The backend records its requests. `tests/real` has no tests of presets, because a preset changes
only the request.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.command import running_temper, temper
from tests.fakes.sockets import listening_in_thread

MODEL = "qwen3"
PROMPT = "Be brief."
SETTINGS = f"""
[models.{MODEL}]
url = "{{url}}"
[models.{MODEL}.presets.fast]
thinking = "off"
temperature = 0.2
top_k = 20
system_prompt = "{PROMPT}"
[models.{MODEL}.presets.deep]
thinking = "on"
effort = "high"
"""
HI: JsonObject = {"role": "user", "content": "Hi"}
SYSTEM: JsonObject = {"role": "system", "content": PROMPT}
DIALECTS: dict[str, tuple[str, JsonObject]] = {
    "chat": ("/v1/chat/completions", {"messages": [HI]}),
    "Messages": ("/v1/messages", {"messages": [HI], "max_tokens": 64}),
    "Responses": ("/v1/responses", {"input": "Hi"}),
    "Ollama": ("/api/chat", {"messages": [HI], "stream": False}),
}


@dataclass
class RecordingEngine:
    """An engine with one model that answers "OK" and records the requests."""

    received: list[JsonObject] = field(default_factory=list)

    async def chat(self, request: Request) -> JSONResponse:
        self.received.append(await request.json())
        message = {"role": "assistant", "content": "OK"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"id": "1", "object": "chat.completion", "choices": [choice]})

    async def models(self, _request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    @property
    def app(self) -> Starlette:
        chat = Route("/v1/chat/completions", self.chat, methods=["POST"])
        return Starlette(routes=[chat, Route("/v1/models", self.models)])


@pytest.fixture(scope="module")
def engine() -> RecordingEngine:
    return RecordingEngine()


@pytest.fixture(scope="module")
def client(
    engine: RecordingEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    file = tmp_path_factory.mktemp("presets") / "temper.toml"
    with listening_in_thread(engine.app) as engine_url:
        file.write_text(SETTINGS.format(url=engine_url), encoding="utf-8")
        with (
            running_temper("--config", str(file), environment={}) as url,
            httpx.Client(base_url=url, trust_env=False, timeout=60) as http,
        ):
            yield http


def upstream(
    client: httpx.Client, engine: RecordingEngine, model: str, dialect: str, **members: JsonValue
) -> JsonObject:
    """Send a request, and return the upstream request that the engine received."""
    path, body = DIALECTS[dialect]
    response = client.post(path, json={**body, "model": model, **members})
    assert response.status_code == 200, response.text
    return engine.received[-1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_for_a_preset_is_sent_with_its_defaults_in_every_dialect(
    client: httpx.Client, engine: RecordingEngine, dialect: str
) -> None:
    sent = upstream(client, engine, "fast", dialect)
    assert sent["model"] == MODEL
    assert (sent["temperature"], sent["top_k"]) == (0.2, 20)
    assert sent["messages"] == [SYSTEM, HI]
    assert "false" in json.dump_text(sent["chat_template_kwargs"])


def test_a_request_for_the_model_itself_is_sent_without_preset_values(
    client: httpx.Client, engine: RecordingEngine
) -> None:
    sent = upstream(client, engine, MODEL, "chat")
    assert sent["messages"] == [HI]
    assert not {"temperature", "top_k", "chat_template_kwargs"} & sent.keys()


def test_values_of_the_request_override_the_preset(
    client: httpx.Client, engine: RecordingEngine
) -> None:
    system: JsonObject = {"role": "system", "content": "Talk much."}
    sent = upstream(client, engine, "fast:latest", "chat", temperature=1, messages=[system, HI])
    assert (sent["temperature"], sent["top_k"]) == (1, 20)
    assert sent["messages"] == [system, HI]


def test_the_reasoning_effort_of_a_preset_is_sent_unless_the_request_has_one(
    client: httpx.Client, engine: RecordingEngine
) -> None:
    sent = upstream(client, engine, "deep", "chat")
    assert "high" in json.dump_text(sent)
    assert "temperature" not in sent
    refused = upstream(client, engine, "deep", "chat", reasoning_effort="low")
    assert "high" not in json.dump_text(refused)


def test_presets_are_listed_with_their_model(client: httpx.Client) -> None:
    listed = {entry["id"]: entry for entry in client.get("/v1/models").json()["data"]}
    assert [*listed] == [MODEL, "fast", "deep"]
    assert listed["fast"]["preset_of"] == MODEL
    assert client.get("/v1/models/deep").json()["id"] == "deep"
    tags = client.get("/api/tags").json()["models"]
    assert [entry["name"].removesuffix(":latest") for entry in tags] == [MODEL, "fast", "deep"]


WRONG = {
    "[models.m.presets.m]": "models.m.presets.m: 'm' is already the name of a model",
    '[models.m.presets."a b"]': "models.m.presets.a b: is not a valid model name",
    "[models.m.presets.p]\ntemperature = 3": "temperature: should be less than or equal to 2",
    "[models.m.presets.p]\nunknown = 3": "unknown",
    '[models.m.presets.p]\n[models.n]\nurl="http://x"\n[models.n.presets.p]': (
        "models.n.presets.p: models.m already has a preset of this name"
    ),
}


@pytest.mark.parametrize(("text", "problem"), WRONG.items(), ids=[*map(str, range(len(WRONG)))])
def test_temper_check_names_an_invalid_preset(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "temper.toml"
    file.write_text(f'[models.m]\nurl = "http://127.0.0.1:9"\n{text}\n', encoding="utf-8")
    with temper("check", "--config", str(file)) as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert problem in errors
