"""Ollama, by its own interface, `/api/chat`: never run here, read from its source (v0.30 to v0.34).

It has no `tool_choice` and no way to get the raw text while tools are offered: its parsers take the
calls out. So where the text is needed, tools are described in the prompt.
"""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.backends.client import (
    Description,
    Health,
    Model,
    PassthroughRequest,
    Pieces,
    ReplyEvents,
)
from proxy.backends.ollama_models import Fitting, OllamaModels, Shown, completed
from proxy.backends.ollama_refusals import is_unreadable, lacks_thinking, lacks_tools
from proxy.backends.refusals import Refusal, as_error
from proxy.backends.relaying import relayed
from proxy.backends.streamed_reply import StreamedReply
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.replies import EventSink, ReplyUnreadable
from proxy.conversation.requests import Parsing, Question
from proxy.conversation.tools import ToolUse
from proxy.dialects.ollama_chat.decode import LineDecoder, LineReader, decode_error
from proxy.dialects.ollama_chat.encode import encode_question, first_picture
from proxy.dialects.ollama_chat.fields import ModelSettings
from proxy.errors import (
    BackendFailed,
    BackendRefused,
    InvalidRequest,
    UnknownModel,
)
from proxy.guardrails.formats.hermes import HermesConvention
from proxy.guardrails.model_quirks import Template
from proxy.guardrails.tool_prompts.history import describe_in_prompt

logger = logging.getLogger(__name__)

CHAT = "/api/chat"
VERSION = "/api/version"
HEALTH_PATIENCE = 2.0

_WITH_EFFORTS = ("gptoss", "gpt-oss")
_SMALL = 8192  # tokens; the first request of most agents is longer
_THINKING = ("reasoning_effort", "think", "chat_template_kwargs")


@dataclass(frozen=True, slots=True)
class OllamaOverrides:
    """What the operator decided.

    `model` answers whatever name a client asks for, None for the name itself. `num_ctx` is the
    window in tokens, None where `fitting` finds one or Ollama decides; `keep_alive` how long a
    model stays loaded.
    """

    model: str | None = None
    num_ctx: int | None = None
    keep_alive: str | float | None = None
    fitting: Fitting | None = None


