"""Opens the models of `temper serve` inside a program, with the same settings, but without HTTP."""

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager as ContextManager
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import structs

from proxy.agents.custom import Client, ClientBackend, CustomCompaction, Shorten
from proxy.backends.client import Headers
from proxy.context.budget import Window
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Request
from proxy.conversation.tools import ToolCall
from proxy.dialects.dialect import Decoded, IdsAndClock
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.dialect import chat_answering
from proxy.errors import InvalidConfiguration
from proxy.guardrails.offer import Mode
from proxy.inference.retry_budget import RetryBudget
from proxy.profiles.known_model import knows_thoughts
from proxy.serving.assembly import policy_of, service_options_of
from proxy.serving.context_fitting import TokenCount
from proxy.serving.opening import open_services
from proxy.serving.request_preparation import RequestPreparation, Resolved
from proxy.serving.services import load_wait
from proxy.settings import Settings, load_settings
from proxy.tools.executor import Outcome
from proxy.tools.transcript import Conversation


class Spans(Protocol):
    """The trace of one run; see `observability.tracing`."""

    def attempt(self, headers: Headers, number: int, defect: str | None) -> ContextManager[Headers]:
        """Trace a generation; yields the headers to send. `defect` is the reason for a retry."""

    def tool_started(self, call: ToolCall, number: int) -> None: ...
    def tool_finished(self, outcome: Outcome) -> None: ...
    def finish(self, stop: str, rounds: int, tokens: tuple[int, int]) -> None:
        """Record the stop reason, and the tokens of all prompts and of all replies."""


class RunTracer(Protocol):
    """Starts the traces of runs."""

    def run(self, agent: str, model: str) -> ContextManager[Spans]: ...


class NoTracing:
    """Traces nothing; implements both `RunTracer` and `Spans`."""

    @contextmanager
    def run(self, agent: str, model: str) -> Generator["NoTracing"]:
        del agent, model
        yield self

    @contextmanager
    def attempt(self, headers: Headers, number: int, defect: str | None) -> Generator[Headers]:
        del number, defect
        yield headers

    def _ignore(self, *_: object, **__: object) -> None:
        """Ignore the event."""

    tool_started = tool_finished = finish = _ignore


def open_tracing(collector: str | None, opened: ExitStack) -> RunTracer:
    """Return a tracer for `collector`, or for OpenTelemetry if the program has imported its SDK.

    Closing `opened` closes the tracer. Raises `InvalidConfiguration` if a collector is configured
    but OpenTelemetry is not installed.
    """
    if collector is None and "opentelemetry.sdk.trace" not in sys.modules:
        return NoTracing()  # the program does not use the SDK, so Temper does not import it
    try:
        from proxy.observability.tracing import RunTracing, exporter_to

        tracing = RunTracing(None if collector is None else exporter_to(collector))
    except ImportError as missing:
        if collector is None:  # the program has an SDK, but its version is not supported
            return NoTracing()
        problem = "needs OpenTelemetry: pip install 'temper-proxy[otel]'"
        raise InvalidConfiguration("tracing.url", problem) from missing
    opened.callback(tracing.close)
    return tracing


_EMPTY_REQUEST: JsonObject = {"messages": [{"role": "user", "content": ""}]}
_STAMP = IdsAndClock(time.time, lambda: secrets.token_hex(12))


