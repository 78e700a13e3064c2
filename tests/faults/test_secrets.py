"""F40 and F41: keys in all outputs, and text that forges log lines or controls terminals."""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.faults.toxics import chunked, sends, whole
from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama import Ollama
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.inference.plan import Policy
from proxy.observability.logs import RequestLog, configure_logging
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.observability.recording import Recording, read_recording
from proxy.observability.tracing import Tracing
from tests.fakes import sse
from tests.fakes.running_proxy import RunningProxy, in_front_of, request
from tests.fakes.scripted_backend import Script, ScriptedBackend, refuses
from tests.fakes.sockets import listening
from tests.fakes.sse import calls, says
from tests.fakes.toxic_backend import toxic_backend
from tests.faults.wires import line

SERVER, STRANGER, BACKEND, HEADER = (
    f"canary-{name}-0123456789" for name in ("server", "stranger", "backend", "header")
)
CANARIES = (SERVER, STRANGER, BACKEND, HEADER)
QUOTED: JsonObject = {
    "message": f"Incorrect key {BACKEND} of {HEADER}",
    "type": "invalid_request_error",
}
ECHO = f"220 you sent {BACKEND} and {HEADER}\r\n\r\n".encode()
GOOD = calls("get_weather", '{"city": "Paris"}')
HOSTILE = "m\r\nlevel=error \x1b[31mred\x1b[0m \u202egnp\u2066 \u2028 \x07 end"

SCRIPTS: dict[str, tuple[Script | bytes, ...]] = {
    "success": (GOOD,),
    "repair": (says("Prose."), says('<tool_call>{"name": "get_weather", "arguments": {}}')),
    "refusal that quotes the key": (refuses(401, QUOTED),),
    "failure that quotes the key": (refuses(500, QUOTED),),
    "streamed failure that quotes the key": (sse.event({"error": QUOTED}),),
    "failure amid a reply that quotes the key": (
        sse.START + sse.text("It is") + sse.event({"error": QUOTED}),
    ),
    "nonsense": (Script((b"<html>no</html>",), 200, {"content-type": "text/html"}),),
    "nonsense that quotes the key": (
        Script((f"<html>{BACKEND} {HEADER}</html>".encode(),), 200, {"content-type": "text/html"}),
    ),
    "broken off": (Script((sse.START + sse.text("It is"),)),),
}


@dataclass(frozen=True)
class WatchedTemper:
    """Temper with all observers, and their output."""

    proxy: RunningProxy
    log: StringIO
    exporter: InMemorySpanExporter
    tracing: Tracing
    recording: Path

    def written(self) -> str:
        """Return everything that Temper has written, except responses and metrics."""
        self.tracing.close()
        spans = "".join(span.to_json() for span in self.exporter.get_finished_spans())
        return self.log.getvalue() + spans + self.recording.read_text(encoding="utf-8")


@asynccontextmanager
async def watched_temper(
    folder: Path,
    *scripts: Script | bytes,
    form: Literal["text", "json"] = "text",
    policy: Policy | None = None,
) -> AsyncGenerator[WatchedTemper, None]:
    log, exporter, path = StringIO(), InMemorySpanExporter(), folder / "recording.jsonl"
    configure_logging(form, "debug", log)
    tracing, recording = Tracing(exporter), Recording(path, 10_000_000, (SERVER, BACKEND, HEADER))
    observers = Observers((RequestLog(), tracing), Metrics(), traces=True, recording=recording)
    serving = ServerOptions(policy=policy or Policy(), access=Access({"us": SERVER}))
    backend = ScriptedBackend(*scripts)
    async with listening(backend) as upstream:
        engine = LlamaServer(BackendClient(upstream.url, BACKEND, headers={"x-team": HEADER}))
        async with in_front_of(engine, serving, backend, observers) as proxy:
            yield WatchedTemper(proxy, log, exporter, tracing, path)
    recording.close()


