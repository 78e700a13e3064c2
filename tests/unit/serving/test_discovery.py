import asyncio

import pytest

from proxy.backends.detection import Found, Kind
from proxy.errors import InvalidConfiguration
from proxy.serving.discovery import find_backend, with_backend
from proxy.settings import Settings, load_settings
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening

NOBODY = "http://127.0.0.1:1"


def test_a_server_that_runs_is_found_where_nothing_is_named() -> None:
    async def scene() -> tuple[Found | None, str]:
        stranger, server = ScriptedBackend(), ScriptedBackend()
        stranger.models = "<html>"
        server.models = {"data": [{"id": "m", "owned_by": "llamacpp"}]}
        async with listening(stranger) as first, listening(server) as second:
            urls = (NOBODY, first.url, second.url)
            return await find_backend(Settings(), urls), second.url

    found, url = asyncio.run(scene())
    assert found == Found(url, Kind.LLAMA_SERVER)
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
    assert with_backend(named, Found("http://127.0.0.1:2", Kind.OPENAI)) is named
    assert with_backend(Settings(), None) == Settings()
