"""Adapter for any engine with OpenAI's chat completions, and the decoder of their replies.

If an engine refuses a field, the request is sent again without the field before the client receives
anything, and later requests omit the field (`capabilities`).
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from http import HTTPStatus

import msgspec

from proxy.backends.capabilities import (
    Capability,
    Lacks,
    directives_without,
    without_missing_features,
)
from proxy.backends.client import BackendModel, Description, Headers, Health
from proxy.backends.counting import TokenCounter
from proxy.backends.engines import ANY_ENGINE, engine_of, window_in
from proxy.backends.http_backend import (
    HttpBackend,
    OutgoingRequest,
    ReplyDecoder,
    models_in,
    models_named,
    names_of_model,
)
from proxy.backends.probing import (
    PROBES,
    STRUCTURAL_TAG,
    documents_in,
    structural_tag_fields,
    write_probe,
)
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import DELTAS, ReplyEvent, ReplyUnreadable
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.openai_chat.encode import encode_request
from proxy.dialects.openai_chat.fragments import Runs
from proxy.dialects.openai_chat.replies import ChunkDecoder, ReplyPart
from proxy.dialects.sse import DATA, END_OF_EVENT, EventDecoder
from proxy.errors import BackendFailed, BackendRefused, InvalidRequest, UnknownModel
from proxy.inference.plan import RESPONSE_FORMAT

CHAT = "/v1/chat/completions"

logger = logging.getLogger(__name__)

_LONGEST_INCOMPLETE_EVENT = 64 * 1024  # bytes of an incomplete event that are buffered
_SHORT = 8 * 1024  # bytes; a shorter chunk is split into all its events at once, which is cheaper


class OpenAICompatible(HttpBackend):
    """An engine with `/v1/chat/completions`."""

    _has_warned_of_missing_reason = False

    def directives(self, upstream_request: UpstreamRequest, lacks: Lacks) -> JsonObject:
        """Return the fields that are added to a request."""
        return directives_without(upstream_request, lacks)

    async def prepare(self, upstream_request: UpstreamRequest, lacks: Lacks) -> OutgoingRequest:
        return OutgoingRequest(CHAT, self.body_of(upstream_request, lacks), upstream_request)

    def new_decoder(self) -> ReplyDecoder:
        return ChatReplyDecoder(report=self._warn_of_missing_reason)

    def _warn_of_missing_reason(self) -> None:
        if not self._has_warned_of_missing_reason:
            self._has_warned_of_missing_reason = True
            logger.warning("%s: replies end without a finish reason; Temper adds one", self.name)

    def body_of(self, upstream_request: UpstreamRequest, lacks: Lacks) -> bytes:
        return encode_request(upstream_request, self.directives(upstream_request, lacks))


class ChatReplyDecoder(msgspec.Struct):
    """Decodes the bytes of one reply: a stream of events, or one JSON body.

    A body that begins with `{` is a JSON body. The content type is ignored, because some engines
    send a wrong content type (F08 in docs/faults.md).
    """

    has_begun: bool = False
    beginning: bytes = b""
    _events: EventDecoder = msgspec.field(default_factory=EventDecoder)
    _chunks: ChunkDecoder = msgspec.field(default_factory=ChunkDecoder)
    _runs: Runs = msgspec.field(default_factory=Runs)
    _incomplete_event: bytes = b""
    _completion: bytearray | None = None
    _is_blank: bool = True
    report: Callable[[], None] | None = None

    @property
    def is_ending(self) -> bool:
        return self._chunks.has_reason

    def feed(self, chunk: bytes, parts: list[ReplyPart]) -> None:
        if self._is_blank:  # some engines send blank lines as keep-alives before the reply
            chunk = chunk.lstrip()
            self._is_blank = not chunk
            self.beginning = chunk
            self._completion = bytearray() if chunk.startswith(b"{") else None
        if self._completion is not None:
            self._completion += chunk
            return
        if self._incomplete_event:
            chunk, self._incomplete_event = self._incomplete_event + chunk, b""
        # the cheapest way first: a run (events that differ only in their text), then all complete
        # events at once, then event by event
        start = self._read_run(chunk, 0, parts)
        if 0 < len(chunk) - start <= _SHORT and self._read_complete_events(chunk, start, parts):
            return
        while start < len(chunk):
            start = self._read_run(chunk, start, parts) or self._read_event(chunk, start, parts)

    def read_for_sink(self, chunk: bytes) -> Sequence[ReplyEvent] | None:
        if self._incomplete_event or not self._events.is_between_events:
            return None
        run = self._runs.find(chunk, 0)
        if run is None or run.end < len(chunk):
            return None
        return self._chunks.add_texts(run.sample, run.texts)

    def finish(self, parts: list[ReplyPart]) -> None:
        if self._completion is not None:
            self._read(self._completion.decode(), parts)
        self._read_all(self._incomplete_event, parts)
        for event in self._events.finish():
            self._read(event.data, parts)
        parts += self._chunks.finish(is_complete=self._completion is not None)
        self._report()

    def _read_run(self, chunk: bytes, start: int, parts: list[ReplyPart]) -> int:
        """Read the events at `start` that differ from the previous event only in their text.

        Returns the index after these events, 0 if there are none.
        """
        run = self._runs.find(chunk, start) if self._events.is_between_events else None
        if run is None or (events := self._chunks.add_texts(run.sample, run.texts)) is None:
            return 0
        parts += events
        return run.end

    def _read_complete_events(self, chunk: bytes, start: int, parts: list[ReplyPart]) -> bool:
        """Read a short chunk of complete events at once; return whether that was possible.

        The last event is the pattern for later runs.
        """
        events = chunk[start:] if start else chunk
        payloads = self._events.split_complete(events)
        if payloads is None:
            return False
        parts_before = len(parts)
        try:
            if (found_run := self._runs.find_in_payloads(payloads)) is not None:
                first, run = found_run
                self._chunks.feed_all(payloads[:first], parts)
                run_events = self._chunks.add_texts(run.sample, run.texts)
                parts += run_events or ()
                payloads = payloads[first if run_events is None else run.end :]
            self._chunks.feed_all(payloads, parts)
        finally:
            self.has_begun = self.has_begun or len(parts) > parts_before
        self._report()
        if payloads and len(parts) > parts_before and isinstance(parts[-1], DELTAS):
            self._runs.learn(DATA + payloads[-1])
        return True

    def _read_event(self, chunk: bytes, start: int, parts: list[ReplyPart]) -> int:
        """Read or buffer the event at `start`; return the index after the consumed bytes."""
        end = chunk.find(END_OF_EVENT, start)
        if end < 0 and self._can_wait(chunk, start):
            self._incomplete_event = chunk[start:]
            return len(chunk)
        if end < 0 or not self._runs.attempts_left or not self._events.is_between_events:
            self._read_all(chunk[start:], parts)
            return len(chunk)
        parts_before = len(parts)
        self._read_all(chunk[start : end + len(END_OF_EVENT)], parts)
        if len(parts) == parts_before:
            self._runs.skip()
        elif len(parts) == parts_before + 1 and isinstance(parts[-1], DELTAS):
            self._runs.learn(chunk[start:end])
        return end + len(END_OF_EVENT)

    def _can_wait(self, chunk: bytes, start: int) -> bool:
        """Return whether to buffer the beginning of an event until its end arrives."""
        is_short = len(chunk) - start < _LONGEST_INCOMPLETE_EVENT
        return is_short and self._events.is_between_events and b"\r" not in chunk[start:]

    def _read_all(self, events: bytes, parts: list[ReplyPart]) -> None:
        for event in self._events.feed(events):
            self._read(event.data, parts)

    def _read(self, document: str, parts: list[ReplyPart]) -> None:
        new_parts = self._chunks.feed(document)
        parts += new_parts
        self.has_begun = self.has_begun or bool(new_parts)
        self._report()

    def _report(self) -> None:
        if self._chunks.lacks_reason and self.report is not None:
            self.report()


# The probes for the ways to constrain a call to its schema, in the order of preference:
# feature that is missing if the probe fails -> name of the probe
_BINDINGS = {
    Capability.BOUND_ARGUMENTS: "required_arguments",
    Capability.STRICT_TOOLS: "strict",
    Capability.BOUND_TEXT: "schema_beside_tools",
}
HEALTH = "/health"
LITELLM_HEALTH = "/health/liveliness"  # only LiteLLM has this path, with this spelling
# `transformers serve` with a single model refuses other names: "Server is pinned to 'NAME';
# requested 'OTHER'."
_PINNED = re.compile(r"Server is pinned to '([^']+)'")
_PROBE_SECONDS = 30.0  # the timeout of a probe
# With these statuses, the engine rejects the key, the path or the load, not the probe's constraint.
_INCONCLUSIVE = (401, 403, 404, 408, 429)


class AdaptiveEngine(OpenAICompatible):
    """A vLLM, SGLang, LM Studio, llamafile, hosted or unknown engine."""

    def __init__(
        self, connection: BackendClient, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(connection, clock)
        self._counter = TokenCounter(connection)
        self._probing = asyncio.Lock()
        self.kind = ANY_ENGINE
        self._pinned = ""
        self._counts_as_gateway: bool | None = None  # unknown until a count is needed

    def lacks(self, model: str) -> Lacks:
        return {**dict.fromkeys(self.kind.lacks, ""), **super().lacks(model)}

    async def prepare(self, upstream_request: UpstreamRequest, lacks: Lacks) -> OutgoingRequest:
        if upstream_request.schema is not None:
            model = upstream_request.request.model
            # locked, so that only one of several concurrent requests sends the probes of a model
            async with self._probing:
                if upstream_request.tools and Capability.TOOL_PARSER not in lacks:
                    await self._find_binding(model)
                    lacks = {
                        **lacks,
                        **{name: "" for name in _BINDINGS if name in self.lacks(model)},
                    }
                constrains_text = RESPONSE_FORMAT in self.directives(upstream_request, lacks)
                if constrains_text and STRUCTURAL_TAG not in self.learned.honours(model):
                    await self._probe(model, STRUCTURAL_TAG)
        return await super().prepare(upstream_request, lacks)

    def directives(self, upstream_request: UpstreamRequest, lacks: Lacks) -> JsonObject:
        fields = super().directives(upstream_request, lacks)
        honours = self.learned.honours(upstream_request.request.model)
        if (
            honours.get(STRUCTURAL_TAG)
            and upstream_request.schema is not None
            and RESPONSE_FORMAT in fields
        ):
            del fields[RESPONSE_FORMAT]
            fields |= structural_tag_fields(upstream_request.schema)
        return fields

    async def _find_binding(self, model: str) -> None:
        """Probe the ways to constrain a call, in order, until the engine honors one of them.

        The results are stored, so each probe is sent once per model.
        """
        for missing, name in _BINDINGS.items():
            if missing in self.lacks(model):
                continue
            honoured = self.learned.honours(model).get(name)
            if honoured is None:
                honoured = await self._probe(model, name)
            # without an answer to the probe, the engine is assumed to honor the constraint
            if honoured is not False:
                return
            self.learned.add(model, missing, lasting=math.inf)

    async def _probe(self, model: str, name: str) -> bool | None:
        """Return whether the engine honors a constraint; None if the probe is inconclusive."""
        probe = PROBES[name]
        body = write_probe(probe, self._pinned or model)
        try:
            answer = await self._connection.fetch(probe.path, body, within=_PROBE_SECONDS)
        except BackendFailed:
            return None
        # an engine that is busy, loading or without this path shows nothing about the constraint
        if answer.status >= 500 or answer.status in _INCONCLUSIVE:
            return None
        honoured = answer.status < 300 and probe.shows(documents_in(answer.body))
        self.learned.note(model, name, is_honoured=honoured)
        result = "yes" if honoured else "no"
        logger.info("%s: probe of model %r: %s: %s", self.name, model, probe.description, result)
        return honoured

    async def count(self, upstream_request: UpstreamRequest, headers: Headers) -> int | None:
        if not (self.kind.tokenizes or await self._is_litellm()):
            return None
        lacks = self.lacks_of(upstream_request, headers)
        body = self.body_of(without_missing_features(upstream_request, lacks), lacks)
        counter = self._counter
        count = counter.count_chat if self.kind.tokenizes else counter.count_at_gateway
        return await count(body, headers)

    async def _is_litellm(self) -> bool:
        """Return whether the server is a LiteLLM proxy, which has a health path of its own.

        LiteLLM's list of models cannot be distinguished from OpenAI's.
        """
        if self._counts_as_gateway is None:
            is_unknown = self.kind is ANY_ENGINE
            self._counts_as_gateway = is_unknown and await self.probe(LITELLM_HEALTH) == 200
        return self._counts_as_gateway

    def body_of(self, upstream_request: UpstreamRequest, lacks: Lacks) -> bytes:
        fields = self.directives(upstream_request, lacks)
        if self._pinned:
            fields["model"] = self._pinned
        return encode_request(upstream_request, fields)

    async def recover(
        self, attempt: OutgoingRequest, error: BackendFailed
    ) -> OutgoingRequest | ReplyUnreadable:
        if not isinstance(error, BackendRefused) or not self._learn(attempt, error.message):
            raise await self._explain(error, attempt.upstream_request.request.model)
        return await self.prepare(attempt.upstream_request, attempt.lacks)

    async def _explain(self, error: BackendFailed, model: str) -> BackendFailed | InvalidRequest:
        """Return an error that lists the models if the refusal is about an unknown model."""
        is_missing = isinstance(error, BackendRefused) and error.status == HTTPStatus.NOT_FOUND
        if not is_missing or "model" not in str(error).lower():
            return error
        try:
            known = tuple(served.id for served in await self.models())
        except BackendFailed:
            return error
        return UnknownModel(model, known) if known and model not in known else error

    def _learn(self, attempt: OutgoingRequest, refusal: str) -> bool:
        """Learn from a refusal that the server has one pinned model, or refuses structural tags.

        Returns False if the refusal shows neither, or only facts that were already known.
        """
        model = attempt.upstream_request.request.model
        if STRUCTURAL_TAG in refusal and self.learned.honours(model).get(STRUCTURAL_TAG):
            self.learned.note(model, STRUCTURAL_TAG, is_honoured=False)
            return True
        pinned = _PINNED.search(refusal)
        if pinned is None or pinned[1] == self._pinned:
            return False
        self._pinned = pinned[1]
        return True

    async def health(self) -> Health:
        # transformers serve 5.24 fails to list its models without a cache folder, but answers chats
        state = await super().health()
        if state is Health.UNREACHABLE and await self.probe(HEALTH) == 200:
            return Health.READY
        return state

    async def count_texts(self, texts: Iterable[str], headers: Headers) -> tuple[int, ...] | None:
        return await self._counter.count_each(texts, headers) if self.kind.tokenizes else None

    async def models(self) -> tuple[BackendModel, ...]:
        try:
            served = await super().models()
        except BackendFailed:
            if not self._pinned:
                raise
            served = ()
        # `transformers serve` may fail to list its models (see `health`)
        if not served and self._pinned:
            served = (BackendModel(self._pinned, {"id": self._pinned}),)
        kind = engine_of([model.details for model in served])
        if kind is not self.kind:
            logger.info("%s: engine recognized as %s", self.name, kind.name)
        self.kind = kind
        return served

    async def describe_listed(self, served: Sequence[BackendModel], model: str) -> Description:
        if self.kind.version:
            self.learned.note_build(await self.read_text(self.kind.version, "version"))
        known = Description(
            names_of_model(served, model),
            engine=self.kind.name,
            lacks=self.name_lacks(model, is_only=len(served) == 1),
            honours={**self.learned.honours(model)},
            build=self.learned.build,
        )
        if self.kind.catalogue:
            try:
                served = models_in(await self.fetch(self.kind.catalogue)) or ()
            except BackendFailed:
                served = ()
        for entry in models_named(model, served):
            architecture = entry.details.get("arch")
            return replace(
                known,
                window=window_in(self.kind, entry.details),
                architecture=architecture if isinstance(architecture, str) else "",
            )
        return known
