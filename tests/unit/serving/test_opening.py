import asyncio
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.anthropic import ADDRESS, Anthropic
from proxy.backends.client import Backend
from proxy.backends.detection import DetectedBackend, FoundServer
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama import Ollama, OllamaOverrides
from proxy.backends.openai_compatible import AdaptiveEngine
from proxy.backends.pool import Pool
from proxy.errors import InvalidConfiguration, LaunchFailed, UnknownModel
from proxy.serving import opening
from proxy.serving.opening import (
    find_backend,
    memory_of,
    ollama_overrides,
    open_services,
    settings_of,
    with_backend,
)
from proxy.settings import Settings, load_settings
from proxy.settings.models import ServedModel
from tests.fakes.llama import build_model
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening


def load(**sections: dict[str, object]) -> Settings:
    return load_settings(None, sections)


def open_backend_of(settings: Settings, model: str = "any") -> Backend:
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
    backend = open_backend_of(load(backend={"url": url, "kind": kind, "api_key": "k"}))
    assert isinstance(backend, adapter)
    assert backend.name == "http://127.0.0.1:1"


def test_kind_anthropic_without_a_url_uses_the_public_address() -> None:
    assert open_backend_of(load(backend={"kind": "anthropic"})).name == ADDRESS
    elsewhere = load(backend={"kind": "anthropic", "url": "http://127.0.0.1:2"})
    assert open_backend_of(elsewhere).name == "http://127.0.0.1:2"


def test_several_backend_urls_are_a_pool() -> None:
    urls = ["http://127.0.0.1:1", "http://127.0.0.1:2/v1"]
    backend = open_backend_of(load(backend={"urls": urls}))
    assert isinstance(backend, Pool)
    assert backend.name == "http://127.0.0.1:1, http://127.0.0.1:2"
    assert not isinstance(open_backend_of(load(backend={"urls": urls[:1]})), Pool)


@pytest.mark.parametrize(
    "sections", [{"backend": {"kind": "ollama"}}, {"ollama": {"model": "qwen3:8b"}}]
)
def test_ollama_without_a_url_uses_the_address_in_ollama_host(
    monkeypatch: pytest.MonkeyPatch, sections: dict[str, dict[str, object]]
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "box:1234")
    assert open_backend_of(load(**sections)).name == "http://box:1234"
    elsewhere = {"url": "http://127.0.0.1:2", **sections.get("backend", {})}
    assert open_backend_of(load(**{**sections, "backend": elsewhere})).name == "http://127.0.0.1:2"


@pytest.mark.parametrize(
    ("keep_alive", "sent"),
    [("", None), ("10m", "10m"), ("300", 300), ("-1", -1), ("1h30m", "1h30m")],
)
def test_ollama_requests_use_the_configured_options(
    keep_alive: str, sent: str | int | None
) -> None:
    configured = {"model": "qwen3:8b", "context_tokens": 8192, "keep_alive": keep_alive}
    settings, elsewhere = load(ollama=configured), "http://192.0.2.1:11434"
    assert ollama_overrides(settings, elsewhere) == OllamaOverrides("qwen3:8b", 8192, sent)
    assert ollama_overrides(Settings(), elsewhere) == OllamaOverrides()


def test_a_missing_model_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="does not exist"):
        open_backend_of(load(model={"path": str(tmp_path / "none.gguf")}))


def test_without_a_server_or_a_file_the_error_names_the_flag_backend_url() -> None:
    with pytest.raises(InvalidConfiguration, match="--backend-url"):
        open_backend_of(Settings())


UNREACHABLE = "http://127.0.0.1:1"


async def test_a_running_server_is_detected_if_none_is_configured() -> None:
    other, server = ScriptedBackend(), ScriptedBackend()
    other.models = "<html>"
    server.models = {"data": [{"id": "m", "owned_by": "llamacpp"}]}
    async with listening(other) as first, listening(server) as second:
        urls = (UNREACHABLE, first.url, second.url)
        backend, url = await find_backend(Settings(), urls), second.url
    assert backend == FoundServer(url, "llama-server")
    settings = with_backend(Settings(), backend)
    assert (settings.backend.addresses, settings.backend.kind) == ((url,), "llama-server")


async def test_the_doctor_also_detects_a_running_temper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "likely_urls", lambda _: (UNREACHABLE,))
    temper = ScriptedBackend()
    temper.models = {"data": [{"id": "m", "owned_by": "temper"}]}
    async with listening(temper) as server:
        port = int(server.url.rpartition(":")[2])
        settings = load_settings(None, {"server": {"port": port}})
        backend = await find_backend(settings, (), "doctor")
        assert backend is not None
        assert backend.url == f"http://127.0.0.1:{port}"
        with pytest.raises(InvalidConfiguration, match="no backend is configured"):
            await find_backend(settings, ())


def test_without_a_server_the_alternative_commands_are_listed() -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        asyncio.run(find_backend(Settings(), (UNREACHABLE,)))
    message = str(raised.value)
    assert UNREACHABLE in message
    for command in ("temper serve --backend-url", "temper serve --model", "temper demo"):
        assert f"\n  {command}" in message


def test_the_listed_commands_are_variants_of_the_command_that_was_used() -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        asyncio.run(find_backend(Settings(), (UNREACHABLE,), "doctor"))
    assert "\n  temper doctor --backend-url" in str(raised.value)
    assert "temper serve" not in str(raised.value)


