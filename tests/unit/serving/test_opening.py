import asyncio
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.adaptive import AdaptiveEngine
from proxy.backends.anthropic import ADDRESS, Anthropic
from proxy.backends.client import Backend
from proxy.backends.detection import DetectedBackend, EngineKind, FoundServer
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama import Ollama, OllamaOverrides
from proxy.backends.pool import Pool
from proxy.errors import InvalidConfiguration, LaunchFailed
from proxy.serving.opening import find_backend, ollama_overrides, open_services, with_backend
from proxy.settings import Settings, load_settings
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening


def settings_of(**sections: dict[str, object]) -> Settings:
    return load_settings(None, sections)


def opened(settings: Settings, model: str = "any") -> Backend:
    async def open_it() -> Backend:
        async with open_services(settings, ServerOptions(), lambda _: None) as services:
            return services.find(model).backend

    return asyncio.run(open_it())


@pytest.mark.parametrize(
    ("kind", "adapter"),
    [
        ("llama-server", LlamaServer),
        ("ollama", Ollama),
        ("openai", AdaptiveEngine),
        ("anthropic", Anthropic),
        ("auto", DetectedBackend),
    ],
)
def test_the_kind_of_a_backend_chooses_its_adapter(kind: str, adapter: type) -> None:
    url = "http://127.0.0.1:1/v1"
    backend = opened(settings_of(backend={"url": url, "kind": kind, "api_key": "k"}))
    assert isinstance(backend, adapter)
    assert backend.name == "http://127.0.0.1:1"


def test_anthropics_api_is_where_everybody_finds_it() -> None:
    assert opened(settings_of(backend={"kind": "anthropic"})).name == ADDRESS
    elsewhere = settings_of(backend={"kind": "anthropic", "url": "http://127.0.0.1:2"})
    assert opened(elsewhere).name == "http://127.0.0.1:2"


def test_several_addresses_are_a_pool() -> None:
    urls = ["http://127.0.0.1:1", "http://127.0.0.1:2/v1"]
    backend = opened(settings_of(backend={"urls": urls}))
    assert isinstance(backend, Pool)
    assert backend.name == "http://127.0.0.1:1, http://127.0.0.1:2"
    assert not isinstance(opened(settings_of(backend={"urls": urls[:1]})), Pool)


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
    assert ollama_overrides(settings) == OllamaOverrides("qwen3:8b", 8192, sent)
    assert ollama_overrides(Settings().ollama) == OllamaOverrides()


def test_a_file_that_is_no_model_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="does not exist"):
        opened(settings_of(model={"path": str(tmp_path / "none.gguf")}))


def test_without_a_server_or_a_file_there_is_a_remedy() -> None:
    with pytest.raises(InvalidConfiguration, match="--backend-url"):
        opened(Settings())


NOBODY = "http://127.0.0.1:1"


def test_a_server_that_runs_is_found_where_nothing_is_named() -> None:
    async def scene() -> tuple[FoundServer | None, str]:
        stranger, server = ScriptedBackend(), ScriptedBackend()
        stranger.models = "<html>"
        server.models = {"data": [{"id": "m", "owned_by": "llamacpp"}]}
        async with listening(stranger) as first, listening(server) as second:
            urls = (NOBODY, first.url, second.url)
            return await find_backend(Settings(), urls), second.url

    found, url = asyncio.run(scene())
    assert found == FoundServer(url, EngineKind.LLAMA_SERVER)
    settings = with_backend(Settings(), found)
    assert (settings.backend.addresses, settings.backend.kind) == ((url,), "llama-server")


def test_where_nobody_answers_the_commands_to_choose_from_are_said() -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        asyncio.run(find_backend(Settings(), (NOBODY,)))
    said = str(raised.value)
    assert NOBODY in said
    for way_out in ("temper serve --backend-url", "temper serve --model", "temper demo"):
        assert f"\n  {way_out}" in said


def test_the_commands_to_choose_from_are_those_of_the_command_that_was_used() -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        asyncio.run(find_backend(Settings(), (NOBODY,), "doctor"))
    assert "\n  temper doctor --backend-url" in str(raised.value)
    assert "temper serve" not in str(raised.value)


@pytest.mark.parametrize(
    "sections",
    [{"backend": {"url": NOBODY}}, {"backend": {"urls": [NOBODY]}}, {"model": {"path": "x.gguf"}}],
)
def test_nobody_is_looked_for_where_something_is_named(
    sections: dict[str, dict[str, object]],
) -> None:
    assert asyncio.run(find_backend(load_settings(None, sections), (NOBODY,))) is None


def test_what_was_found_gives_way_to_what_is_named_later() -> None:
    named = load_settings(None, {"backend": {"url": NOBODY}})
    assert with_backend(named, FoundServer("http://127.0.0.1:2", EngineKind.OPENAI)) is named
    assert with_backend(Settings(), None) == Settings()
