import asyncio
from pathlib import Path

import pytest

from proxy.api.app import Serving
from proxy.api.opening import BackendAddress, introduce_file, ollama_wishes, open_services
from proxy.backends.adaptive import AdaptiveEngine
from proxy.backends.client import Backend
from proxy.backends.detected import DetectedBackend
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama import Ollama, OllamaWishes
from proxy.errors import InvalidConfiguration, LaunchFailed
from proxy.processes.model_file import ModelFile
from proxy.settings import Settings, load_settings

OWN_PROFILE = """
name = "falcon"
title = "Falcon"
sources = ["https://example.org/falcon"]
[match]
names = ["falcon-x*"]
"""


def settings_of(**sections: dict[str, object]) -> Settings:
    return load_settings(None, sections)


def opened(settings: Settings, model: str = "any") -> Backend:
    async def open_it() -> Backend:
        async with open_services(settings, Serving(), lambda _: None) as services:
            return services.find(model).backend

    return asyncio.run(open_it())


@pytest.mark.parametrize(
    ("kind", "adapter"),
    [
        ("llama-server", LlamaServer),
        ("ollama", Ollama),
        ("openai", AdaptiveEngine),
        ("auto", DetectedBackend),
    ],
)
def test_the_kind_of_a_backend_chooses_its_adapter(kind: str, adapter: type) -> None:
    url = "http://127.0.0.1:1/v1"
    backend = opened(settings_of(backend={"url": url, "kind": kind, "api_key": "k"}))
    assert isinstance(backend, adapter)
    assert backend.name == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    "sections", [{"backend": {"kind": "ollama"}}, {"ollama": {"model": "qwen3:8b"}}]
)
def test_an_ollama_is_where_its_own_client_would_look(
    monkeypatch: pytest.MonkeyPatch, sections: dict[str, dict[str, object]]
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "box:1234")
    assert opened(settings_of(**sections)).name == "http://box:1234"
    elsewhere = {"url": "http://127.0.0.1:2", **sections.get("backend", {})}
    assert opened(settings_of(**{**sections, "backend": elsewhere})).name == "http://127.0.0.1:2"


@pytest.mark.parametrize(
    ("keep_alive", "sent"),
    [("", None), ("10m", "10m"), ("300", 300), ("-1", -1), ("1h30m", "1h30m")],
)
def test_what_is_asked_of_an_ollama_is_what_was_set(
    keep_alive: str, sent: str | int | None
) -> None:
    wanted = {"model": "qwen3:8b", "context_tokens": 8192, "keep_alive": keep_alive}
    settings = settings_of(ollama=wanted).ollama
    assert ollama_wishes(settings) == OllamaWishes("qwen3:8b", 8192, sent)
    assert ollama_wishes(Settings().ollama) == OllamaWishes()


def test_a_file_that_is_no_model_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="does not exist"):
        opened(settings_of(model={"path": str(tmp_path / "none.gguf")}))


def test_without_a_server_or_a_file_there_is_a_remedy() -> None:
    with pytest.raises(InvalidConfiguration, match="--backend-url"):
        opened(Settings())


def test_a_file_is_introduced_by_its_own_names_and_the_operators(tmp_path: Path) -> None:
    (tmp_path / "falcon.toml").write_text(OWN_PROFILE, encoding="utf-8")
    wanted = settings_of(profile={"folder": str(tmp_path)}, model={"alias": "falcon-x1"})
    known = introduce_file(wanted, ModelFile(("model.gguf",)))
    assert (known.model, known.recognition.profile.name) == ("model.gguf", "falcon")
    assert introduce_file(Settings(), ModelFile(("model.gguf",), "qwen3")).traits.syntaxes


def test_who_finds_a_server_running_that_we_started_does_not_halve_its_window_again() -> None:
    address = BackendAddress("http://127.0.0.1:1", "k")
    ours = settings_of(model={"path": "some.gguf"}, context={"budget": "fast", "high": 0.8})
    given = address.given_to(ours)
    assert (given.backend.url, given.model.path) == ("http://127.0.0.1:1", None)
    assert (given.context.budget, given.context.high) == ("backend", 0.8)
    others = settings_of(backend={"url": "http://127.0.0.1:2"}, context={"budget": "fast"})
    assert address.given_to(others).context.budget == "fast"
