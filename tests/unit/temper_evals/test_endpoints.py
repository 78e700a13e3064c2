from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from benchmarks.faults.toxics import Caller
from proxy.conversation import json
from proxy.errors import InvalidConfiguration
from temper_evals.endpoints import find_target
from tests.fakes.raw_backend import raw_backend


def answering(body: bytes, status: int = 200) -> Callable[[Caller], Awaitable[None]]:
    head = f"HTTP/1.1 {status} Told\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"

    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.send(head.encode() + body)

    return script


@asynccontextmanager
async def server_with(*models: str) -> AsyncGenerator[str, None]:
    listed = json.dump({"data": [{"id": model} for model in models]})
    async with raw_backend(answering(listed)) as backend:
        yield backend.url


async def test_the_name_of_the_only_model_that_a_server_lists_is_used() -> None:
    async with server_with("qwen3-8b") as url:
        target = await find_target("--backend-url", f"{url}/v1/")
    assert (target.url, target.model) == (url, "qwen3-8b")


async def test_a_model_must_be_named_if_a_server_lists_several() -> None:
    async with server_with("a", "b") as url:
        with pytest.raises(InvalidConfiguration, match=r"select one with --backend-model: a, b"):
            await find_target("--backend-url", url)
    async with server_with("a", "b") as url:
        assert (await find_target("--backend-url", url, "b")).model == "b"


async def test_the_error_for_an_unknown_model_lists_the_models_of_the_server() -> None:
    async with server_with("qwen3:8b", "llama3.2:latest") as url:
        with pytest.raises(InvalidConfiguration, match=r"no 'nope'; it has: qwen3:8b, llama3\.2"):
            await find_target("--ollama", url, "nope")
    async with server_with("llama3.2:latest") as url:
        assert (await find_target("--ollama", url, "llama3.2")).model == "llama3.2"


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b'{"data": 3}', b'{"data": [3]}'])
async def test_the_name_default_is_used_for_a_server_without_a_list_of_models(body: bytes) -> None:
    async with raw_backend(answering(body, 404)) as backend:
        assert (await find_target("--backend-url", backend.url)).model == "default"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:9", "no server answers at http://127.0.0.1:9 "),
        ("http://[", "no server answers at"),
        ("127.0.0.1:8080", "is not a URL"),
    ],
)
async def test_an_unreachable_server_or_an_invalid_url_raises_invalid_configuration(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=problem) as raised:
        await find_target("--backend-url", url)
    assert "--backend-url" in str(raised.value)


@pytest.mark.parametrize("listed", [b'{"data": []}', b'{"data": null}'])
async def test_the_error_for_an_empty_list_of_models_says_to_load_one(listed: bytes) -> None:
    async with raw_backend(answering(listed)) as backend:
        with pytest.raises(InvalidConfiguration, match="has no models: load one there"):
            await find_target("--backend-url", backend.url)


@pytest.mark.parametrize("status", [401, 403])
async def test_the_error_for_status_401_or_403_names_the_variable_for_the_api_key(
    status: int,
) -> None:
    async with raw_backend(answering(b"{}", status)) as backend:
        with pytest.raises(InvalidConfiguration, match="set TEMPER_BACKEND__API_KEY"):
            await find_target("--backend-url", backend.url)


async def test_the_returned_target_has_the_api_key_as_authorization_header() -> None:
    async with server_with("m") as url:
        target = await find_target("--backend-url", url, api_key="secret")
    assert target.headers == {"authorization": "Bearer secret"}
