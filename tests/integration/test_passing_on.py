"""Passthrough without guardrails, completions and embeddings, over the whole HTTP path."""

import asyncio

import pytest

from proxy.api.app import ServerOptions
from proxy.api.request_reader import BodyLimits
from proxy.api.streaming import StreamTimeouts
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.serving.services import Services
from tests.fakes.loopback import own_address
from tests.fakes.running_proxy import in_front_of, serving_all, temper, temper_at
from tests.fakes.scripted_backend import Ending, ReceivedRequest, Script, ScriptedBackend, refuses
from tests.fakes.sockets import listening

COMPLETIONS, EMBEDDINGS = "/v1/completions", "/v1/embeddings"
JSON = {"content-type": "application/json"}
CHUNK = b'data: {"choices": [{"text": "a"}]}\n\n'
DONE = b"data: [DONE]\n\n"


async def is_disconnected(upstream_request: ReceivedRequest) -> None:
    await upstream_request.left.wait()


async def test_passthrough_is_byte_for_byte_in_both_directions() -> None:
    answer = b'{ "data": [{"embedding": [1.0, 2.50e-3]}] }'
    async with temper(Script((answer,), headers=JSON)) as proxy:
        body = b'{"model":"m","input":["\xc3\xa9", [1, 2]],"dimensions": 3.0,"odd":{"a":null}}'
        response = await proxy.client.post(EMBEDDINGS, content=body)
        (upstream_request,) = proxy.backend.upstream_requests
    assert (response.status_code, response.content) == (200, answer)
    assert upstream_request.raw == {
        "model": b'"m"',
        "input": '["é", [1, 2]]'.encode(),
        "dimensions": b"3.0",
        "odd": b'{"a":null}',
    }


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank", "/reranking", "/score"])
async def test_rerank_request_goes_to_the_same_path(path: str) -> None:
    ranked: JsonObject = {"results": [{"index": 1, "relevance_score": 0.75}]}
    async with temper() as proxy:
        proxy.backend.documents[path] = ranked
        body = b'{"query":"bolt","documents":["nut", "bolt"],"stream":true}'
        response = await proxy.client.post(path, content=body)
    assert (response.status_code, response.json()) == (200, ranked)


async def test_each_chunk_of_a_stream_is_sent_when_it_arrives() -> None:
    gate = asyncio.Event()
    async with temper(Script((CHUNK, gate, CHUNK + DONE))) as proxy:
        body = {"prompt": "Hi", "stream": True}
        received = b""
        async with proxy.client.stream("POST", COMPLETIONS, json=body) as response:
            assert response.headers["cache-control"] == "no-cache"
            async for piece in response.aiter_bytes():
                received += piece
                gate.set()  # the first chunk has arrived before the backend sends the second
    assert received == CHUNK + CHUNK + DONE


async def test_keep_alive_comments_are_sent_while_the_backend_is_silent() -> None:
    gate = asyncio.Event()
    async with temper(
        Script((gate, CHUNK + DONE)), serving=ServerOptions(timeouts=StreamTimeouts(0.01))
    ) as proxy:
        received = b""
        body = {"prompt": "Hi", "stream": True}
        async with proxy.client.stream("POST", COMPLETIONS, json=body) as response:
            async for piece in response.aiter_bytes():
                received += piece
                gate.set()
    assert received.startswith(b": the backend works\n")
    assert received.endswith(CHUNK + DONE)


@pytest.mark.parametrize("steps", [(), (CHUNK,)], ids=["silent", "talking"])
async def test_disconnect_cancels_the_passthrough(*, stream: bool, steps: tuple[bytes]) -> None:
    async with temper(Script((*steps, Ending.NEVER))) as proxy:
        body = {"prompt": "Hi", "stream": stream}
        task = asyncio.create_task(proxy.client.post(COMPLETIONS, json=body))
        upstream_request = await proxy.backend.next_request()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await is_disconnected(upstream_request)
        await proxy.server.settle()


async def test_a_passthrough_stream_that_breaks_off_ends_with_an_error_event() -> None:
    async with temper(Script((CHUNK + b'data: {"cho', Ending.BREAKS))) as proxy:
        response = await proxy.client.post(COMPLETIONS, json={"prompt": "Hi", "stream": True})
    assert response.status_code == 200
    assert response.content.startswith(CHUNK + b'\ndata: {"error":')
    assert b"[DONE]" not in response.content


async def test_a_passthrough_response_that_breaks_off_is_a_502() -> None:
    async with temper(Script((b'{"da', Ending.BREAKS), headers=JSON)) as proxy:
        response = await proxy.client.post(EMBEDDINGS, json={"input": "Hi"})
    assert (response.status_code, response.json()["error"]["code"]) == (502, "backend_unavailable")