@pytest.mark.fault("F40")
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("name", SCRIPTS)
async def test_no_response_and_no_log_line_contains_a_key(
    *, name: str, form: Literal["text", "json"], stream: bool, tmp_path: Path
) -> None:
    body = request(stream=stream)
    right = {"authorization": f"Bearer {SERVER}"}
    policy = Policy(attempts=len(SCRIPTS[name]))
    async with watched_temper(tmp_path, *SCRIPTS[name], form=form, policy=policy) as temper:
        client = temper.proxy.client
        answers = [
            await client.post("/v1/chat/completions", json=body, headers=right),
            await client.post("/v1/chat/completions", content=b"{", headers=right),
            await client.post(
                "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {STRANGER}"}
            ),
            await client.get(f"/nowhere?key={STRANGER}", headers={"x-api-key": SERVER}),
            await client.get("/v1/models", headers=right),
            await client.get("/metrics", headers=right),
        ]
        (upstream_request, *_) = temper.proxy.backend.upstream_requests
        assert upstream_request.headers["authorization"] == f"Bearer {BACKEND}"
        assert upstream_request.headers["x-team"] == HEADER
    left = temper.written() + "".join(f"{answer.headers}{answer.text}" for answer in answers)
    assert "request" in temper.log.getvalue()
    assert [canary for canary in CANARIES if canary in left] == []


@pytest.mark.fault("F40")
@pytest.mark.parametrize("size", [1, 7, None])
async def test_keys_quoted_in_a_passthrough_response_are_redacted(
    *, size: int | None, tmp_path: Path
) -> None:
    reply = sse.event({"choices": [{"text": "a"}]}) + sse.event({"error": QUOTED})
    size = size or len(reply)
    pieces = tuple(reply[at : at + size] for at in range(0, len(reply), size))
    right = {"authorization": f"Bearer {SERVER}"}
    async with watched_temper(tmp_path, Script(pieces)) as temper:
        body = {"prompt": "Hi", "stream": True}
        answer = await temper.proxy.client.post("/v1/completions", json=body, headers=right)
    assert "Incorrect key [redacted] of [redacted]" in answer.text
    left = temper.written() + f"{answer.headers}{answer.text}"
    assert [canary for canary in CANARIES if canary in left] == []


@pytest.mark.fault("F40")
@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(whole(json.dumps({"error": QUOTED}).encode() + b"\n"), id="as a line"),
        pytest.param(
            chunked(line({"content": "It is"}), json.dumps({"error": QUOTED}).encode() + b"\n"),
            id="within a reply",
        ),
        pytest.param(
            whole(b'{"error": ' + BACKEND.encode() + HEADER.encode() + b"\n"), id="invalid JSON"
        ),
        pytest.param(ECHO, id="no HTTP"),
    ],
)
async def test_keys_quoted_in_an_error_of_ollama_are_redacted(
    *, reply: bytes, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with toxic_backend(sends(reply)) as backend:
        engine = Ollama(BackendClient(backend.url, BACKEND, headers={"x-team": HEADER}))
        async with in_front_of(engine, None, ScriptedBackend()) as proxy:
            answer = await proxy.ask(request(tools=None), stream=stream)
    assert answer.error is not None
    left = answer.body.decode() + caplog.text
    assert [canary for canary in CANARIES if canary in left] == []


@pytest.mark.fault("F41")
async def test_client_text_cannot_forge_log_lines_or_control_terminals(tmp_path: Path) -> None:
    body = request(model=HOSTILE)
    right = {"authorization": f"Bearer {SERVER}"}
    async with watched_temper(tmp_path, GOOD) as temper:
        await temper.proxy.client.post("/v1/chat/completions", json=body, headers=right)
        metrics = (await temper.proxy.client.get("/metrics", headers=right)).text
    lines = temper.log.getvalue().splitlines(keepends=True)
    (line,) = [line for line in lines if " request id=" in line]
    assert line.endswith("\n")
    assert line.removesuffix("\n").isprintable()
    assert r'model="m\r\nlevel=error \x1b[31mred\x1b[0m \u202egnp\u2066 \u2028 \x07 end"' in line
    assert "\x1b" not in metrics
    (recorded,) = read_recording(temper.recording)
    assert recorded.request["model"] == HOSTILE


@pytest.mark.fault("F41")
async def test_json_log_record_is_one_line(tmp_path: Path) -> None:
    right = {"authorization": f"Bearer {SERVER}"}
    async with watched_temper(tmp_path, GOOD, form="json") as temper:
        body = request(model=HOSTILE)
        await temper.proxy.client.post("/v1/chat/completions", json=body, headers=right)
    lines = [json.loads(line) for line in temper.log.getvalue().split("\n") if line]
    assert [line["model"] for line in lines if line["event"] == "request"] == [HOSTILE]
    assert temper.log.getvalue().isascii()
