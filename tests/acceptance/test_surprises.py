"""Behavior of the default settings that has surprised users, in every dialect."""

import asyncio
from base64 import b64encode
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.guardrails.offer import Mode
from proxy.inference.plan import Policy
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.observability.record import RequestRecord
from proxy.serving.admission import Priority
from temper import Agent, InvalidConfiguration, Model, local_server
from tests.fakes.command import running_temper
from tests.fakes.languages import EVERYWHERE, PATHS, Chat, ask
from tests.fakes.pdf import make_pdf
from tests.fakes.running_proxy import CHAT, temper
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.sockets import listening_in_thread
from tests.fakes.sse import START, end, says, text
from tests.timeouts import until

THOUGHT = says("<thi", "nk>Hm.", "</think>\n\nHello", " there.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a temper.toml that defines models."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


FOLDERS = {
    "a file": '[model]\npath = "mine.gguf"\nslots = 2\n',
    "several": '[models.coder]\npath = "mine.gguf"\n[aliases]\n"gpt-*" = "coder"\n'
    "[workflows.coder]\nrequired_steps = ['look']\n",
    "a server": '[backend]\nurl = "http://127.0.0.1:9"\n',
}


@pytest.mark.parametrize("text", FOLDERS)
def test_a_backend_url_in_code_overrides_the_temper_toml_of_the_folder(
    folder: Path, text: str
) -> None:
    (folder / "temper.toml").write_text(FOLDERS[text], encoding="utf-8")
    kind: dict[str, dict[str, object]] = {"backend": {"kind": "llama-server"}}
    with listening_in_thread(ScriptedBackend(says("Hello."))) as url:
        with Model(url, settings=kind) as model:
            assert Agent(model).run_sync("Hi").output == "Hello."
        with local_server(url, settings=kind) as server:
            assert server.url


def test_the_flag_backend_url_overrides_the_temper_toml_of_the_folder(folder: Path) -> None:
    (folder / "temper.toml").write_text(FOLDERS["several"], encoding="utf-8")
    with (
        listening_in_thread(ScriptedBackend()) as upstream,
        running_temper("--backend-url", upstream, environment={}) as url,
    ):
        assert url


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
async def test_reasoning_is_separated_from_the_text_in_a_request_without_tools(
    language: str, *, stream: bool
) -> None:
    async with temper(THOUGHT) as proxy:
        got = await ask(proxy, language, Chat(), stream=stream)
    assert (got.status, got.text) == (200, "Hello there.")


async def test_after_a_reply_without_opening_tag_the_reasoning_of_later_replies_is_separated() -> (
    None
):
    opened = says("Hm.\n", "</think>\n", "Hello.")
    async with temper(THOUGHT, opened, opened) as proxy:
        body: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        first, second, third = [await proxy.client.post(CHAT, json=body) for _ in range(3)]
    message = first.json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Hello there.")
    assert (
        "</think>" in second.json()["choices"][0]["message"]["content"]
    )  # the first reply, before Temper has learned the format
    last = third.json()["choices"][0]["message"]
    assert (last["reasoning_content"], last["content"]) == ("Hm.", "Hello.")


async def test_reasoning_is_unchanged_with_guardrails_off() -> None:
    serving = ServerOptions(policy=Policy(mode=Mode.OFF))
    async with temper(THOUGHT, serving=serving) as proxy:
        got = await ask(proxy, "chat", Chat(), stream=True)
    assert got.text == "<think>Hm.</think>\n\nHello there."


class Kept:
    """Stores the records of requests."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def take(self, record: RequestRecord) -> None:
        self.records.append(record)


@pytest.mark.parametrize("language", PATHS)
async def test_the_record_of_a_rejected_request_contains_its_error(language: str) -> None:
    kept = Kept()
    async with temper(observers=Observers((kept,))) as proxy:
        path, _ = PATHS[language]
        answer = await proxy.client.post(path, content=b'{"model": 1}')
    assert answer.status_code == 400
    (record,) = kept.records
    assert record.refusal
    assert record.refusal in json.dump_text(answer.json())


async def test_stop_sequence_of_the_engine_is_reported() -> None:
    reported = (
        START
        + text("Hello")
        + end("stop").replace(
            b'"finish_reason":"stop"', b'"finish_reason":"stop","stop_reason":"!"'
        )
    )
    body: JsonObject = {
        "model": "m",
        "max_tokens": 20,
        "stop_sequences": ["!"],
        "messages": [{"role": "user", "content": "Hi"}],
    }
    async with temper(reported, says("Hello")) as proxy:
        first, second = [await proxy.client.post("/v1/messages", json=body) for _ in range(2)]
        upstream_body = proxy.backend.upstream_requests[0].fields
    assert (first.json()["stop_reason"], first.json()["stop_sequence"]) == ("stop_sequence", "!")
    assert (second.json()["stop_reason"], second.json()["stop_sequence"]) == ("end_turn", None)
    assert (upstream_body["stop"], upstream_body["verbose"]) == (["!"], True)


def test_the_function_local_server_rejects_the_setting_of_a_port() -> None:
    with pytest.raises(InvalidConfiguration, match=r"server.port: cannot be set: local_serv"):
        local_server("http://127.0.0.1:9", settings={"server": {"port": 9000}})


async def test_waiting_requests_are_sent_in_order_of_priority_and_counted_by_priority() -> None:
    go = asyncio.Event()
    meter = Metrics()
    scripts: list[Script | bytes] = [Script((START, go, text("Hi."), end()))]
    scripts += [says("Hi.")] * 3
    access = Access({"us": "key", "boss": "urgent"})
    priorities = {"boss": Priority.HIGH}
    serving = ServerOptions(parallel=1, access=access, priorities=priorities)
    async with temper(*scripts, serving=serving, observers=Observers((), meter)) as proxy:
        body: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}

        def waiting(priority: str) -> bool:
            line = f'temper_requests_waiting_by_priority{{model="default",priority="{priority}"}} 1'
            return line in meter.exposition("")[0].decode()

        async def ask_as(name: str, priority: str) -> None:
            key = "urgent" if priority == "high" else "key"
            headers = {"x-temper-priority": priority, "x-api-key": key}
            fields: JsonObject = {**body, "user": name}
            await proxy.client.post(CHAT, json=fields, headers=headers)

        async with asyncio.TaskGroup() as group:
            group.create_task(ask_as("first", "normal"))
            await until(lambda: bool(proxy.backend.upstream_requests))
            for priority in ("low", "normal", "high"):
                group.create_task(ask_as(priority, priority))
                await until(lambda: waiting(priority))  # noqa: B023 - it is awaited here
            go.set()
        users = [
            upstream_request.fields["user"] for upstream_request in proxy.backend.upstream_requests
        ]
        wrong = {"x-temper-priority": "now", "x-api-key": "key"}
        unknown = await proxy.client.post(CHAT, json=body, headers=wrong)
    assert users == ["first", "high", "normal", "low"]
    assert unknown.status_code == 400
    assert "use one of: high, normal, low" in unknown.text


async def test_pdf_is_replaced_by_its_text() -> None:
    pytest.importorskip("pypdf", reason="needs the extra `documents`")
    data = b64encode(make_pdf("The bill is 21 crowns.")).decode()
    source: JsonObject = {"type": "base64", "media_type": "application/pdf", "data": data}
    requests: dict[str, JsonObject] = {
        "/v1/messages": {
            "max_tokens": 50,
            "messages": [{"role": "user", "content": [{"type": "document", "source": source}]}],
        },
        "/v1/responses": {
            "input": [{"role": "user", "content": [{"type": "input_file", "file_data": data}]}]
        },
    }
    async with temper(*[says("Fine.")] * 2) as proxy:
        for path, body in requests.items():
            answer = await proxy.client.post(path, json={"model": "m", **body})
            assert answer.status_code == 200, answer.text
        for question in proxy.backend.upstream_requests:
            assert b"[The text of 1 pages of a PDF:]\\nThe bill is 21 crowns." in question.body
