import asyncio
from pathlib import Path

import pytest

from proxy.api.inventory import known_profiles, served_models
from proxy.errors import InvalidConfiguration, LaunchFailed
from proxy.settings import Settings, load_settings
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening


def test_a_running_server_is_asked_for_its_models() -> None:
    async def ask() -> list[tuple[str, str]]:
        backend = ScriptedBackend()
        backend.models = {"data": [{"id": "some-alias"}]}
        backend.properties = {"model_alias": "some-alias", "model_path": "/m/gemma-2-9b-it.gguf"}
        async with listening(backend) as behind:
            settings = load_settings(None, {"backend": {"url": behind.url}})
            served = await served_models(settings)
        return [(one.model, one.recognition.profile.name) for one in served]

    assert asyncio.run(ask()) == [("some-alias", "gemma2")]


def test_a_file_is_looked_into_and_not_started(tmp_path: Path) -> None:
    file = tmp_path / "Qwen3-8B-Q4_K_M.gguf"
    file.write_bytes(b"GGUF, but no model at all")
    settings = load_settings(None, {"model": {"path": str(file)}})
    (known,) = asyncio.run(served_models(settings))
    assert (known.model, known.recognition.profile.name) == (str(file), "qwen3")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    settings = load_settings(None, {"model": {"path": str(tmp_path / "none.gguf")}})
    with pytest.raises(LaunchFailed, match="does not exist"):
        asyncio.run(served_models(settings))


def test_without_a_server_or_a_file_there_is_a_remedy() -> None:
    with pytest.raises(InvalidConfiguration, match="--backend-url"):
        asyncio.run(served_models(Settings()))


def test_every_profile_is_listed_with_the_names_that_lead_to_it() -> None:
    known = {one.model: one.recognition.reason for one in known_profiles(Settings())}
    assert "qwen3-coder" in known["qwen3-coder"]
    assert len(known) > 25
