"""Reloads the configuration while Temper serves (SIGHUP, --watch).

If the new configuration is invalid, an error is logged, and the old configuration stays in use.

Changes of guardrails, limits and profiles apply to the next request; running requests keep the old
settings. Changes of processes, sockets and files need a restart.
"""

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from proxy.api.app import ServerOptions
from proxy.api.assembly import server_options_of
from proxy.errors import InvalidConfiguration
from proxy.serving.opening import overrides_for
from proxy.serving.services import Service, Services
from proxy.settings import Settings
from proxy.systems import handle_signals

logger = logging.getLogger(__name__)

_POLL_SECONDS = 1.0

ReadSettings: TypeAlias = Callable[[], Settings]

# Changes of these sections need a restart. So do changes of the fields in `_FIELDS`.
_SECTIONS = (
    "backend", "ollama", "model", "models", "swapping", "prompt_cache", "metrics", "tracing",
    "recording", "responses", "state",
)  # fmt: skip
_SERVER_FIELDS = (
    "host", "port", "ollama_port", "workers", "max_waiting", "max_connections", "header_seconds",
    "grace_seconds",
)  # fmt: skip
_FIELDS = {
    "server": _SERVER_FIELDS,
    "ui": ("enabled",),
    "context": ("budget",),  # the window was chosen when the model was loaded
}


def merge_settings(
    serving: Settings, configured: Settings, new: Settings
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings to use from now on, and the names of changes that need a restart.

    `serving` are the settings in use. They were derived from `configured`, the previous file.
    """
    needs_restart = [name for name in _SECTIONS if getattr(configured, name) != getattr(new, name)]
    unchanged: dict[str, object] = {name: getattr(serving, name) for name in _SECTIONS}
    for section, fields in _FIELDS.items():
        before, after = getattr(configured, section), getattr(new, section)
        needs_restart += [
            f"{section}.{name}" for name in fields if getattr(before, name) != getattr(after, name)
        ]
        used = getattr(serving, section)
        unchanged[section] = after.model_copy(update={name: getattr(used, name) for name in fields})
    return new.model_copy(update=unchanged), tuple(needs_restart)


@dataclass(slots=True)
class LoadedConfiguration:
    """The settings in use (`serving`), derived from `configured`, the last result of `read`."""

    read: ReadSettings
    serving: Settings
    configured: Settings

    def reload(self) -> bool:
        """Apply the changes that need no restart; log an invalid configuration and return False."""
        try:
            new = self.read()
            serving, needs_restart = merge_settings(self.serving, self.configured, new)
            server_options_of(serving)  # raises if a file of keys or profiles is invalid
            if serving.mcp:
                from proxy.mcp.hosting import specs_of

                specs_of(serving)  # raises if the SDK of MCP is missing
        except InvalidConfiguration as error:
            logger.error("the new configuration is invalid; the old one stays in use: %s", error)
            return False
        self.serving, self.configured = serving, new
        logger.info("configuration reloaded")
        if needs_restart:
            logger.warning("changes of %s need a restart", ", ".join(needs_restart))
        return True


def reload_services(services: Services, settings: Settings, serving: ServerOptions) -> Services:
    """Serve the same backends and queues with new settings."""

    def renew_service(service: Service) -> Service:
        name = service.name
        overrides = overrides_for(settings, name, serving.profiles) if name else None
        new = serving.service(service.backend, name=name, overrides=overrides)
        # the old queue stays in use, because running requests hold its slots
        return replace(service, models=new.models, fitting=new.fitting)

    return Services([renew_service(service) for service in services], serving.patterns)


@contextmanager
def on_hangup(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` on each SIGHUP while the block runs, if the system has this signal.

    A terminal that is closed also sends SIGHUP. In this case, Temper ends instead.
    """
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    had_terminal = _has_terminal()

    def handle_hangup(_number: int) -> None:
        if had_terminal and not _has_terminal():
            signal.raise_signal(signal.SIGTERM)
        else:
            act()

    with handle_signals((signal.SIGHUP,), handle_hangup):
        yield


async def watch_files(
    files: Sequence[Path], act: Callable[[], object], poll_seconds: float = _POLL_SECONDS
) -> None:
    """Call `act` after a change of the files, as soon as they stay unchanged for one interval.

    The files are polled, because polling detects every way to replace a file. An editor renames a
    new file to the name of the old file. Kubernetes switches a symbolic link, and inotify does not
    report this for the link's target.
    """
    applied = previous = await asyncio.to_thread(_fingerprints, files)
    while True:
        await asyncio.sleep(poll_seconds)
        now = await asyncio.to_thread(_fingerprints, files)
        if now == previous != applied:
            applied = now
            act()
        previous = now


def _fingerprints(files: Sequence[Path]) -> list[tuple[int, int, int] | None]:
    return [_fingerprint(file) for file in files]


def _fingerprint(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:  # an editor has deleted the old file, and not yet created the new file
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError as error:
        # ENXIO means that there is no terminal, EIO that it was closed. After any other error, such
        # as EMFILE, a terminal is assumed, because the error does not show whether there is one.
        return error.errno not in (errno.ENXIO, errno.ENOENT, errno.EIO)
    return True