class Ollama:
    """An Ollama, started by anyone."""

    def __init__(self, connection: BackendClient, overrides: OllamaOverrides | None = None) -> None:
        self._connection = connection
        self._overrides = overrides or OllamaOverrides()
        self._models = OllamaModels(connection, self._overrides.num_ctx, self._overrides.fitting)
        self._toolless: set[str] = set()
        self._warned: set[str] = set()

    @property
    def name(self) -> str:
        """The address."""
        return self._connection.name

    async def close(self) -> None:
        """Close every connection."""
        await self._connection.close()

    async def unload(self) -> None:
        """Have the models unloaded that were loaded for us; never raises."""
        await self._models.unload()

    async def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        """Put a question and stream the reply; `headers` (lower case) travel upstream."""
        name = self._meant(question.request.model)
        shown = await self._models.show(name)
        _check_pictures(question, name, shown)
        terms = ModelSettings(
            name,
            await self._models.decide(name),
            self._overrides.keep_alive,
            thinks=shown is None or shown.can("thinking") is not False,
            has_efforts=shown is not None and shown.architecture in _WITH_EFFORTS,
        )
        asked = _in_words(question) if self._needs_words(question, name, shown) else question
        while True:
            try:
                async with aclosing(self._stream(asked, terms, headers)) as batches:
                    async for batch in batches:
                        yield batch
            except BackendRefused as refusal:
                if asked.tools and lacks_tools(refusal):
                    self._toolless.add(name)
                    asked = _in_words(question)
                    continue
                if not is_unreadable(refusal):
                    raise await self._meaning(refusal, question, name) from refusal
                yield (ReplyUnreadable(refusal.message),)
            return

    async def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        """Pass a request on to Ollama's own OpenAI endpoint, which has what this needs."""
        name = self._meant(passage.model)
        meant = replace(passage, fields={**passage.fields, "model": json.dump(name)})
        async with aclosing(relayed(self._connection, meant, headers)) as pieces:
            async for piece in pieces:
                yield piece

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        """Tell nothing: Ollama counts no tokens."""
        return None

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        """Tell nothing: Ollama counts no tokens."""
        return None

    async def models(self) -> tuple[Model, ...]:
        """List the models that were pulled, or the only one that is used."""
        listed = await self._models.listed()
        chosen = self._overrides.model
        if chosen is None:
            return listed
        return tuple(one for one in listed if one.id == chosen) or (Model(chosen, {}),)

    async def describe(self, model: str) -> Description:
        """Tell what Ollama knows of a model, without loading it; never raises.

        Its template is left out: in Go's language it tells nobody here whether it has tools, and
        its capabilities do. The window of a model that is not loaded may be unknown for a moment.
        """
        name = model if self._overrides.model is None else self._overrides.model
        shown = await self._models.show(name, afresh=True)
        window = await self._models.window(name)
        if shown is None:
            identity = completed(name)
            return Description((name,), window=window, is_provisional=True, identity=identity)
        self._warn(name, window)
        return Description(
            shown.names,
            shown.architecture,
            window=window,
            is_provisional=window is None,
            takes_tools=shown.can("tools"),
            identity=completed(name),
            engine="Ollama",
        )

    async def health(self) -> Health:
        """Return whether it can answer now; never raises."""
        try:
            answer = await self._connection.get(VERSION, patience=HEALTH_PATIENCE)
        except BackendFailed:
            return Health.UNREACHABLE
        return Health.READY if answer.status == 200 else Health.UNREACHABLE

    def _meant(self, model: str) -> str:
        name = model if self._overrides.model is None else self._overrides.model
        if not name:
            raise InvalidRequest("Name a model that was pulled; 'ollama list' shows them.", "model")
        return name

    def _needs_words(self, question: Question, name: str, shown: Shown | None) -> bool:
        """Return whether the tools have to be described in the prompt."""
        is_toolless = name in self._toolless or (shown is not None and shown.can("tools") is False)
        is_raw = question.parsing is Parsing.OURS and not _has_form(question)
        return is_toolless or is_raw

    async def _stream(
        self, question: Question, terms: ModelSettings, headers: dict[str, str]
    ) -> ReplyEvents:
        body = encode_question(question, terms)
        # while a model writes a call, Ollama sends nothing at all
        async with self._connection.post(CHAT, body, headers, may_pause=True) as answer:
            if answer.status != 200:
                document = await answer.whole()
                error = decode_error(document.body)
                refusal = Refusal(document.status, error, document.retry_after)
                raise as_error(self.name, refusal)
            reply = StreamedReply(self._connection, LineDecoder(), LineReader(), as_error)
            async with aclosing(reply.batches(answer)) as batches:
                async for batch in batches:
                    yield batch

    async def _meaning(self, refusal: BackendRefused, question: Question, name: str) -> Exception:
        """Return what a refusal means for the client."""
        if lacks_thinking(refusal):
            param = next((one for one in _THINKING if one in question.request.fields), None)
            return InvalidRequest(f"{refusal.message}. Leave it out, or take another model.", param)
        if refusal.status != 404:
            return refusal
        try:
            known = tuple(one.id for one in await self._models.listed())
        except BackendFailed:
            return refusal
        return UnknownModel(name, known, f"Pull it first: ollama pull {name}")

    def _warn(self, name: str, window: int | None) -> None:
        """Say once that a window is too small for most agents."""
        if window is not None and window < _SMALL and name not in self._warned:
            self._warned.add(name)
            advice = "agents need more, set ollama.context_tokens"
            logger.warning("%s has a window of %d tokens at Ollama: %s", name, window, advice)


def _check_pictures(question: Question, name: str, shown: Shown | None) -> None:
    """Refuse pictures for a model that has no eyes: Ollama would leave them out."""
    is_blind = shown is not None and shown.can("vision") is False
    if is_blind and (param := first_picture(question.messages)) is not None:
        problem = f"The model {name!r} takes no pictures. Choose one that does."
        raise InvalidRequest(problem, param)


def _has_form(question: Question) -> bool:
    """Return whether the whole reply is bound to a form, so that no parser finds a call in it."""
    if question.schema is not None:
        return True
    return "response_format" in question.request.fields.keys() - question.omits


def _in_words(question: Question) -> Question:
    """Describe the tools in the prompt, in the syntax that is read most widely."""
    if not question.tools or question.tool_choice is ToolUse.NONE:
        return question
    described = describe_in_prompt(
        question.messages,
        question.tools,
        None,
        convention=HermesConvention(),
        template=Template(),
    )
    return replace(question, messages=described, tools=())
