import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from proxy.backends.engines import ANY_ENGINE, ENGINES, engine_of, window_in
from proxy.conversation.json import JsonObject


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("vllm", "vLLM"),
        ("sglang", "SGLang"),
        ("organization_owner", "LM Studio"),
        ("organization-owner", "Ray Serve LLM"),
        ("openai", ANY_ENGINE.name),
        (None, ANY_ENGINE.name),
        (5, ANY_ENGINE.name),
    ],
)
def test_an_engine_is_identified_by_owned_by_in_its_model_list(
    owner: str | int | None, name: str
) -> None:
    assert engine_of([{"id": "first"}, {"id": "m", "owned_by": owner}]).name == name


def test_no_two_engines_have_the_same_owned_by() -> None:
    owners = [owner for engine in ENGINES for owner in engine.owners]
    assert len(owners) == len(set(owners))


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"max_model_len": 4096}, 4096),
        ({"context_length": 131072}, 131072),
        ({"context_window": 8192}, 8192),
        ({"max_context_length": 32768}, 32768),
        # LiteLLM 1.109.1, verbatim
        (
            {
                "id": "tiny",
                "object": "model",
                "created": 1677610602,
                "owned_by": "openai",
                "max_input_tokens": 2048,
                "max_output_tokens": 2048,
            },
            2048,
        ),
        ({"max_model_len": None, "context_length": 5}, 5),
        ({"max_model_len": True}, None),
        ({"max_model_len": 0}, None),
        ({"max_model_len": "4096"}, None),
        ({}, None),
    ],
)
def test_the_context_window_is_read_from_the_first_valid_field(
    entry: JsonObject, window: int | None
) -> None:
    assert window_in(ANY_ENGINE, entry) == window


def test_the_context_window_of_ray_serve_is_read_from_metadata() -> None:
    """The entry is a response of Ray 2.60."""
    metadata: JsonObject = {
        "model_id": "tiny",
        "input_modality": "text",
        "max_request_context_length": 2048,
    }
    entry: JsonObject = {
        "id": "tiny",
        "object": "model",
        "owned_by": "organization-owner",
        "permission": [],
        "metadata": metadata,
    }
    assert window_in(engine_of([entry]), entry) == 2048


def test_the_guide_documents_every_engine_fact_and_its_evidence() -> None:
    facts = tomllib.loads(files("proxy.backends").joinpath("facts.toml").read_text())["facts"]
    rows = [
        f"| {fact['engine']} | {fact['fact']} | {fact['mark']} | {fact['source']} |"
        for fact in facts
    ]
    guide = Path("docs/guides/engines.md").read_text()
    assert "\n".join(rows) in guide
    assert {fact["mark"] for fact in facts} == {"seen", "read", "assumed"}
    assert all(fact["source"] for fact in facts if fact["mark"] != "assumed")
    assert {engine.name for engine in ENGINES} <= {fact["engine"] for fact in facts}
