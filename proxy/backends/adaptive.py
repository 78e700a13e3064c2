"""Any engine that speaks chat completions, with its known and learned limits.

If an engine refuses a field, the question is changed and sent again at once, unseen by the client.
This module knows no HTTP and does not judge what a model wrote.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy.backends.capabilities import (
    Capability,
    directives_without,
    missing_capability,
    without,
)
from proxy.backends.client import (
    BackendModel,
    Description,
)
from proxy.backends.counting import TokenCounter
from proxy.backends.engines import ANY_ENGINE, Engine, engine_of, window_in
from proxy.backends.http_backend import OutgoingQuestion, meant_by, models_in, names_among
from proxy.backends.openai_compatible import CHAT, OpenAICompatible
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Question
from proxy.errors import BackendFailed, BackendRefused

logger = logging.getLogger(__name__)

# An engine may be restarted with the missing feature; to try again costs one refusal.
_BELIEVED_SECONDS = 600.0
_MOST_MODELS = 256


class AdaptiveEngine(OpenAICompatible):
    """A vLLM, SGLang, LM Studio, llamafile, hosted or unknown engine."""

    def __init__(
        self, connection: BackendClient, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(connection, self._write_directives)
        self._counter = TokenCounter(connection)
        self._kind = ANY_ENGINE
        self._clock = clock
        # behind one address there may be many models, each with other limits
        self._learnt: dict[str, dict[Capability, float]] = {}

    @property
    def kind(self) -> Engine:
        """The recognised engine."""
        return self._kind

    async def prepare(self, question: Question) -> OutgoingQuestion:
        lacks = self._lacks(question.request.model)
        asked = without(question, lacks)
        return OutgoingQuestion(CHAT, self.body_of(asked), question, asked, lacks=lacks)

    async def recover(self, attempt: OutgoingQuestion, error: BackendFailed) -> OutgoingQuestion:
        """Ask again without what the engine refused, before any part of a reply has arrived."""
        question = attempt.question
        missing = None
        if isinstance(error, BackendRefused) and not attempt.has_begun:
            missing = missing_capability(error, question, attempt.lacks)
        if missing is None:
            raise error
        self._learn(question.request.model, missing)
        return await self.prepare(question)

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        """Tell how many tokens a question's prompt has, if the engine counts; never raises."""
        if not self._kind.tokenizes:
            return None
        return await self._counter.count_chat(self.body_of(question), headers)

    async def models(self) -> tuple[BackendModel, ...]:
        served = await super().models()
        self._recognise(served)
        return served

    async def describe(self, model: str) -> Description:
        """Tell the names and the window of a model; never raises."""
        try:
            served = await self.models()
        except BackendFailed:
            return Description((model,), is_provisional=True)
        known = Description(
            names_among(served, model),
            engine=self._kind.name,
            lacks=self._list_lacks(model, is_only=len(served) == 1),
        )
        if self._kind.catalogue:
            served = await self._catalogue(self._kind.catalogue)
        for one in meant_by(model, served):
            architecture = one.details.get("arch")
            return replace(
                known,
                window=window_in(self._kind, one.details),
                architecture=architecture if isinstance(architecture, str) else "",
            )
        return known

    async def _catalogue(self, path: str) -> tuple[BackendModel, ...]:
        try:
            return models_in(await self.fetch(path)) or ()
        except BackendFailed:
            return ()

    def _recognise(self, served: Sequence[BackendModel]) -> None:
        kind = engine_of([one.details for one in served])
        if kind is not self._kind:
            logger.info("%s is %s", self.name, kind.name)
        self._kind = kind

    def _write_directives(self, question: Question) -> JsonObject:
        return directives_without(question, self._lacks(question.request.model))

    def _lacks(self, model: str) -> frozenset[Capability]:
        now = self._clock()
        learnt = self._learnt.get(model, {})
        return self._kind.lacks | {one for one, until in learnt.items() if now < until}

    def _list_lacks(self, model: str, *, is_only: bool) -> tuple[str, ...]:
        """Name what a model's engine lacks; clients may call the only one of an engine anything."""
        called = (model, *self._learnt) if is_only else (model,)
        lacks = {one.name.lower() for name in called for one in self._lacks(name)}
        return tuple(sorted(lacks))

    def _learn(self, model: str, missing: Capability) -> None:
        if missing not in self._learnt.get(model, {}):
            what = missing.name.lower().replace("_", " ")
            logger.warning("%s has no %s for %r: %s", self.name, what, model, missing.value)
        if len(self._learnt) >= _MOST_MODELS and model not in self._learnt:
            self._learnt.clear()
        self._learnt.setdefault(model, {})[missing] = self._clock() + _BELIEVED_SECONDS
