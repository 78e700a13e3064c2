"""The models of an Ollama server: descriptions, windows, and unloading at the end.

Describing a model never loads it. The window is decided once per model and sent with every request,
because Ollama reloads a model for a different window.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from proxy.backends.client import BackendModel
from proxy.backends.http_backend import HttpBackend, models_in
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_object, as_positive, as_text
from proxy.dialects.ollama_chat.fields import with_tag
from proxy.errors import BackendFailed

TAGS = "/api/tags"
SHOW = "/api/show"
RUNNING = "/api/ps"
GENERATE = "/api/generate"

USUAL = 4096  # tokens, Ollama's default window

# a name with one of these prefixes means the same model as the name without the prefix
_DEFAULT_NAMESPACES = ("library/", "registry.ollama.ai/library/")
_DESCRIBE_SECONDS = 10.0  # seconds for a small response
_UNLOAD_SECONDS = 3.0  # seconds for unloading when Temper stops


Fitting: TypeAlias = Callable[[JsonObject, int], int | None]
"""Returns the largest window that fits into memory, in tokens; None if that cannot be computed.

The arguments are the model's metadata, and the size of its weights in bytes.
"""


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """Ollama's description of a pulled model.

    `architecture` is GGUF's, such as "llama"; `capabilities` is None if Ollama is too old to list
    them. `trained` is the model's maximum window, `preset` is `num_ctx` in its Modelfile, and
    `fitting` is the largest window that fits into memory. Each is in tokens, and None if unknown.
    """

    names: tuple[str, ...]
    architecture: str = ""
    capabilities: frozenset[str] | None = None
    trained: int | None = None
    preset: int | None = None
    fitting: int | None = None

    def has_capability(self, capability: str) -> bool | None:
        """Return whether the model has a capability, None if unknown."""
        return None if self.capabilities is None else capability in self.capabilities


@dataclass(eq=False, slots=True)
class OllamaModels:
    """Describes the models of one Ollama, and decides their windows.

    `num_ctx` is the operator's window; if it is None, `fitting` computes a window. Fetching a
    description takes at most `timeout` seconds.
    """

    server: HttpBackend
    num_ctx: int | None = None
    fitting: Fitting | None = None
    timeout: float = field(default=_DESCRIBE_SECONDS, kw_only=True)
    _details: dict[str, ModelDetails] = field(default_factory=dict)
    _chosen: dict[str, int | None] = field(default_factory=dict)
    # the models that Temper's requests have loaded, and that Temper unloads when it stops
    _loaded_by_temper: set[str] = field(default_factory=set)

    async def list_models(self) -> tuple[BackendModel, ...]:
        return self.server.read_models(await self.server.fetch(TAGS), "models", "name")

    async def show(self, name: str, *, refresh: bool = False) -> ModelDetails | None:
        """Return Ollama's description of a model, None if there is none; never raises."""
        if refresh or name not in self._details:
            try:
                answer = await self.server.submit(SHOW, {"model": name}, self.timeout)
                fitting = await self._largest_fitting(name, as_object(answer.get("model_info")))
                self._details[name] = replace(_parse_details(name, answer), fitting=fitting)
            except BackendFailed:
                return None
        return self._details[name]

    async def window(self, name: str) -> int | None:
        """Return the window of the next request, in tokens; None if unknown, never raises.

        The operator's window takes precedence over the window of a loaded model, because the next
        request makes Ollama reload the model with the operator's window.
        """
        window_to_request = self._configured_window(name) or self._chosen.get(name)
        if window_to_request is not None:
            return window_to_request
        loaded = (await self._running()).get(with_tag(name))
        details = self._details.get(name)
        if loaded is not None or details is None:
            return loaded
        return _limit_window(details.fitting or details.preset, details.trained)

    async def choose_window(self, name: str, requested: int | None = None) -> int | None:
        """Return the window to request for a model; None lets Ollama decide.

        The result is the first known of these: the operator's window, the window of an already
        loaded model, the largest window that fits, and `requested`. The result is stored, and
        returned for every later request.
        """
        if name not in self._chosen:
            running = await self._running()
            loaded = running.get(with_tag(name))
            if name in self._details:  # unknown names are not stored, as their number has no limit
                if with_tag(name) not in running:
                    self._loaded_by_temper.add(name)
                details = self._details[name]
                window_to_request = self._configured_window(name) or loaded or details.fitting
                # another request may have chosen a window in the meantime; a different window
                # would reload the model
                return self._chosen.setdefault(
                    name, window_to_request or _limit_window(requested, details.trained)
                )
            return self.num_ctx or loaded or requested
        return self._chosen[name]

    async def enlarge_window(self, name: str, tokens: int) -> bool:
        """Request a larger window from now on, of at least `tokens` if possible.

        The limit is the largest window that fits into memory or, if that is unknown, the model's
        maximum. Returns False, and changes nothing, if the limit is reached, if the operator chose
        the window, or if another program loaded the model.
        """
        details, window = self._details.get(name), await self.window(name) or USUAL
        most = (details.fitting or details.trained or 0) if details is not None else 0
        # at least doubled, because each change of the window reloads the model (decision 0011)
        window_to_request = min(most, max(tokens, 2 * window))
        if (
            self.num_ctx is not None
            or name not in self._loaded_by_temper
            or window_to_request <= window
        ):
            return False
        self._chosen[name] = window_to_request
        return True

    def _configured_window(self, name: str) -> int | None:
        """Return the operator's window, at most the window that the model was trained with."""
        details = self._details.get(name)
        return _limit_window(self.num_ctx, details.trained if details is not None else None)

    async def unload(self) -> None:
        """Unload the models that Temper's requests have loaded; never raises."""
        for name in sorted(self._loaded_by_temper):
            with suppress(BackendFailed):
                body: JsonObject = {"model": name, "keep_alive": 0}
                await self.server.submit(GENERATE, body, min(_UNLOAD_SECONDS, self.timeout))
        self._loaded_by_temper.clear()

    async def _largest_fitting(self, name: str, model_info: JsonObject) -> int | None:
        """Compute the largest window that fits; None if unknown, or if `num_ctx` is set.

        The size of the weights is read from the list of models; no other response reports it.
        """
        if self.fitting is None or self.num_ctx is not None:
            return None
        try:
            models = await self.list_models()
        except BackendFailed:
            return None
        for model in models:
            size = model.details.get("size")
            if model.id == with_tag(name) and isinstance(size, int):
                # in a thread, because `fitting` queries the memory of all devices
                return await asyncio.to_thread(self.fitting, model_info, size)
        return None

    async def _running(self) -> dict[str, int | None]:
        """Return the window of each loaded model, None if Ollama does not report it."""
        try:
            models = models_in(await self.server.fetch(RUNNING), "models", "name")
        except BackendFailed:
            return {}
        return {
            with_tag(loaded.id): as_positive(loaded.details.get("context_length"))
            for loaded in models or ()
        }


