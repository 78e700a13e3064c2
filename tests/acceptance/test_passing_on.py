"""Forwarded completions, embeddings and properties, with a real llama-server and OpenAI SDK."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import openai
import pytest

from tests.fakes.command import running_temper
from tests.fakes.llama import CONTEXT_TOKENS, SLOTS, plan_for, serving
from tests.timeouts import TIMEOUT_SECONDS


@pytest.fixture(scope="module")
def embedder(scripted_model: Path) -> Iterator[str]:
    """Temper in front of a llama-server that embeds."""
    plan = replace(plan_for(scripted_model), extra=("--embeddings", "--pooling", "mean"))
    with serving(plan) as server:
        key = {"TEMPER_BACKEND__API_KEY": server.api_key}
        with running_temper("--backend-url", server.base_url, environment=key) as address:
            yield address


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_a_streamed_legacy_completion_has_the_same_text_as_an_unstreamed_completion(
    url: str,
) -> None:
    with client(url) as asking:
        whole = asking.completions.create(model="m", prompt="[[prose]]", max_tokens=5)
        pieces = list(
            asking.completions.create(model="m", prompt="[[prose]]", max_tokens=5, stream=True)
        )
    assert whole.choices[0].text
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    assert len(pieces) > 2


def test_oversized_completion_prompt_is_a_client_error(url: str) -> None:
    with client(url) as asking, pytest.raises(openai.BadRequestError) as raised:
        asking.completions.create(model="m", prompt=[5] * (CONTEXT_TOKENS + 1), max_tokens=5)
    assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "prompt")


def test_embeddings_are_equal_as_floats_and_in_base64(embedder: str) -> None:
    with client(embedder) as asking:
        floats = asking.embeddings.create(model="m", input=["a", "b c"], encoding_format="float")
        encoded = asking.embeddings.create(model="m", input=["a", "b c"])
    first, second = (entry.embedding for entry in floats.data)
    assert len(first) == len(second) > 8
    assert math.dist(first, [0] * len(first)) == pytest.approx(1)
    for plain, packed in zip(floats.data, encoded.data, strict=True):
        assert packed.embedding == pytest.approx(plain.embedding)


def test_oversized_embedding_input_is_a_client_error(embedder: str) -> None:
    with client(embedder) as asking, pytest.raises(openai.BadRequestError) as raised:
        asking.embeddings.create(model="m", input=[5] * (CONTEXT_TOKENS + 1))
    assert raised.value.param == "input"


def test_the_error_of_a_server_without_embeddings_names_its_flag(url: str) -> None:
    with client(url) as asking, pytest.raises(openai.InternalServerError) as raised:
        asking.embeddings.create(model="m", input="a")
    assert raised.value.status_code == 501
    assert "--embeddings" in raised.value.message


def test_props_returns_the_properties_of_the_server(url: str) -> None:
    properties = httpx.get(f"{url}/props", timeout=TIMEOUT_SECONDS).json()
    assert properties["default_generation_settings"] == {"n_ctx": CONTEXT_TOKENS}
    assert properties["total_slots"] == SLOTS
    assert "<tool_call>" in properties["chat_template"]
