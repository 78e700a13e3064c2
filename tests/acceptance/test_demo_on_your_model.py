"""`temper demo` on the user's model: a GGUF file, or a running engine (scripted here)."""

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import member
from temper_evals.demo.own_model import SCENARIOS
from temper_evals.demo.scenarios import DemoScenario
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes.command import ended, processes_with, temper
from tests.fakes.pseudo_terminal import on_terminal
from tests.fakes.sockets import listening_in_thread
from tests.timeouts import TIMEOUT_SECONDS

MODEL = "some-model"
KEY = "sk-of-the-engine"
ONCE = ("--once", "--port", "0")


def write_call(scenario: DemoScenario) -> str:
    """Return the right call of a scenario as the text of a reply."""
    assert scenario.right is not None
    name, arguments = scenario.right
    call = json.dump_text({"name": name, "arguments": arguments})
    return f"<tool_call>{call}</tool_call>"


REPLIES = {scenario.prompt: write_call(scenario) for scenario in SCENARIOS}


class ScriptedEngine:
    """An engine that returns calls as text; with `is_silent` it accepts requests and sends nothing.

    `listed` is the `data` of `/v1/models`.
    """

    def __init__(self, listed: JsonValue, *, key: str = "", is_silent: bool = False) -> None:
        self._listed, self._key, self._is_silent = listed, key, is_silent
        self.requested_models: list[JsonValue] = []
        self.request_received = threading.Event()
        self.client_disconnected = threading.Event()
        self.app = Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
            ]
        )

    def _refusal(self, request: Request) -> Response | None:
        has_key = request.headers.get("authorization", "").removeprefix("Bearer ") == self._key
        if has_key or not self._key:
            return None
        error: JsonObject = {"message": "Invalid API key.", "type": "authentication_error"}
        return JSONResponse({"error": error}, 401)

    async def _models(self, request: Request) -> Response:
        return self._refusal(request) or JSONResponse({"object": "list", "data": self._listed})

    async def _chat(self, request: Request) -> Response:
        body = json.parse(await request.body())
        self.requested_models.append(member(body, "model"))
        self.request_received.set()
        if self._is_silent:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            self.client_disconnected.set()
        prompt = str(member(body, "messages", 0, "content"))
        message: JsonObject = {"role": "assistant", "content": REPLIES[prompt]}
        choice: JsonObject = {"index": 0, "message": message, "finish_reason": "stop"}
        return self._refusal(request) or JSONResponse(
            {"object": "chat.completion", "model": MODEL, "choices": [choice]}
        )


def models(*names: str) -> Sequence[JsonObject]:
    return [{"id": name, "object": "model"} for name in names]


@pytest.fixture
def silent() -> Iterator[tuple[ScriptedEngine, str]]:
    engine = ScriptedEngine([*models(MODEL)], is_silent=True)
    with listening_in_thread(engine.app) as url:
        yield engine, url


def test_the_demo_counts_usable_calls_of_a_running_engine_without_and_with_temper() -> None:
    engine = ScriptedEngine([*models(MODEL)])
    with listening_in_thread(engine.app) as url:
        shown = ended("demo", "--backend-url", f"{url}/v1/", *ONCE)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "without Temper" in shown.stdout
    assert "with Temper" in shown.stdout
    assert "Usable calls: 0 of 6 without Temper, 6 of 6 with Temper." in shown.stdout
    assert "Right calls: 0 of 6 without Temper, 6 of 6 with Temper." in shown.stdout
    assert set(engine.requested_models) == {MODEL}


def test_json_output_has_the_model_and_the_number_of_right_calls() -> None:
    engine = ScriptedEngine([*models("another", MODEL)], key=KEY)
    with (
        listening_in_thread(engine.app) as url,
        temper(
            *("demo", "--backend-url", url, "--backend-model", MODEL, "--json", *ONCE),
            TEMPER_BACKEND__API_KEY=KEY,
        ) as process,
    ):
        printed, _ = process.communicate()
    shown = json.parse(printed)
    assert process.returncode == 0
    assert member(shown, "model") == MODEL
    assert member(shown, "right_calls") == {"without": 0, "with": 6, "of": 6}
    assert member(shown, "requests", 0, "without", "answer") == REPLIES[SCENARIOS[0].prompt]


