"""Any engine that speaks chat completions, with its known and learned limits.

If an engine refuses a field, the question is changed and sent again at once, unseen by the client.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy.backends.capabilities import Lacks, without
from proxy.backends.client import BackendModel, Description, Headers
from proxy.backends.counting import TokenCounter
from proxy.backends.engines import ANY_ENGINE, engine_of, window_in
from proxy.backends.http_backend import meant_by, models_in, names_among
from proxy.backends.openai_compatible import OpenAICompatible
from proxy.backends.transport import BackendClient
from proxy.conversation.requests import Question
from proxy.errors import BackendFailed

logger = logging.getLogger(__name__)


class AdaptiveEngine(OpenAICompatible):
    """A vLLM, SGLang, LM Studio, llamafile, hosted or unknown engine."""

    def __init__(
        self, connection: BackendClient, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(connection, clock)
        self._counter = TokenCounter(connection)
        self.kind = ANY_ENGINE

    def lacks(self, model: str) -> Lacks:
        return {**dict.fromkeys(self.kind.lacks, ""), **super().lacks(model)}

    async def count(self, question: Question, headers: Headers) -> int | None:
        if not self.kind.tokenizes:
            return None
        lacks = self.lacks(question.request.model)
        body = self.body_of(without(question, lacks), lacks)
        return await self._counter.count_chat(body, headers)

    async def models(self) -> tuple[BackendModel, ...]:
        served = await super().models()
        kind = engine_of([one.details for one in served])
        if kind is not self.kind:
            logger.info("%s is %s", self.name, kind.name)
        self.kind = kind
        return served

    async def describe_among(self, served: Sequence[BackendModel], model: str) -> Description:
        if self.kind.version:
            self.learnt.heed_build(await self.read_text(self.kind.version, "version"))
        known = Description(
            names_among(served, model),
            engine=self.kind.name,
            lacks=self.name_lacks(model, is_only=len(served) == 1),
        )
        if self.kind.catalogue:
            try:
                served = models_in(await self.fetch(self.kind.catalogue)) or ()
            except BackendFailed:
                served = ()
        for one in meant_by(model, served):
            architecture = one.details.get("arch")
            return replace(
                known,
                window=window_in(self.kind, one.details),
                architecture=architecture if isinstance(architecture, str) else "",
            )
        return known
