"""Caches the models of a backend: looks up a model at its first request, then once a minute.

Entries expire, because a server can be restarted with another model under the same name.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace

from proxy.backends.client import Abilities, Backend, Description
from proxy.errors import BackendFailed
from proxy.profiles.known_model import KnownModel, Overrides, identify_model
from proxy.profiles.profile import GENERIC, Profile
from proxy.profiles.recognition import Evidence
from proxy.profiles.tuned import TunedSettings, apply_tuned

logger = logging.getLogger(__name__)

_FRESH = 60.0  # seconds until the next lookup
_SOON = 2.0  # seconds until the next lookup after an incomplete description
_MOST_MODELS = 256
_EMBEDDING = "embed"


@dataclass(slots=True)
class _KnownEntry:
    """A model; `until` is the time of `clock` at which it expires."""

    known: KnownModel
    described: Description
    until: float


@dataclass(eq=False, slots=True)
class KnownModels:
    """Looks up models; if the backend does not respond, the previous result stays valid.

    `window_tokens` is used for a backend that does not report its window.
    """

    backend: Backend
    profiles: Sequence[Profile]
    overrides: Overrides = field(default_factory=Overrides)
    tuned: TunedSettings = field(default_factory=TunedSettings)
    _: KW_ONLY
    window_tokens: int | None = None
    clock: Callable[[], float] = time.monotonic
    _entries: dict[str, _KnownEntry] = field(default_factory=dict)
    _first: tuple[str, float] = ("", 0.0)  # a name, and the time of `clock` at which it expires
    _lookups: dict[str, asyncio.Task[KnownModel]] = field(default_factory=dict)

    async def look_up(self, model: str, *, refresh: bool = False) -> KnownModel:
        """Return the requested model; fetch its description again if the entry has expired.

        If `refresh`, the description is fetched even if the entry has not expired.
        """
        entry = self._entries.get(model)
        if entry is None:
            return await self._look_up_once(model)
        if self.clock() < entry.until and not refresh:
            return entry.known
        # until this lookup is complete, other requests use the old entry
        entry.until = self.clock() + _SOON
        return await self._fetch(model, entry)

    async def first_listed(self, *, preferred: str = "") -> str:
        """Return the `preferred` model if the backend lists it, otherwise the first chat model.

        If the list is empty, or was never received, the result is "". LM Studio and Ollama also
        list embedding models, which are recognizable only by their names.
        """
        name, until = self._first
        if self.clock() < until:
            return name
        try:
            listed = [model.id for model in await self.backend.models()]
        except BackendFailed:
            return name
        chats = (name for name in listed if _EMBEDDING not in name.lower())
        first = next(chats, listed[0] if listed else "")
        name = preferred if preferred in listed else first
        self._first = name, self.clock() + _FRESH
        return name

    def forget_first(self) -> None:
        """Let the next `first_listed` fetch the list again; called after a model was rejected."""
        self._first = self._first[0], 0.0

    async def close(self) -> None:
        lookups = [*self._lookups.values()]
        for task in lookups:
            task.cancel()
        if lookups:
            await asyncio.wait(lookups)

    async def _look_up_once(self, model: str) -> KnownModel:
        """Look up an unknown model with a single request to the backend.

        All requests for this model wait for the same lookup; canceling a request does not cancel
        the lookup.
        """
        lookup = self._lookups.get(model)
        if lookup is None:
            lookup = self._lookups[model] = asyncio.create_task(self._fetch(model))
            lookup.add_done_callback(lambda _: self._lookups.pop(model))
        return await asyncio.shield(lookup)

    async def _fetch(self, model: str, entry: _KnownEntry | None = None) -> KnownModel:
        described = await self.backend.describe(model)
        if described.is_provisional and entry is not None:
            return entry.known
        seconds = _SOON if described.is_provisional else _FRESH
        if entry is not None and described == entry.described:
            entry.until = self.clock() + seconds
            return entry.known
        evidence = Evidence(
            described.names, described.architecture, described.template, described.takes_tools
        )
        abilities = {item.name: getattr(described, item.name) for item in fields(Abilities)}
        abilities["window"] = described.window or self.window_tokens
        abilities["identity"] = described.identity or (*described.names, model)[0]
        known = replace(identify_model(model, evidence, self.profiles, self.overrides), **abilities)
        # a server that is still loading does not report its build, on which tuned settings depend
        is_complete = not described.is_provisional
        if is_complete and (tuned := await asyncio.to_thread(self.tuned.of, known)):
            overrides = apply_tuned(self.overrides, tuned)
            known = identify_model(model, evidence, self.profiles, overrides)
            known = replace(known, **abilities, tuned=tuned)
        before = None if entry is None else entry.known
        # the habit that earlier replies have shown stays valid for the same profile and build
        if before and (before.recognition, before.build) == (known.recognition, known.build):
            known = replace(known, habit=before.habit)
        if before is None or before.recognition != known.recognition:
            profile, reason = known.recognition.profile, known.recognition.reason
            if profile.name == GENERIC.name:
                logger.info("model %r: %s (see 'temper models')", model, reason)
            else:
                logger.info("model %r: profile %s (%s)", model, profile.name, reason)
        if len(self._entries) >= _MOST_MODELS:
            self._entries.clear()
        self._entries[model] = _KnownEntry(known, described, self.clock() + seconds)
        return known
