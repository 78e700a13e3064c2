"""The guardrails one by one, for loops that want only some of them; `foreign` has them together.

No I/O, no clocks: a reply or calls go in, and out comes what to tell the model.
"""

from collections.abc import Iterable, Sequence
from uuid import uuid4

import msgspec

from proxy.agents.foreign import Guardrails, Offered, plain
from proxy.conversation import json
from proxy.conversation.endings import STOP
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import user_message
from proxy.conversation.replies import ReplyFinished
from proxy.conversation.tools import ToolCall
from proxy.conversation.workflows import NO_RULES, Workflow, contradictions
from proxy.dialects.openai_chat.replies import ChunkDecoder, StreamedError
from proxy.facts import Fact
from proxy.guardrails.nudges import describe_missing_steps
from proxy.guardrails.reading import ReplyReader
from proxy.guardrails.review import review
from proxy.guardrails.steps import missing_steps, steps_before
from proxy.guardrails.transcript import CompletedCall, parse_arguments
from proxy.guardrails.verdict import Accepted, Defect
from proxy.tools.executor import Outcome
from proxy.tools.toolset import Toolset
from proxy.tools.transcript import object_of


class Checked(msgspec.Struct, frozen=True):
    """A reply as it was judged: its text and calls to be run, or a `defect`.

    Then `nudge` holds the messages with which the model is to be asked again; they need not stay in
    the history.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    defect: str = ""
    nudge: tuple[JsonObject, ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def is_fit(self) -> bool:
        return not self.defect


class ReplyValidator:
    """Reads replies: leaked calls are rescued, names and arguments checked and repaired.

    `tools`, `model` and `template` are those of `Guardrails`.
    """

    def __init__(
        self,
        tools: Toolset | Sequence[Offered],
        *,
        model: str = "",
        template: str = "",
        workflow: Workflow = NO_RULES,
    ) -> None:
        if not tools:
            raise ValueError("there are no tools, and so nothing to validate")
        self._guard = Guardrails(tools=tools, model=model, template=template, workflow=workflow)

    def check(self, reply: object, messages: Iterable[object] = ()) -> Checked:
        """Judge a completion, an SDK's or a dictionary, or a text alone.

        With the `messages` that it answers loops, steps and quotations are seen as well. Raises
        ValueError for what is no completion.
        """
        if isinstance(reply, str):
            message: JsonObject = {"role": "assistant", "content": reply}
            reply = {"choices": [{"index": 0, "message": message, "finish_reason": STOP}]}
        history = [*messages] or [{"role": "user", "content": ""}]
        offer = self._guard.plan(history).offer
        assert offer is not None  # noqa: S101 - there are tools
        reader, reason, decoder = ReplyReader(offer), STOP, ChunkDecoder()
        for part in (*decoder.feed(json.dump_text(plain(reply))), *decoder.finish()):
            if isinstance(part, StreamedError):
                raise ValueError(f"no completion, but an error: {part.error.get('message')}")
            if isinstance(part, ReplyFinished):
                reason = part.reason
            reader.read(part)
        _, read = reader.finish(reason, is_unseen=True)
        verdict = review(read, offer, self._new_id)
        if isinstance(verdict, Accepted):
            return Checked(verdict.text, verdict.calls, facts=verdict.facts)
        nudge = tuple(map(object_of, verdict.nudge))
        return Checked(read.text, (), verdict.defect.value, nudge, verdict.facts)

    def _new_id(self) -> str:
        return f"call_{uuid4().hex[:24]}"


class StepEnforcer:
    """Keeps the order of a workflow: tell it what ran, and ask it about what is about to."""

    def __init__(self, workflow: Workflow) -> None:
        for place, problem in contradictions(workflow):
            raise ValueError(f"workflow.{place}: {problem}")
        self._workflow = workflow
        self._done: list[CompletedCall] = []
        self._objections = 0

    @property
    def completed(self) -> tuple[str, ...]:
        """The tools that were called with success, in the order of their first calls."""
        return tuple(dict.fromkeys(one.name for one in self._done if not one.has_failed))

    @property
    def pending(self) -> tuple[str, ...]:
        """The required steps that were not taken yet."""
        return missing_steps(self._workflow, self._done)

    def record(self, call: ToolCall, *, failed: bool = False) -> None:
        """Note that a call was run; one that failed is no step."""
        self._done.append(CompletedCall(call.name, parse_arguments(call.arguments), "", failed))

    def check(self, calls: Sequence[ToolCall]) -> Checked:
        """Return the calls if all may be made now, or what to tell the model instead."""
        for call in calls:
            arguments = parse_arguments(call.arguments) or {}
            steps = steps_before(call.name, arguments, self._workflow, self._done)
            if steps:
                words = describe_missing_steps(call.name, steps, self._objections)
                self._objections += 1
                nudge = (object_of(user_message(words)),)
                return Checked("", (), Defect.STEP_MISSING.value, nudge)
        self._objections = 0
        return Checked("", tuple(calls))


class ErrorTracker:
    """Counts what goes wrong in a row: replies that were rejected, and rounds with a failure."""

    def __init__(self, *, rejected: int = 3, failed_rounds: int = 3) -> None:
        self._most = (rejected, failed_rounds)
        self.rejected = 0
        self.failed_rounds = 0

    def take(self, checked: Checked) -> None:
        self.rejected = 0 if checked.is_fit else self.rejected + 1

    def finish_round(self, outcomes: Iterable[Outcome]) -> None:
        """Note what came of the calls of a reply; what a tool did not find is no failure."""
        has_failed = any(one.is_failure and one.counted for one in outcomes)
        self.failed_rounds = self.failed_rounds + 1 if has_failed else 0

    @property
    def is_exhausted(self) -> bool:
        return self.rejected >= self._most[0] or self.failed_rounds >= self._most[1]
