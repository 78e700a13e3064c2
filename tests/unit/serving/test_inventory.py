import asyncio
from pathlib import Path

import pytest

from proxy.errors import InvalidConfiguration, LaunchFailed
from proxy.guardrails.model_quirks import Quirks, Template
from proxy.guardrails.offer import TextPolicy
from proxy.profiles.profile import GENERIC, Profile, Sampling
from proxy.profiles.recognition import Recognition
from proxy.serving.inventory import (
    ListedModel,
    list_models,
    list_profiles,
    profile_document,
    profile_summary,
)
from proxy.settings import Settings, load_settings
from tests.fakes.llama import build_model
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening


def profile_of(listed: ListedModel) -> str:
    assert listed.known is not None
    return listed.known.recognition.profile.name


async def test_a_running_server_is_queried_for_its_models() -> None:
    backend = ScriptedBackend()
    backend.models = {"data": [{"id": "some-alias"}]}
    backend.properties = {"model_alias": "some-alias", "model_path": "/m/gemma-2-9b-it.gguf"}
    async with listening(backend) as url:
        settings = load_settings(None, {"backend": {"url": url.url}})
        served = await list_models(settings)
    rows = [(model.name, profile_of(model)) for model in served]
    assert rows == [("some-alias", "gemma2")]


def test_a_model_file_is_recognized_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "Qwen3-8B-Q4_K_M.gguf"
    file.write_bytes(b"GGUF, but no model at all")
    settings = load_settings(None, {"model": {"path": str(file)}})
    (listed,) = asyncio.run(list_models(settings))
    assert (listed.name, profile_of(listed)) == (str(file), "qwen3")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    settings = load_settings(None, {"model": {"path": str(tmp_path / "none.gguf")}})
    with pytest.raises(LaunchFailed, match="does not exist"):
        asyncio.run(list_models(settings))


def test_without_a_server_or_a_file_the_error_names_the_flag_backend_url() -> None:
    with pytest.raises(InvalidConfiguration, match="--backend-url"):
        asyncio.run(list_models(Settings()))


def test_every_profile_is_listed_with_the_names_that_it_matches() -> None:
    known = {profile.name: profile.summary()["profile"] for profile in list_profiles(Settings())}
    assert "qwen3-coder" in known["qwen3-coder"]
    assert len(known) > 25


async def test_each_of_several_models_is_inspected_at_its_backend(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    backend.models = {"data": [{"id": "org/gemma-2-9b-it"}, {"id": "other"}]}
    async with listening(backend) as url:
        remote = {"url": url.url, "kind": "openai", "upstream_model": "org/gemma-2-9b-it"}
        models = {
            "far": remote,
            "near": {"path": str(build_model(tmp_path / "m.gguf")), "profile": "qwen3"},
            "download": {"hf_repo": "owner/Qwen2.5-7B-Instruct-GGUF"},
        }
        (far, local, download) = await list_models(load_settings(None, {"models": models}))
    assert [model.name for model in (far, local, download)] == ["far", "near", "download"]
    assert (profile_of(far), far.prospect) == ("gemma2", None)
    assert (profile_of(local), local.document()["id"]) == ("qwen3", "near")
    assert "models.near.profile" in local.summary()["profile"]
    assert {"memory", "window", "hardware"} <= local.summary().keys()
    assert "memory" in local.document()
    assert (profile_of(download), download.prospect) == ("qwen2.5", None)


def test_a_model_that_cannot_be_inspected_does_not_affect_the_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "Qwen3-8B.gguf").write_bytes(b"GGUF")
    models = {
        "gone": {"url": "http://[::1]:1"},
        "missing": {"path": str(tmp_path / "none.gguf")},
        "here": {"path": str(tmp_path / "Qwen3-8B.gguf")},
    }
    listed = asyncio.run(list_models(load_settings(None, {"models": models})))
    unreachable, missing, in_file = listed
    assert "http://[::1]:1 cannot be reached" in unreachable.summary()["problem"]
    assert unreachable.document() == {"id": "gone", "problem": unreachable.problem}
    assert "does not exist" in missing.problem
    assert profile_of(in_file) == "qwen3"


def test_an_unknown_profile_is_refused_with_the_name_of_its_setting() -> None:
    models = {"a": {"url": "http://[::1]:1", "profile": "nonsense"}}
    with pytest.raises(InvalidConfiguration) as raised:
        asyncio.run(list_models(load_settings(None, {"models": models})))
    assert raised.value.setting == "models.a.profile"


QUIRKS = Quirks(
    ("mistral", "hermes"),
    TextPolicy.ACCEPT,
    "mistral",
    "last",
    Template(False, "first", True, ("[INST]",)),
    False,
    True,
    {"python": "run_code"},
)
PROFILE = Profile(
    "own",
    "Our own",
    QUIRKS,
    launch_flags=("--swa-full",),
    sampling=Sampling(temperature=0.15, top_k=0, source="https://example.org/card"),
    sources=("https://example.org/a", "https://example.org/b"),
)
RECOGNIZED = Recognition(PROFILE, 'name "own-7b" matches "own*"')


def test_profile_summary_describes_each_property_of_a_profile() -> None:
    assert profile_summary(RECOGNIZED, QUIRKS) == {
        "profile": 'own (Our own): name "own-7b" matches "own*"',
        "calls": "mistral, hermes, then every other syntax; one at once",
        "tools": "described in the prompt, as mistral",
        "prose": "accept",
        "thoughts": "replayed: last",
        "template": (
            "system messages first, user and assistant messages alternate, no developer role"
        ),
        "sampling": "temperature 0.15, top_k 0 (https://example.org/card)",
        "launch": "--swa-full",
        "state": "cache cannot be truncated",
        "sources": "https://example.org/a https://example.org/b",
    }


def test_profile_summary_omits_empty_properties() -> None:
    assert profile_summary(Recognition(GENERIC, "nothing known matches"), GENERIC.quirks) == {
        "profile": "generic (Any model): nothing known matches",
        "calls": "every syntax; several at once",
        "tools": "described by the chat template",
        "prose": "auto",
        "thoughts": "replayed: full",
        "template": "system messages anywhere",
    }


def test_a_profile_summary_says_if_the_tool_respond_is_not_offered() -> None:
    quirks = Quirks(offers_respond=False)
    assert profile_summary(RECOGNIZED, quirks)["prose"] == "auto, respond is not offered"


def test_profile_document_contains_each_property_of_a_profile() -> None:
    assert profile_document(RECOGNIZED, QUIRKS) == {
        "profile": "own",
        "title": "Our own",
        "reason": 'name "own-7b" matches "own*"',
        "syntaxes": ["mistral", "hermes"],
        "parallel_calls": False,
        "tools_in_prompt": "mistral",
        "text_policy": "accept",
        "offers_respond": True,
        "replay": "last",
        "efforts": [],
        "resets_state": True,
        "aliases": {"python": "run_code"},
        "template": {
            "developer": False,
            "system": "first",
            "alternates": True,
            "prefill": True,
            "control_tokens": ["[INST]"],
        },
        "launch_flags": ["--swa-full"],
        "sampling": {"temperature": 0.15, "top_k": 0, "source": "https://example.org/card"},
        "sources": ["https://example.org/a", "https://example.org/b"],
    }