@dataclass(frozen=True, slots=True)
class OpenModel:
    """An open model; its requests share a retry budget."""

    settings: Settings
    preparation: RequestPreparation
    tracing: RunTracer
    loop: asyncio.AbstractEventLoop
    budget: RetryBudget = field(default_factory=RetryBudget)

    @asynccontextmanager
    async def lease(self, request: Request) -> AsyncGenerator[Resolved, None]:
        """Select the model for a request, and keep it loaded while the block runs.

        Raises RuntimeError if the model was opened in another event loop.
        """
        # connections and locks belong to the event loop in which the model was opened
        if asyncio.get_running_loop() is not self.loop:
            problem = "the model was opened in another event loop"
            raise RuntimeError(
                f"{problem}: use run_sync(), or open it in this loop with `async with`"
            )
        resolved = await self.preparation.resolve(Decoded(request, chat_answering(request, _STAMP)))
        with resolved.service.lease() as claim:
            if claim is not None:
                async with load_wait(claim, self.settings.backend.load_wait_seconds):
                    await claim.wait_until_granted()
            yield resolved


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The properties of an open model, as reported by its engine.

    `tools` is "template" if the chat template describes tools to the model. Otherwise, it is the
    format in which Temper describes tools in the prompt, such as "hermes". `window` is the number
    of tokens for prompt and answer together in one slot; None if unknown. `text_policy` is the
    handling of replies without a call. `thinks` means that reasoning can be turned on and off.
    """

    name: str
    engine: str
    profile: str
    tools: str
    text_policy: str
    window: int | None
    slots: int | None
    thinks: bool

    @property
    def budget(self) -> int:
        """The maximum tokens of a prompt; raises `InvalidConfiguration` without a known window."""
        if self.window is None:
            problem = f"is required: the engine of {self.name} does not report its window"
            raise InvalidConfiguration("context.window_tokens", problem)
        return Window(self.window).budget(None).room


class Model:
    """A model: on a running server, in a file, or of Ollama.

    `config` is a settings file with the model; if it has several models, `name` selects one.
    `settings` are additional settings, by section and name. As in `temper serve`, other settings
    come from the environment, and from `temper.toml` in the current folder if it exists. `client`
    is a function that replaces the engine: it receives the body of a chat request, and returns a
    completion or yields its chunks. With a `client`, the window is the setting
    `context.window_tokens`. `compaction` is a function that receives messages and a number of
    tokens, and returns the messages to send.

    Open the model with `async with`, or with `with`, which runs an event loop in a thread.
    """

    def __init__(  # noqa: PLR0913 - all but the first are keyword arguments
        self,
        backend_url: str | None = None,
        *,
        path: str | Path | None = None,
        ollama: str | None = None,
        config: str | Path | None = None,
        name: str = "",
        settings: Mapping[str, Mapping[str, object]] | None = None,
        client: Client | None = None,
        compaction: Shorten | None = None,
    ) -> None:
        if client is not None and (backend_url or path or ollama or config):
            raise ValueError("client= cannot be combined with another backend: remove one of them")
        self._client, self._shorten = client, compaction
        self.name = name
        self._config = None if config is None else Path(config)
        self._overrides = settings_from_arguments(backend_url, path, ollama, settings or {})
        self._opened: OpenModel | None = None
        self._stack = AsyncExitStack()
        self._portal: BlockingPortal | None = None
        self._thread = ExitStack()

    @property
    def opened(self) -> OpenModel:
        """The open model; raises RuntimeError before it is opened and after it is closed."""
        if self._opened is None:
            raise RuntimeError("the model is not open: use it within `async with model` or `with`")
        return self._opened

    @property
    def portal(self) -> BlockingPortal:
        """The portal to the thread of the model; raises RuntimeError if not opened by `with`."""
        if self._portal is None:
            raise RuntimeError("run_sync() requires a model opened with `with`, not `async with`")
        return self._portal

    def request(self, members: JsonObject) -> Request:
        """Decode the members of a chat request to this model; raises `InvalidRequest`."""
        named: JsonObject = {"model": self.name} if self.name else {}
        return decode_request(json.dump({**named, **members}))

    async def describe(self) -> ModelDescription:
        """Return the properties of the model; raises `BackendFailed`."""
        opened = self.opened
        # the plan of every request has these properties, so an empty prompt is planned
        async with opened.lease(self.request(_EMPTY_REQUEST)) as resolved:
            planned = await opened.preparation.plan(resolved, {})
        known, policy = planned.known, planned.plan.policy
        window = known.window
        context = service_options_of(opened.settings).context
        return ModelDescription(
            name=resolved.request.model or resolved.service.title,
            engine=known.engine,
            profile=known.recognition.profile.name,
            tools=known.quirks.convention or "template",
            text_policy=(policy.text_policy or known.quirks.text_policy).value,
            window=None if window is None else context.window(window).size,
            slots=known.slots,
            thinks=knows_thoughts(known.evidence.template),
        )

    async def count_tokens(
        self, messages: Conversation | Iterable[JsonObject], *, tools: Sequence[JsonObject] = ()
    ) -> TokenCount:
        """Count the tokens of a prompt; `messages` and `tools` have the format of chat requests.

        Raises `InvalidRequest`, or `ContextOverflow` if the prompt does not fit into the window.
        """
        objects = messages.messages if isinstance(messages, Conversation) else messages
        members: JsonObject = {"messages": [*objects]}
        if tools:
            members["tools"] = [*tools]
        opened = self.opened
        async with opened.lease(self.request(members)) as resolved:
            planned = await opened.preparation.plan(resolved, {})
            return await opened.preparation.count(planned)

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError("the model is already open")
        # if opening fails, this block closes everything that was already opened
        async with AsyncExitStack() as opening:
            self._opened = await self._open(opening)
            self._stack = opening.pop_all()
        return self

    async def _open(self, opening: AsyncExitStack) -> OpenModel:
        settings = load_settings(self._config, self._overrides, "argument")
        serving = service_options_of(settings)
        tracing = open_tracing(settings.tracing.url, opening.enter_context(ExitStack()))
        if self._shorten is not None:
            compaction = partial(CustomCompaction, self._shorten, high=settings.context.high)
            context = replace(
                serving.context, create_compaction=lambda book, window: compaction(book, window)
            )
            serving = replace(serving, context=context)
        if self._client is not None:
            window = settings.context.window_tokens or None
            services = serving.services_for(ClientBackend(self._client, window))
        else:
            services = await opening.enter_async_context(
                open_services(settings, serving, lambda _stage: None)
            )
        for service in services:
            opening.push_async_callback(service.models.close)
        # `Mode.ON`, regardless of the settings, because this process executes the calls, and only
        # the guardrails check them before.
        policy = structs.replace(
            policy_of(settings), mode=Mode.ON, is_strict=True, shows_pieces=True
        )
        preparation = RequestPreparation(services, policy, settings.workflows)
        return OpenModel(settings, preparation, tracing, asyncio.get_running_loop())

    async def __aexit__(self, *_error: object) -> None:
        self._opened = None
        await self._stack.aclose()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            portal = starting.enter_context(start_blocking_portal("asyncio"))
            starting.enter_context(portal.wrap_async_context_manager(self))
            self._thread, self._portal = starting.pop_all(), portal
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._portal = None
        self._thread.__exit__(kind, error, trace)


def settings_from_arguments(
    backend_url: str | None,
    path: str | Path | None,
    ollama: str | None,
    settings: Mapping[str, Mapping[str, object]],
) -> dict[str, dict[str, object]]:
    """Return `settings` with the values of the other arguments, by section and name."""
    merged = {section: dict(values) for section, values in settings.items()}
    for section, name, value in (
        ("backend", "url", backend_url),
        ("backend", "kind", "ollama" if ollama else None),
        ("ollama", "model", ollama),
        ("model", "path", None if path is None else Path(path)),
    ):
        if value is not None:
            merged.setdefault(section, {})[name] = value
    return merged