def test_the_llama_server_of_a_model_file_ends_with_the_demo(
    tmp_path: Path,
) -> None:
    model = tmp_path / "my.gguf"
    build_scripted_model(model, {"default": "I am scripted.", **REPLIES}, context_tokens=4096)
    shown = ended("demo", "--model", str(model), "--json", *ONCE)
    assert shown.returncode == 0, shown.stderr
    document = json.parse(shown.stdout)
    assert member(document, "model") == "my"
    assert member(document, "right_calls") == {"without": 0, "with": 6, "of": 6}
    assert processes_with(str(model)) == []


@pytest.mark.parametrize(
    ("listed", "flags", "problem"),
    [
        ([], (), "has no models: load one there, then try again"),
        (None, (), "has no models: load one there, then try again"),
        (models("a", "b"), (), "select one with --backend-model: a, b"),
        (models("a", "b"), ("--backend-model", "c"), "has no 'c'; it has: a, b"),
    ],
)
def test_an_engine_that_does_not_list_the_model_is_an_error_with_a_remedy(
    listed: JsonValue, flags: Sequence[str], problem: str
) -> None:
    with listening_in_thread(ScriptedEngine(listed).app) as url:
        shown = ended("demo", "--backend-url", url, *flags, *ONCE)
    assert shown.returncode == 1
    (sentence,) = shown.stderr.splitlines()
    assert sentence.startswith(f"temper: --backend-url: {url} has ")
    assert problem in sentence


def test_engine_that_requires_a_key_is_an_error_with_a_remedy() -> None:
    with listening_in_thread(ScriptedEngine([*models(MODEL)], key=KEY).app) as url:
        shown = ended("demo", "--backend-url", url, *ONCE)
    assert shown.returncode == 1
    assert "refuses the API key: set TEMPER_BACKEND__API_KEY to a valid one" in shown.stderr


@pytest.mark.parametrize(
    ("flags", "problem", "remedy"),
    [
        (("--model", "none.gguf"), "the model file none.gguf does not exist", "check the path"),
        (("--model", "text.gguf"), "is not a GGUF file", "convert it or download"),
        (("--model", "."), "is a folder", "give the path of the .gguf file in it"),
        (("--backend-url", "http://127.0.0.1:9"), "no server answers at", "start the server"),
        (("--backend-url", "127.0.0.1:8080"), "backend.url", "http://"),
        (("--model", "a", "--backend-url", "http://b"), "--model", "remove --backend-url"),
        (("--backend-model", "a"), "--backend-model", "--backend-url"),
    ],
)
def test_a_missing_or_invalid_model_file_is_an_error_with_a_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: Sequence[str],
    problem: str,
    remedy: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.gguf").write_text("This is no model.")
    shown = ended("demo", *flags, *ONCE)
    assert shown.returncode == 1
    assert problem in shown.stderr
    assert remedy in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_and_cancels_its_running_request(
    silent: tuple[ScriptedEngine, str], number: signal.Signals
) -> None:
    engine, url = silent
    with temper("demo", "--backend-url", url, "--port", "0") as process:
        assert process.stdout is not None
        assert "Your model gets six prompts" in process.stdout.readline()
        assert engine.request_received.wait(TIMEOUT_SECONDS)
        process.send_signal(number)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (130, "")
    assert engine.client_disconnected.wait(TIMEOUT_SECONDS)


def test_the_demo_shows_on_a_terminal_for_how_many_seconds_a_generation_has_run(
    silent: tuple[ScriptedEngine, str],
) -> None:
    _, url = silent
    with on_terminal(90, "demo", "--backend-url", url, "--port", "0") as command:
        command.read_until(re.escape(f"Prompt 1 of 6 without Temper: {SCENARIOS[0].prompt} (1 s)"))
        command.process.send_signal(signal.SIGINT)
        command.read_to_the_end()
        assert command.process.wait(TIMEOUT_SECONDS) == 130
