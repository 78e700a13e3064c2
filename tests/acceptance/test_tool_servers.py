"""Tools of the operator, with a real llama-server and real tool servers."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import anthropic
import httpx
import openai
import pytest
from anthropic.types import ContentBlockParam, Message, MessageParam
from openai.types.responses import Response, ToolParam

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.process import RunningServer
from tests.fakes.answers import read_answer
from tests.fakes.command import running_temper, temper
from tests.fakes.scripts import WEATHER_TOOL
from tests.fakes.tool_servers import PROGRAM
from tests.timeouts import TIMEOUT_SECONDS, wait_until

CHAT = "/v1/chat/completions"
ANSWER = "Thank you: it is sunny there."
TIME: JsonObject = {"type": "mcp", "server_label": "time"}


def configured(folder: Path, offer: str = "asked") -> Path:
    command = json.dump_text([sys.executable, "-P", PROGRAM])
    clock = json.dump_text([sys.executable, "-m", "mcp_server_time"])
    file = folder / "temper.toml"
    file.write_text(
        f"[tools]\noffer = '{offer}'\n"
        f"[mcp.fake]\ncommand = {command}\ntools = ['*']\nprefix = 'f_'\n"
        f"env = {{LOG = '{folder / 'log'}'}}\n"
        f"[mcp.time]\ncommand = {clock}\ntools = ['get_current_time']\n",
        "utf-8",
    )
    return file


@contextmanager
def client_of(server: RunningServer, folder: Path, offer: str) -> Iterator[httpx.Client]:
    environment = {"TEMPER_BACKEND__API_KEY": server.api_key}
    flags = ("--backend-url", server.base_url, "--config", str(configured(folder, offer)))
    with (
        running_temper(*flags, environment=environment) as url,
        httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False) as client,
    ):
        wait_for_tools(client)
        yield client


@pytest.fixture(scope="module")
def clients(
    llama_server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, httpx.Client]]:
    """A client for each way in which tools are offered."""
    with ExitStack() as stack:
        yield {
            offer: stack.enter_context(
                client_of(llama_server, tmp_path_factory.mktemp(offer), offer)
            )
            for offer in ("asked", "toolless", "always")
        }


def wait_for_tools(client: httpx.Client) -> None:
    """Wait until both servers have listed their tools, retrying on 503 as clients do."""
    for label in ("time", "fake"):
        while ask(client, "[[four]]", {**TIME, "server_label": label}).status_code == 503:
            time.sleep(0.1)


def ask(client: httpx.Client, text: str, *tools: JsonValue, stream: bool = False) -> httpx.Response:
    body: JsonObject = {
        "model": "m",
        "stream": stream,
        "messages": [{"role": "user", "content": text}],
        **({"tools": [*tools]} if tools else {}),
    }
    return client.post(CHAT, content=json.dump(body), headers={"content-type": "application/json"})


@pytest.mark.parametrize(
    ("offer", "tools"),
    [("asked", (TIME,)), ("toolless", ()), ("always", ()), ("always", (WEATHER_TOOL,))],
)
def test_a_call_of_an_operators_tool_is_run_by_its_tool_server(
    clients: Mapping[str, httpx.Client], offer: str, tools: tuple[JsonValue, ...], *, stream: bool
) -> None:
    answer = ask(clients[offer], "[[our time]]", *tools, stream=stream)
    read = read_answer(answer)
    assert (read.text, read.report["tools"]) == (ANSWER, "time=1")


def test_tool_rounds_that_are_sent_back_give_the_same_prompt_as_separate_messages(
    clients: Mapping[str, httpx.Client],
) -> None:
    client = clients["asked"]
    question: JsonObject = {"role": "user", "content": "[[our time]]"}

    def send(*messages: JsonValue) -> JsonObject:
        body: JsonObject = {"model": "m", "messages": [*messages], "tools": [TIME]}
        answer = client.post(CHAT, json={**body, "temper": {"tool_rounds": True}})
        assert answer.status_code == 200, answer.text
        document = answer.json()
        assert isinstance(document, dict)
        return document

    first = send(question)
    reply = first["choices"][0]["message"]  # type: ignore[index, call-overload]
    rounds = reply["tool_rounds"]  # type: ignore[index, call-overload]
    plain: JsonObject = {"role": "assistant", "content": reply["content"]}  # type: ignore[index, call-overload]
    thanks: JsonObject = {"role": "user", "content": "[[four]]"}
    sent_back, written_out = send(question, reply, thanks), send(question, *rounds, plain, thanks)  # type: ignore[misc]
    used, same = sent_back["usage"], written_out["usage"]
    assert used["prompt_tokens"] == same["prompt_tokens"]  # type: ignore[index, call-overload]
    before = first["usage"]["prompt_tokens"]  # type: ignore[index, call-overload]
    assert used["prompt_tokens_details"]["cached_tokens"] >= 0.9 * before  # type: ignore[index, call-overload, operator]


def test_a_response_contains_the_executed_calls_and_can_be_continued(
    clients: Mapping[str, httpx.Client], *, stream: bool
) -> None:
    with openai.OpenAI(base_url=f"{clients['asked'].base_url}/v1", api_key="none") as client:
        # without the `server_url` that the SDK requires; Temper and LiteLLM accept this form
        tools = cast("list[ToolParam]", [TIME])
        if stream:
            with client.responses.stream(model="m", input="[[our time]]", tools=tools) as events:
                kinds = [event.type for event in events]
                first: Response = events.get_final_response()
            assert kinds.count("response.mcp_call.completed") == 1
        else:
            first = client.responses.create(model="m", input="[[our time]]", tools=tools)
        ran = next(item for item in first.output if item.type == "mcp_call")
        assert (ran.server_label, ran.name, ran.status) == ("time", "get_current_time", "completed")
        assert "timezone" in (ran.output or "")
        assert [item.type for item in first.output][-2:] == ["mcp_call", "message"]
        again = client.responses.create(
            model="m", input="[[four]]", tools=tools, previous_response_id=first.id
        )
        known = client.responses.input_items.list(again.id)
    assert "mcp_call" in [item.type for item in known.data]
    assert first.usage is not None
    assert again.usage is not None
    assert again.usage.input_tokens > first.usage.input_tokens  # with the tool result
    cached = again.usage.input_tokens_details.cached_tokens
    assert cached >= 0.9 * first.usage.input_tokens


def test_the_messages_api_returns_executed_calls_if_the_client_requests_them(
    clients: Mapping[str, httpx.Client], *, stream: bool
) -> None:
    url, wanted = str(clients["always"].base_url), {"temper": {"tool_rounds": True}}
    with anthropic.Anthropic(base_url=url, api_key="none") as client:
        history: list[MessageParam] = [{"role": "user", "content": "[[our time]]"}]
        if stream:
            with client.messages.stream(
                model="m", max_tokens=200, messages=history, extra_body=wanted
            ) as events:
                first: Message = events.get_final_message()
        else:
            first = client.messages.create(
                model="m", max_tokens=200, messages=history, extra_body=wanted
            )
        kinds = [str(block.type) for block in first.content]
        assert kinds[-3:] == ["mcp_tool_use", "mcp_tool_result", "text"]
        content = cast("list[ContentBlockParam]", [block.model_dump() for block in first.content])
        history += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": "[[four]]"},
        ]
        again = client.messages.create(
            model="m", max_tokens=200, messages=history, extra_body=wanted
        )
        plain = client.messages.create(model="m", max_tokens=200, messages=history[:1])
    cached = again.usage.cache_read_input_tokens or 0
    before = first.usage.input_tokens + (first.usage.cache_read_input_tokens or 0)
    assert cached >= 0.9 * before
    assert "mcp_tool_use" not in [str(block.type) for block in plain.content]


def test_a_call_of_the_clients_tool_is_returned_to_the_client(
    clients: Mapping[str, httpx.Client],
) -> None:
    answer = ask(clients["asked"], "[[call]]", WEATHER_TOOL)
    choice = answer.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert "x-temper-tools" not in answer.headers


def test_if_a_reply_calls_tools_of_both_client_and_operator_only_the_operators_run(
    clients: Mapping[str, httpx.Client],
) -> None:
    answer = ask(clients["always"], "[[mixed]]", WEATHER_TOOL)
    read = read_answer(answer)
    assert (read.text, read.report["tools"]) == (ANSWER, "fake=1")


@pytest.mark.deep
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, marks=pytest.mark.fault("F70")),
        pytest.param(signal.SIGKILL, marks=pytest.mark.fault("F71")),
    ],
)
def test_the_programs_of_tool_servers_end_with_temper(
    llama_server: RunningServer, tmp_path: Path, number: signal.Signals
) -> None:
    log, flags = tmp_path / "log", ("--config", str(configured(tmp_path)), "--port", "0", "--json")
    environment = {
        "TEMPER_BACKEND__API_KEY": llama_server.api_key,
        "TEMPER_SERVER__GRACE_SECONDS": "1",
    }
    serve = ("serve", "--backend-url", llama_server.base_url, *flags)
    with temper(*serve, **environment) as process:
        url = announced(process)
        with httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
            wait_for_tools(client)
            hanging = threading.Thread(target=hang, args=(client,))
            hanging.start()
            wait_until(lambda: "called hang" in log.read_text())
            pid = int(log.read_text().splitlines()[0].split()[1])
            process.send_signal(number)
            process.wait(TIMEOUT_SECONDS)
            hanging.join()
    assert process.returncode == (0 if number is signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))


def announced(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    first_line = json.parse(process.stdout.readline())
    assert isinstance(first_line, dict)
    return str(first_line["url"])


def hang(client: httpx.Client) -> None:
    """Request a call that never ends; the end of the response is not checked."""
    try:
        ask(client, "[[our hang]]", {**TIME, "server_label": "fake"}, stream=True)
    except httpx.TransportError:
        return


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
