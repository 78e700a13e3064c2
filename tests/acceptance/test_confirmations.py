"""Calls that require a confirmation, with a real model, tool server, settings and command."""

import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.processes.process import RunningServer
from tests.acceptance.test_tool_servers import ANSWER, TIME, ask
from tests.fakes.command import ended, running_temper
from tests.timeouts import TIMEOUT_SECONDS

KEY = {"authorization": "Bearer operators-key"}


@pytest.mark.deep
@pytest.mark.parametrize(
    ("allow", "became"), [(True, "done"), (False, "refused")], ids=["allowed", "refused"]
)
def test_a_tool_call_waits_until_the_operator_allows_or_refuses_it(
    *, allow: bool, became: str, llama_server: RunningServer, tmp_path: Path
) -> None:
    clock = json.dump_text([sys.executable, "-m", "mcp_server_time"])
    tools = "tools = ['get_current_time']\nask = ['get_current_time']\n"
    file, key = tmp_path / "temper.toml", tmp_path / "key"
    file.write_text(f"[mcp.time]\ncommand = {clock}\n{tools}", "utf-8")
    key.write_text("operators-key\n", "utf-8")
    environment = {
        "TEMPER_BACKEND__API_KEY": llama_server.api_key,
        "TEMPER_SERVER__API_KEY": "operators-key",
        "TEMPER_TOOLS__CONFIRM_SECONDS": str(TIMEOUT_SECONDS),
    }
    flags = ("--backend-url", llama_server.base_url, "--config", str(file))
    with (
        running_temper(*flags, environment=environment) as url,
        httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False, headers=KEY) as client,
    ):
        while ask(client, "[[four]]", TIME).status_code == 503:
            time.sleep(0.1)  # the tool server has not listed its tools yet
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(ask(client, "[[our time]]", TIME)))
        asking.start()
        call = waiting(client)
        assert (call["tool"], call["client"]) == ("get_current_time", "api_key")
        assert call["arguments"] == '{\n  "timezone": "UTC"\n}'
        seen = top(url, key)
        assert "1 call is waiting for approval: time.get_current_time" in seen
        assert f"Allow or refuse at {url}/ui" in seen
        assert "waiting for approval: time.get_current_time" in seen
        response = client.post(f"/ui/api/confirmations/{call['id']}", json={"allow": allow})
        assert response.status_code == 200
        asking.join(TIMEOUT_SECONDS)
        assert answers[0].json()["choices"][0]["message"]["content"] == ANSWER
        state = client.get("/ui/api/state").json()
        (tool,) = state["requests"][0]["tools"]
        assert (tool["status"], tool["waited"] > 0) == (became, True)
        (card,) = state["tool_servers"]
        assert (card["calls"], card["refused"], card["asking"]) == (1, int(not allow), 1)


def waiting(client: httpx.Client) -> JsonObject:
    """Wait until a call waits for the operator's decision; return the call."""
    confirmations: list[JsonObject] = []
    while not confirmations:
        time.sleep(0.02)
        confirmations = client.get("/ui/api/state").json()["confirmations"]
    return confirmations[0]


def top(url: str, key: Path) -> str:
    """Return the output of `temper top` without a terminal."""
    shown = ended("top", "--url", url, "--key-file", str(key))
    assert shown.returncode == 0
    return shown.stdout
