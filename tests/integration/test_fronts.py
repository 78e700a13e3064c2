"""A language that nobody speaks, in as many lines as one takes, served beside the others."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
import pytest

from proxy.api.app import ServerOptions, create_app
from proxy.api.fronts import FrontRoute, Fronts, all_fronts
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation.messages import user_message
from proxy.conversation.replies import ReplyEvent, TextDelta
from proxy.conversation.requests import Request
from proxy.dialects.front import Decoded, ErrorReply, Problem, Schemas, Sender
from proxy.errors import InvalidRequest
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.spoken import says
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


@dataclass
class ShoutedAnswer:
    """One answer, in capital letters: as a stream, as a whole, and what makes both."""

    said: list[str] = field(default_factory=list)

    def begin(self, first: ReplyEvent | None) -> "ShoutedAnswer":
        return self

    builder = begin

    def new_call_id(self) -> str:
        return "CALL"

    def add(self, event: ReplyEvent) -> None:
        self.said += [event.text.upper()] if isinstance(event, TextDelta) else []

    def build(self) -> bytes:
        return json.dumps({"SAID": "".join(self.said)}).encode()

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        return "".join(one.text.upper() for one in events if isinstance(one, TextDelta)).encode()

    def keep_alive(self) -> bytes:
        return b"..."

    def comment(self, text: str) -> bytes:
        return b"(%b)" % text.encode()

    def end(self) -> bytes:
        return b" OVER"

    def fail(self, problem: Problem) -> bytes:
        return b" BROKEN: " + problem.message.upper().encode()


class Shouting:
    """The language: `{"SAY": "...", "STREAM": true}`."""

    name = "shouting"
    id_header = "x-request-id"

    def schemas(self) -> Schemas:
        return Schemas({"title": "Ask"}, {"title": "Say"}, {"title": "Count"}, {"title": "Fail"})

    def decode(self, body: bytes, sender: Sender) -> Decoded:
        asked = json.loads(body)
        if "SAY" not in asked:
            raise InvalidRequest("SAY SOMETHING.", "SAY")
        message = user_message(asked["SAY"])
        fields = {"model": b'"m"', "messages": b"[%b]" % message.source}
        request = Request("m", (message,), fields, stream=asked.get("STREAM", False))
        return Decoded(request, ShoutedAnswer())

    decode_count = decode

    def counted(self, tokens: int) -> bytes:
        return b"%d TOKENS" % tokens

    def error(self, problem: Problem, request_id: str) -> ErrorReply:
        return ErrorReply(problem.status, problem.headers, problem.message.upper().encode())

    def is_complete(self, end: bytes) -> bool:
        return end.endswith(b" OVER")


async def shouted(path: str, body: bytes, key: str = "") -> tuple[int, str]:
    """Post something to a Temper that knows the language; returns the status and the answer."""
    backend = ScriptedBackend(says("It is ", "sunny."))
    fronts = Fronts(*all_fronts(), FrontRoute(Shouting, ("/shout",), "/shout/count"))
    async with listening(backend) as upstream:
        connection = BackendClient(upstream.url)
        services = ServerOptions().alone(LlamaServer(connection))
        async with (
            listening(create_app(services, ServerOptions(), fronts=fronts)) as temper,
            httpx.AsyncClient(
                base_url=temper.url, trust_env=False, timeout=PATIENCE_SECONDS
            ) as client,
        ):
            headers = {"content-type": "application/json", "idempotency-key": key or "1"}
            answer = await client.post(path, content=body, headers=headers)
            again = await client.post(path, content=body, headers=headers)
            if path == "/shout" and answer.status_code == 200:
                assert again.headers["idempotent-replayed"] == "true"
        await connection.close()
    return answer.status_code, answer.text


async def test_another_language_is_served_streamed_and_whole() -> None:
    assert await shouted("/shout", b'{"SAY":"Hi"}') == (200, '{"SAID": "IT IS SUNNY."}')
    status, stream = await shouted("/shout", b'{"SAY":"Hi","STREAM":true}')
    assert (status, stream[:13], stream[-5:]) == (200, "IT IS SUNNY.(", " OVER")


async def test_its_errors_and_counts_are_in_its_own_words() -> None:
    assert await shouted("/shout", b"{}") == (400, "SAY: SAY SOMETHING.")
    status, counted = await shouted("/shout/count", b'{"SAY":"Hi"}')
    assert (status, counted.endswith(" TOKENS")) == (200, True)
    status, text = await shouted("/shout/nowhere", b"{}")
    assert (status, text[:31]) == (404, "THERE IS NO /SHOUT/NOWHERE. AVA")