@pytest.mark.parametrize(
    ("refusal", "status", "kind"),
    [
        (refuses(404, {"message": "File Not Found", "type": "not_found_error"}), 404, "not_found"),
        (refuses(501, {"message": "no", "type": "not_supported_error"}), 501, "not_supported"),
        (refuses(400, "bad"), 400, "invalid_request"),
        (refuses(500, "oops"), 502, "server"),
        (refuses(429, "later", headers={"retry-after": "7"}), 429, "invalid_request"),
    ],
)
async def test_backend_rejections_have_the_common_error_format(
    *, refusal: Script, status: int, kind: str, stream: bool
) -> None:
    async with temper(refusal) as proxy:
        response = await proxy.client.post(COMPLETIONS, json={"prompt": "Hi", "stream": stream})
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (status, f"{kind}_error")
    assert set(error) == {"message", "type", "param", "code"}
    if status == 429:
        assert response.headers["retry-after"] == "7"


async def test_the_error_for_an_oversized_prompt_names_the_field_prompt() -> None:
    error: JsonObject = {
        "code": 400,
        "message": "too long",
        "type": "exceed_context_size_error",
        "n_ctx": 8,
    }
    async with temper(refuses(400, error)) as proxy:
        response = await proxy.client.post(COMPLETIONS, json={"prompt": "Hi"})
    details = response.json()["error"]
    assert (response.status_code, details["code"]) == (400, "context_length_exceeded")
    assert (details["param"], details["n_ctx"]) == ("prompt", 8)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'{"input":' + b"[" * 5000 + b"]" * 5000 + b"}", {}, 400),
        (b'{"input": NaN}', {}, 400),
        (b'{"input": "a", "input": "b"}', {}, 400),
        (b'{"input": "\xff"}', {}, 400),
        (b'"text"', {}, 400),
        (b'{"model": ["m"]}', {}, 400),
        (b"{}" + b" " * 20_000, {}, 413),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-encoding": "gzip"}, 400),
    ],
)
@pytest.mark.parametrize("path", [COMPLETIONS, EMBEDDINGS])
async def test_invalid_request_is_not_forwarded(
    path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    async with temper(serving=ServerOptions(body=BodyLimits(20_000))) as proxy:
        response = await proxy.client.post(path, content=body, headers=headers)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert proxy.backend.upstream_requests == []


async def test_only_allowed_headers_are_forwarded() -> None:
    sent = {"x-conversation-id": "1", "cookie": "a=b", "authorization": "Bearer k", "x-key": "k"}
    async with temper(Script((b"{}",), headers=JSON), api_key="own") as proxy:
        await proxy.client.post(EMBEDDINGS, json={"input": "a"}, headers=sent)
        headers = proxy.backend.upstream_requests[0].headers
    assert headers["authorization"] == "Bearer own"
    assert not {"x-conversation-id", "cookie", "x-key"} & set(headers)
    assert headers["x-request-id"].startswith("req_")


async def test_the_requested_model_selects_the_backend_and_its_name_for_the_model() -> None:
    backend, other = ScriptedBackend(), ScriptedBackend(Script((b"{}",), headers=JSON))
    serving = ServerOptions()
    async with listening(backend) as first, listening(other) as second:
        engines = [LlamaServer(BackendClient(server.url)) for server in (first, second)]
        services = Services(
            [
                serving.service(engines[0], name="small"),
                serving.service(engines[1], name="embedder", aliases=("e",), upstream="org/e"),
            ]
        )
        async with serving_all(services, serving, backend) as proxy:
            answered = await proxy.client.post(EMBEDDINGS, json={"model": "e", "input": "a"})
            unknown = await proxy.client.post(EMBEDDINGS, json={"model": "x", "input": "a"})
            nameless = await proxy.client.post(EMBEDDINGS, json={"input": "a"})
        for engine in engines:
            await engine.close()
    assert (answered.status_code, backend.upstream_requests) == (200, [])
    assert other.upstream_requests[0].fields["model"] == "org/e"
    assert (unknown.status_code, nameless.status_code) == (404, 404)
    assert "small, embedder" in unknown.json()["error"]["message"]


async def test_the_path_props_returns_a_part_of_the_backends_properties() -> None:
    backend = ScriptedBackend()
    backend.models = {"data": [{"id": "m"}]}
    backend.properties = {
        "model_path": "/home/someone/m.gguf",
        "chat_template": "{{ tools }}",
        "total_slots": 3,
        "default_generation_settings": {"n_ctx": 4096, "seed": 1},
    }
    async with listening(backend) as upstream:
        engine = LlamaServer(BackendClient(upstream.url))
        async with in_front_of(engine, None, backend) as proxy:
            properties = (await proxy.client.get("/props")).json()
    assert properties == {
        "model_alias": "m",
        "default_generation_settings": {"n_ctx": 4096},
        "chat_template": "{{ tools }}",
        "modalities": {"vision": False, "audio": False},
        "total_slots": 3,
    }


async def test_properties_of_an_unreachable_backend_are_a_502() -> None:
    async with listening(ScriptedBackend(), own_address()) as gone:
        url = gone.url
    async with temper_at(url) as proxy:
        assert (await proxy.client.get("/props")).status_code == 502
