"""Stored responses in a file: after a restart, and with several workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.command import running_temper
from tests.fakes.tool_loops import CODE_ANSWER, CODE_WORD, right_backend
from tests.timeouts import TIMEOUT_SECONDS

MANY = 12  # connections, each of which may reach any worker


@pytest.fixture(scope="module")
def backend() -> Iterator[str]:
    with right_backend() as served:
        yield served.url


@contextmanager
def temper(backend: str, path: Path, *flags: str) -> Iterator[str]:
    file = {"TEMPER_RESPONSES__PATH": str(path)}
    with running_temper("--backend-url", backend, *flags, environment=file) as url:
        yield f"{url}/v1/responses"


def ask(url: str, **fields: JsonValue) -> JsonObject:
    """Send a request over a separate connection; return the whole response, or the error."""
    with httpx.Client(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        answer = json.parse(client.post(url, json={"model": "scripted", **fields}).content)
    assert isinstance(answer, dict)
    return answer


def stream(url: str, **fields: JsonValue) -> str:
    """Request a stream; return the id of its response."""
    body: JsonObject = {"model": "scripted", "stream": True, **fields}
    with (
        httpx.Client(trust_env=False, timeout=TIMEOUT_SECONDS) as client,
        client.stream("POST", url, json=body) as answer,
    ):
        ends = [line for line in answer.iter_lines() if '"response.completed"' in line]
    end = json.parse(ends[-1].removeprefix("data: "))
    assert isinstance(end, dict)
    assert isinstance(end["response"], dict)
    return f"{end['response']['id']}"


def text_of(answer: JsonObject) -> str:
    return json.dump_text(answer["output"])


def test_previous_response_id_works_after_a_restart_with_a_file(
    backend: str, tmp_path: Path
) -> None:
    path = tmp_path / "kept.sqlite"
    with temper(backend, path) as url:
        first = ask(url, input=f"The code word is {CODE_WORD}.")
    with temper(backend, path) as url:
        second = ask(url, input="What is it?", previous_response_id=first["id"])
        assert CODE_ANSWER in text_of(second)
        with httpx.Client(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
            assert client.get(f"{url}/{first['id']}").json() == first
            items = client.get(f"{url}/{second['id']}/input_items").json()["data"]
            assert len(items) == 3
            assert client.delete(f"{url}/{first['id']}").json()["deleted"] is True
        third = ask(url, input="What is it?", previous_response_id=first["id"])
        assert isinstance(third["error"], dict)
        assert third["error"]["code"] == "previous_response_not_found"


@pytest.mark.deep
def test_previous_response_id_works_for_a_response_of_another_worker(
    backend: str, tmp_path: Path
) -> None:
    with temper(backend, tmp_path / "kept.sqlite", "--workers", "2") as url:
        last = stream(url, input=f"The code word is {CODE_WORD}.")
        for _ in range(MANY):
            answer = ask(url, input="What is it?", previous_response_id=last)
            assert CODE_ANSWER in text_of(answer)
            last = stream(url, input="Once more?", previous_response_id=answer["id"])