@pytest.mark.parametrize(
    "sections",
    [
        {"backend": {"url": UNREACHABLE}},
        {"backend": {"urls": [UNREACHABLE]}},
        {"model": {"path": "x.gguf"}},
    ],
)
def test_find_backend_returns_none_if_a_backend_is_configured(
    sections: dict[str, dict[str, object]],
) -> None:
    assert asyncio.run(find_backend(load_settings(None, sections), (UNREACHABLE,))) is None


def test_a_configured_backend_takes_precedence_over_a_detected_backend() -> None:
    configured = load_settings(None, {"backend": {"url": UNREACHABLE}})
    assert with_backend(configured, FoundServer("http://127.0.0.1:2", "openai")) is configured
    assert with_backend(Settings(), None) == Settings()


def gguf(folder: Path, name: str, size: int = 4) -> Path:
    file = folder / name
    file.write_bytes(b"GGUF" + b"\0" * (size - 4))
    return file


def settings(models: dict[str, object], **others: dict[str, object]) -> Settings:
    return load_settings(None, {"models": models, **others})


async def test_a_model_file_is_loaded_on_demand_but_a_model_with_a_url_is_not_loaded(
    tmp_path: Path,
) -> None:
    local = {"path": str(gguf(tmp_path, "a.gguf")), "aliases": ["x"], "ttl_seconds": 5}
    remote = {"url": "http://127.0.0.1:1", "kind": "openai", "upstream_model": "org/b"}
    configured = settings({"a": local, "b": {**remote, "parallel_requests": 3}})
    async with open_services(configured, ServerOptions(), lambda _: None) as services:
        first, second = services.find("x"), services.find("b")
        assert await first.condition() == "unloaded"
        assert (second.upstream, second.parallel, second.fleet) == ("org/b", 3, None)
        with pytest.raises(UnknownModel):
            services.find("c")
        backend = second.backend
    assert backend.name == "http://127.0.0.1:1"


def test_the_settings_of_a_model_are_combined_with_the_defaults() -> None:
    model = {"url": "http://127.0.0.1:1", "slots": 3, "profile": "qwen3"}
    model_settings = settings_of(settings({"a": model}, profile={"replay": "last"}), "a")
    assert (model_settings.backend.url, model_settings.model.slots, model_settings.model.alias) == (
        "http://127.0.0.1:1",
        3,
        "a",
    )
    assert (model_settings.profile.name, model_settings.profile.replay, model_settings.models) == (
        "qwen3",
        "last",
        {},
    )


@pytest.mark.parametrize(
    ("model_value", "thinking"), [("auto", "off"), ("on", "on"), ("off", "off")]
)
def test_the_thinking_setting_of_a_model_takes_precedence_over_the_default(
    model_value: str, thinking: str
) -> None:
    model = {"url": "http://127.0.0.1:1", "thinking": model_value}
    all_of_them = settings({"a": model}, profile={"thinking": "off"})
    assert settings_of(all_of_them, "a").profile.thinking == thinking


@pytest.mark.parametrize(("model_value", "effort"), [("auto", "low"), ("high", "high")])
def test_the_effort_setting_of_a_model_takes_precedence_over_the_default(
    model_value: str, effort: str
) -> None:
    model = {"url": "http://127.0.0.1:1", "effort": model_value}
    all_of_them = settings({"a": model}, profile={"effort": "low"})
    assert settings_of(all_of_them, "a").profile.effort == effort


def test_the_memory_of_a_model_includes_slots_and_window(tmp_path: Path) -> None:
    file = build_model(tmp_path / "m.gguf")  # one layer, one head with a key and a value of 64
    model = ServedModel(path=file, context_tokens=1024, slots=1)
    two = model.model_copy(update={"slots": 2})
    small = model.model_copy(update={"cache_type_k": "q8_0", "cache_type_v": "q8_0"})
    cache = 1024 * 2 * 64 * 2
    assert memory_of(model) > file.stat().st_size + cache
    assert memory_of(two) - memory_of(model) == cache
    assert memory_of(model) - memory_of(small) == cache - 1024 * 2 * 68
    # the window is limited to the context length that the model was trained for
    trained = model.model_copy(update={"context_tokens": 8192})
    assert memory_of(model.model_copy(update={"context_tokens": 99_999})) == memory_of(trained)
    assert memory_of(model.model_copy(update={"memory_mb": 2})) == 2 * 2**20


def test_the_memory_of_a_model_without_metadata_is_its_file_size(tmp_path: Path) -> None:
    first = gguf(tmp_path, "m-00001-of-00002.gguf", 10)
    gguf(tmp_path, "m-00002-of-00002.gguf", 30)
    assert memory_of(ServedModel(path=first)) == 40
    assert memory_of(ServedModel(path=gguf(tmp_path, "n.gguf", 7))) == 7
    assert memory_of(ServedModel(path=tmp_path / "none.gguf")) == 0
    assert memory_of(ServedModel(url="http://127.0.0.1:1")) == 0


def test_a_model_that_never_fits_is_refused_with_the_remedy(tmp_path: Path) -> None:
    configured = settings(
        {"a": {"path": str(gguf(tmp_path, "a.gguf", 2**20 + 5))}}, swapping={"memory_mb": 1}
    )

    async def scene() -> None:
        async with open_services(configured, ServerOptions(), lambda _: None):
            pass

    # the model needs five bytes more than swapping.memory_mb allows
    with pytest.raises(InvalidConfiguration, match=r"takes 2 MB .*context_tokens") as raised:
        asyncio.run(scene())
    assert raised.value.setting == "models.a.path"
