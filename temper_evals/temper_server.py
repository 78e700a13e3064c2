"""Runs `temper serve` in a separate process in front of a backend, as users do."""

import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from proxy.processes.temper_server import private_temper
from temper_evals.loop import ModelTarget

# The time between SIGTERM and SIGKILL. No client waits for a reply when Temper is stopped. With
# the default of 3 s, two Tempers took 6 s to stop on a busy machine, and Ctrl-C seemed to have no
# effect.
_GRACE_SECONDS = 0.5


@asynccontextmanager
async def temper_in_front(
    backend: ModelTarget, environment: Mapping[str, str], *, takes_tuned: bool = False
) -> AsyncGenerator[ModelTarget, None]:
    """Start Temper with its defaults and these environment variables; stop it after the block.

    Settings that `temper tune` found on this machine apply only with `takes_tuned`.
    """
    with tempfile.TemporaryDirectory(prefix="temper-eval-") as folder:
        # an empty file, so that the user's temper.toml does not affect the measurement
        settings = Path(folder) / "temper.toml"
        settings.write_text("", encoding="utf-8")
        arguments = ("--backend-url", backend.url, "--config", str(settings))
        quiet = {"TEMPER_LOGGING__LEVEL": "error"}
        # tuned settings are in the cache folder; an empty cache folder hides them
        state = {} if takes_tuned else {"XDG_CACHE_HOME": folder}
        running = private_temper(
            arguments, {**quiet, **state, **environment}, grace_seconds=_GRACE_SECONDS
        )
        async with running as (url, _process):
            yield ModelTarget(url, backend.model, backend.headers)
