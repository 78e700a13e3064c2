"""Sends a request to the fallback model after all attempts of the requested model were rejected.

    requested model    attempts 1 to 3; then its slot is released
    fallback model     is loaded, unless other requests use the memory; then one attempt in a slot

The replies of both models belong to one turn (`inference.turn`), which decides what is sent to the
client. This module is imported only for models with a fallback.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from proxy.api.answer import Answer, slot_share
from proxy.backends.client import ReplyEvents
from proxy.conversation import json
from proxy.errors import BackendUnavailable, ContextOverflow, TemperError
from proxy.facts import FellBack
from proxy.inference.driver import run_turn
from proxy.inference.turn import Turn
from proxy.observability.record import Load
from proxy.serving.admission import Priority
from proxy.serving.fallback import Fallback
from proxy.serving.request_preparation import Planned, RequestPreparation
from proxy.serving.services import Service

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FallbackAttempt:
    """Sends a turn to the fallback after its last attempt was rejected.

    The wait for the model and for a slot is limited to `wait_seconds`. `load_of` returns the
    request counts of a service. `workers` is the number of processes that share a service's slots.
    """

    fallback: Fallback
    preparation: RequestPreparation
    load_of: Callable[[str], Load | None]
    wait_seconds: float
    workers: int = 1

    @property
    def model(self) -> str:
        return self.fallback.model

    async def events(self, answer: Answer) -> ReplyEvents:
        """Send the request to the fallback, and yield the remaining events of the turn of `answer`.

        The caller must have released the slot of the requested model.
        """
        async with AsyncExitStack() as stack:
            stack.callback(answer.live.release)
            planned, problem = None, "withheld"
            if self.fallback.take():
                try:
                    planned = await self._prepare(answer, stack)
                except TemperError as error:
                    problem = "too_long" if isinstance(error, ContextOverflow) else "unavailable"
                    logger.warning(
                        "The request was not sent to the fallback %s: %s", self.model, error
                    )
            if planned is None:
                yield answer.turn.settle(problem)
                return
            async with aclosing(self._run(answer, planned)) as batches:
                async for batch in batches:
                    yield batch

    async def _run(self, answer: Answer, planned: Planned) -> ReplyEvents:
        service, known = planned.service, planned.known
        learning = service.fitting.learning(known.model, known.window)
        before, answer.learning = answer.learning, learning
        answer.reasoning = None  # not stored, because later requests go to the requested model
        attempt = partial(answer.live.attempt, model=self.model)
        turn, backend = answer.turn, service.pin()
        batches = run_turn(turn, backend, planned.headers, attempt, policies=(learning,))
        try:
            async with aclosing(batches):
                async for batch in batches:
                    if FellBack(self.model, "answered") in turn.facts[-1:]:
                        answer.fallback_backend = backend.name
                    yield batch
        finally:
            answer.learning = before

    async def _prepare(self, answer: Answer, stack: AsyncExitStack) -> Planned:
        """Wait for the model, fit the request into its window, and wait for a slot.

        `stack` releases the model and the slot. Raises a `TemperError` if one of them fails.
        """
        received, live = answer.received, answer.live
        service = self.preparation.services.find(self.model)
        if service.fleet is not None and not service.fleet.can_start_now(service.name):
            problem = "has failed, or its memory is used by other requests"
            raise BackendUnavailable(service.name, problem)
        live.release()  # the slot of the requested model
        live.wait(self.load_of(service.title))
        try:
            async with asyncio.timeout(self.wait_seconds):
                claim = stack.enter_context(service.lease(received.queue_key))
                if claim is not None:
                    await claim.wait_until_granted()
                planned = await self._plan(answer.latest, received.upstream, service)
                turn = await self._fit(planned, answer.turn)
                slot = service.admission.slot(
                    received.queue_key, Priority(live.priority), live.number
                )
                await stack.enter_async_context(slot)
        except TimeoutError as error:
            problem = f"was not available within {self.wait_seconds:g} s"
            raise BackendUnavailable(service.name, problem) from error
        answer.turn.hand_over(turn)
        live.admit(slot_share(turn, planned.known))
        return planned

    async def _plan(self, latest: Planned, upstream: dict[str, str], service: Service) -> Planned:
        """Plan the client's request for the fallback, with the profile of that model."""
        resolved = latest.resolved
        fields = {**resolved.request.fields, "model": json.dump(self.model)}
        request = replace(resolved.request, model=self.model, fields=fields)
        request = await service.choose_model(service.address_to_backend(request))
        other = replace(resolved, request=request, service=service)
        return await self.preparation.plan(other, {**upstream})

    async def _fit(self, planned: Planned, first: Turn) -> Turn:
        planned.service.resize(planned.known, self.workers)
        return await self.preparation.fit(planned, lambda: False, is_last=first.is_final)
