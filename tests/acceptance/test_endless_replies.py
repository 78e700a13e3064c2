"""A real llama-server with context shift: in a full window, it drops old tokens and goes on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from proxy.processes.process import RunningServer
from tests.fakes.answers import read_answer
from tests.fakes.command import client_of_temper
from tests.fakes.llama import plan_for, serving
from tests.fakes.scripts import SCRIPTS, WEATHER_TOOL
from tests.timeouts import TIMEOUT_SECONDS, wait_until

WINDOW = 1024
FOREVER = {"messages": [{"role": "user", "content": "[[forever]]"}]}
MORE = SCRIPTS["[[forever]]"][1].rstrip("\0")


@pytest.fixture(scope="module")
def shifting(scripted_model: Path) -> Iterator[RunningServer]:
    plan = plan_for(scripted_model, context_tokens=WINDOW, slots=1)
    with serving(replace(plan, extra=("--context-shift",))) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(shifting: RunningServer) -> Iterator[httpx.Client]:
    with client_of_temper(shifting) as client:
        yield client


def until_idle(server: RunningServer) -> None:
    headers = {"authorization": f"Bearer {server.api_key}"}
    with httpx.Client(
        base_url=server.base_url, headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS
    ) as client:
        wait_until(lambda: not client.get("/slots").json()[0]["is_processing"])


@pytest.mark.fault("F10")
@pytest.mark.parametrize("others", [{}, {"tools": [WEATHER_TOOL]}], ids=["plain", "with tools"])
def test_an_endless_reply_ends_with_finish_reason_length_near_the_window_size(
    *, shifting: RunningServer, proxy: httpx.Client, others: dict[str, object], stream: bool
) -> None:
    body = {**FOREVER, **others, "stream": stream}
    answer = read_answer(proxy.post("/v1/chat/completions", json=body))
    assert (answer.status, answer.reason, answer.is_done) == (200, "length", True)
    assert answer.text is not None
    assert WINDOW <= answer.text.count(MORE) < 4 * WINDOW
    until_idle(shifting)


@pytest.mark.fault("F10")
def test_max_tokens_ends_an_endless_reply_with_exactly_that_number_of_tokens(
    *, proxy: httpx.Client, stream: bool
) -> None:
    options = {"include_usage": True} if stream else None
    body = {**FOREVER, "max_tokens": 300, "stream": stream, "stream_options": options}
    answer = read_answer(proxy.post("/v1/chat/completions", json=body))
    assert (answer.reason, answer.is_done) == ("length", True)
    assert isinstance(answer.usage, dict)
    assert answer.usage["completion_tokens"] == 300
