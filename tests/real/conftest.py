"""Real models behind Temper: `TEMPER_REAL_MODELS=DIR pytest tests/real`.

These tests run only if pytest is given this folder (tests/conftest.py). Each model gets one
llama-server and one Temper for all tests. Generations take seconds to minutes on a CPU, so the time
limits are so long that only a hanging process exceeds them.
"""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

import httpx
import pytest

from benchmarks.real.arms import launch_plan
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.process import RunningServer
from tests.fakes.answers import Answer, read_answer
from tests.fakes.command import running_temper
from tests.fakes.llama import serving
from tests.real.conversations import TOOLS
from tests.real.models import NEEDING_A_MODEL, RealModel, chosen
from tests.timeouts import TIMEOUT_SECONDS

CHAT = "/v1/chat/completions"
GENERATION_SECONDS = 1800.0


@dataclass(frozen=True)
class LiveTemper:
    """A Temper in front of a real model, and its recording."""

    client: httpx.Client
    model: RealModel
    recording: Path

    def body(self, messages: list[JsonValue], **fields: JsonValue) -> JsonObject:
        base: JsonObject = {"model": self.model.path.stem, "messages": messages, "temperature": 0}
        return {**base, "max_tokens": 256, "tools": TOOLS, **fields}

    def ask(self, messages: list[JsonValue], **fields: JsonValue) -> "LiveAnswer":
        """Send a request, and check that the answer has no error."""
        request_id = f"real-{uuid.uuid4().hex}"
        body = self.body(messages, **fields)
        response = self.client.post(CHAT, json=body, headers={"x-request-id": request_id})
        answer = read_answer(response)
        assert answer.error is None
        return LiveAnswer(answer, self._generations(request_id))

    def _generations(self, request_id: str) -> list[list[list[JsonValue]]]:
        """Return the generations of a request; its line may be written after its response."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            for line in self.recording.read_bytes().splitlines():
                if request_id.encode() in line:
                    return cast("_Exchange", json.parse(line))["generations"]
            time.sleep(0.05)
        raise AssertionError(f"the recording has no request {request_id}")


class _Exchange(TypedDict):
    generations: list[list[list[JsonValue]]]


@dataclass(frozen=True)
class LiveAnswer:
    """An answer, and the generations that it took, each as the pieces of a recording."""

    answer: Answer
    generations: list[list[list[JsonValue]]]

    @property
    def text(self) -> str:
        return self.answer.text or ""

    @property
    def calls(self) -> list[tuple[str, JsonObject]]:
        return cast("list[tuple[str, JsonObject]]", self.answer.called)

    @property
    def written(self) -> list[str]:
        """Return the texts that the model wrote, for the messages of failed tests."""
        return ["".join(str(piece[-1]) for piece in pieces) for pieces in self.generations]


# without a model only test_models.py is collected, which reports the missing model once
collect_ignore_glob = [] if chosen() else [f"test_{name}.py" for name in NEEDING_A_MODEL]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "model" in metafunc.fixturenames:
        metafunc.parametrize("model", chosen(), ids=lambda model: model.id, scope="session")


@pytest.fixture(scope="session")
def server(model: RealModel) -> Iterator[RunningServer]:
    """Run a llama-server with the model: one slot, two threads."""
    with serving(launch_plan(model.path)) as running:
        yield running


@pytest.fixture(scope="session")
def engine(server: RunningServer) -> Iterator[httpx.Client]:
    """Yield a client of the llama-server itself."""
    headers = {"authorization": f"Bearer {server.api_key}"}
    with httpx.Client(
        base_url=server.base_url, headers=headers, timeout=GENERATION_SECONDS, trust_env=False
    ) as client:
        yield client


@pytest.fixture(scope="session")
def temper(
    model: RealModel, server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveTemper]:
    """Run a Temper with default settings in front of the server."""
    recording = tmp_path_factory.mktemp("real") / "recording.jsonl"
    environment = {
        "TEMPER_BACKEND__API_KEY": server.api_key,
        "TEMPER_RECORDING__PATH": str(recording),
        # a token may take minutes on a busy machine, whatever Temper does
        "TEMPER_BACKEND__IDLE_SECONDS": str(GENERATION_SECONDS),
    }
    with (
        running_temper("--backend-url", server.base_url, environment=environment) as url,
        httpx.Client(base_url=url, timeout=GENERATION_SECONDS, trust_env=False) as client,
    ):
        yield LiveTemper(client, model, recording)


# Servers and clients serve all tests of a model: they are closed after the last one.


@pytest.fixture(autouse=True)
def every_connection_ends_with_its_loop() -> None:
    """Disable the check."""


@pytest.fixture(autouse=True, scope="module")
def every_socket_is_closed_by_the_end_of_its_module() -> None:
    """Disable the check."""