def _parse_details(name: str, answer: JsonObject) -> ModelDetails:
    model, details = as_object(answer.get("model_info")), as_object(answer.get("details"))
    architecture = as_text(model.get("general.architecture")) or as_text(details.get("family"))
    capabilities = answer.get("capabilities")
    names = (name, as_text(model.get("general.basename")), as_text(details.get("parent_model")))
    return ModelDetails(
        tuple(dict.fromkeys(filter(None, names))),
        architecture,
        frozenset(map(str, capabilities)) if isinstance(capabilities, list) else None,
        as_positive(model.get(f"{architecture}.context_length")),
        _preset(as_text(answer.get("parameters"))),
    )


def _limit_window(window: int | None, limit: int | None) -> int | None:
    return min(window, limit or window) if window is not None else None


def _preset(parameters: str) -> int | None:
    """Find `num_ctx` in the parameters of a Modelfile, such as "num_ctx 8192" (one per line)."""
    for line in parameters.splitlines():
        name, _, value = line.strip().partition(" ")
        if name == "num_ctx" and value.strip().isdecimal():
            return int(value)
    return None


def complete_name(name: str) -> str:
    """Return the name without a default namespace, with the default tag, in lower case.

    Example: registry.ollama.ai/library/Qwen3 -> qwen3:latest
    """
    tagged = with_tag(name).casefold()
    namespace, slash, short_name = tagged.rpartition("/")
    return short_name if f"{namespace}{slash}" in _DEFAULT_NAMESPACES else tagged
