import asyncio
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.client import Backend
from proxy.errors import InvalidConfiguration, UnknownModel
from proxy.processes.fleet import Condition
from proxy.serving.model_set import memory_of, settings_of
from proxy.serving.opening import open_services
from proxy.settings import Settings, load_settings
from proxy.settings.models import ServedModel
from tests.fakes.llama import build_model


def gguf(folder: Path, name: str, size: int = 4) -> Path:
    file = folder / name
    file.write_bytes(b"GGUF" + b"\0" * (size - 4))
    return file


def settings(models: dict[str, object], **others: dict[str, object]) -> Settings:
    return load_settings(None, {"models": models, **others})


def test_a_file_is_not_loaded_until_it_is_asked_for_and_an_address_is_spoken_to(
    tmp_path: Path,
) -> None:
    local = {"path": str(gguf(tmp_path, "a.gguf")), "aliases": ["x"], "ttl_seconds": 5}
    remote = {"url": "http://127.0.0.1:1", "kind": "openai", "upstream_model": "org/b"}
    wanted = settings({"a": local, "b": {**remote, "parallel_requests": 3}})

    async def scene() -> Backend:
        async with open_services(wanted, ServerOptions(), lambda _: None) as services:
            first, second = services.find("x"), services.find("b")
            assert await first.condition() is Condition.UNLOADED
            assert (second.upstream, second.parallel, second.fleet) == ("org/b", 3, None)
            with pytest.raises(UnknownModel):
                services.find("c")
            return second.backend

    assert asyncio.run(scene()).name == "http://127.0.0.1:1"


def test_each_model_has_settings_of_its_own() -> None:
    model = {"url": "http://127.0.0.1:1", "slots": 3, "profile": "qwen3"}
    own = settings_of(settings({"a": model}, profile={"replay": "last"}), "a")
    assert (own.backend.url, own.model.slots, own.model.alias) == ("http://127.0.0.1:1", 3, "a")
    assert (own.profile.name, own.profile.replay, own.models) == ("qwen3", "last", {})


@pytest.mark.parametrize(("own", "thinking"), [("auto", "off"), ("on", "on"), ("off", "off")])
def test_a_model_thinks_as_it_is_set_or_else_as_all_are(own: str, thinking: str) -> None:
    model = {"url": "http://127.0.0.1:1", "thinking": own}
    all_of_them = settings({"a": model}, profile={"thinking": "off"})
    assert settings_of(all_of_them, "a").profile.thinking == thinking


def test_the_memory_of_a_model_is_what_its_slots_and_their_window_need(tmp_path: Path) -> None:
    file = build_model(tmp_path / "m.gguf")  # one layer, one head with a key and a value of 64
    one = ServedModel(path=file, context_tokens=1024, slots=1)
    two = one.model_copy(update={"slots": 2})
    small = one.model_copy(update={"cache_type_k": "q8_0", "cache_type_v": "q8_0"})
    cache = 1024 * 2 * 64 * 2
    assert memory_of(one) > file.stat().st_size + cache
    assert memory_of(two) - memory_of(one) == cache
    assert memory_of(one) - memory_of(small) == cache - 1024 * 2 * 68
    # no window is larger than the one that the model was trained for
    trained = one.model_copy(update={"context_tokens": 8192})
    assert memory_of(one.model_copy(update={"context_tokens": 99_999})) == memory_of(trained)
    assert memory_of(one.model_copy(update={"memory_mb": 2})) == 2 * 2**20


def test_the_memory_of_a_model_that_does_not_tell_is_the_size_of_its_files(
    tmp_path: Path,
) -> None:
    first = gguf(tmp_path, "m-00001-of-00002.gguf", 10)
    gguf(tmp_path, "m-00002-of-00002.gguf", 30)
    assert memory_of(ServedModel(path=first)) == 40
    assert memory_of(ServedModel(path=gguf(tmp_path, "n.gguf", 7))) == 7
    assert memory_of(ServedModel(path=tmp_path / "none.gguf")) == 0
    assert memory_of(ServedModel(url="http://127.0.0.1:1")) == 0


def test_a_model_that_never_fits_is_refused_with_the_remedy(tmp_path: Path) -> None:
    wanted = settings(
        {"a": {"path": str(gguf(tmp_path, "a.gguf", 2**20 + 5))}}, swapping={"memory_mb": 1}
    )

    async def scene() -> None:
        async with open_services(wanted, ServerOptions(), lambda _: None):
            pass

    # one byte more than the budget
    with pytest.raises(InvalidConfiguration, match=r"takes 2 MB .*context_tokens") as raised:
        asyncio.run(scene())
    assert raised.value.setting == "models.a.path"
