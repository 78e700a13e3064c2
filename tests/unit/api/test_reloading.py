import logging
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.api.assembly import server_options_of
from proxy.api.reloading import LoadedConfiguration, merge_settings, reload_services
from proxy.errors import InvalidConfiguration
from proxy.serving.services import Services
from proxy.settings import Settings, load_settings
from tests.fakes.backend import ScriptedBackend

OLD = Settings()


def settings_of(**sections: dict[str, object]) -> Settings:
    return load_settings(None, sections)


def test_guardrails_and_limits_are_reloaded_but_other_changes_need_a_restart() -> None:
    new = settings_of(
        guardrails={"strict": True},
        server={"port": 1, "max_body_bytes": 4096},
        backend={"url": "http://127.0.0.1:1"},
        context={"high": 0.8, "budget": "full"},
        tools={"rounds": 3},
        mcp={"new": {"url": "http://127.0.0.1:1/mcp"}},
    )
    serving, waiting = merge_settings(OLD, OLD, new)
    assert serving.guardrails.strict
    assert (serving.server.max_body_bytes, serving.server.port) == (4096, OLD.server.port)
    assert (serving.context.high, serving.context.budget) == (0.8, OLD.context.budget)
    assert serving.backend == OLD.backend
    assert (serving.tools.rounds, [*serving.mcp]) == (3, ["new"])
    assert waiting == ("backend", "server.port", "context.budget")


def test_a_reload_keeps_values_that_were_chosen_at_startup() -> None:
    configured = settings_of(context={"budget": "full"})
    used = configured.model_copy(
        update={"context": configured.context.model_copy(update={"budget": "backend"})}
    )
    serving, waiting = merge_settings(used, configured, configured)
    assert serving == used
    assert waiting == ()


def test_a_new_configuration_takes_effect_and_settings_that_need_a_restart_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxy.api.reloading")
    new = settings_of(guardrails={"strict": True}, server={"workers": 2})
    loaded = LoadedConfiguration(lambda: new, OLD, OLD)
    assert loaded.reload()
    assert loaded.serving.guardrails.strict
    assert loaded.configured == new
    assert "server.workers" in caplog.text


@pytest.mark.parametrize("profile", [None, "unheard-of"])
def test_an_invalid_configuration_changes_nothing_and_its_error_is_logged(
    caplog: pytest.LogCaptureFixture, profile: str | None
) -> None:
    def reload() -> Settings:
        if profile is None:
            raise InvalidConfiguration("server.port", "is wrong")
        return settings_of(profile={"name": profile})

    loaded = LoadedConfiguration(reload, OLD, OLD)
    assert not loaded.reload()
    assert (loaded.serving, loaded.configured) == (OLD, OLD)
    assert "the old one stays in use" in caplog.text
    assert "server.port" in caplog.text or "unheard-of" in caplog.text


def test_a_reload_keeps_the_backends_and_the_queues(tmp_path: Path) -> None:
    file = tmp_path / "one.gguf"
    file.write_bytes(b"GGUF")
    settings = settings_of(models={"one": {"path": str(file), "profile": "qwen3"}})
    serving = server_options_of(settings)
    before = Services(
        [serving.service(ScriptedBackend(), name="one"), ServerOptions().service(ScriptedBackend())]
    )
    after = reload_services(before, settings, serving)
    for old, new in zip(before, after, strict=True):
        assert (new.backend, new.admission, new.name) == (old.backend, old.admission, old.name)
        assert new.models is not old.models
