"""Separate guardrails, for agent loops that need only some of them; `foreign` combines them all.

This module has no I/O and no clock: it receives replies or calls, and returns messages for the
model.
"""

from collections.abc import Iterable, Sequence
from uuid import uuid4

import msgspec

from proxy.agents.foreign import Guardrails, ToolLike, plain
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
from proxy.tools.function import expect_positive
from proxy.tools.toolset import Toolset
from proxy.tools.transcript import object_of


class Checked(msgspec.Struct, frozen=True):
    """A judged reply: its text and the calls to execute, or a `defect`.

    With a defect, `nudge` contains messages to append for a retry. After the retry, they may be
    removed from the history.
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
    """Judges replies: rescues calls from text, checks and repairs names and arguments.

    The parameters have the same meaning as in `Guardrails`.
    """

    def __init__(
        self,
        tools: Toolset | Sequence[ToolLike],
        *,
        model: str = "",
        template: str = "",
        workflow: Workflow = NO_RULES,
        rescue: bool = True,
    ) -> None:
        if not tools:
            raise ValueError("tools is empty: pass at least one tool")
        self._guard = Guardrails(
            tools=tools, model=model, template=template, workflow=workflow, rescue=rescue
        )

    def check(self, reply: object, messages: Iterable[object] = ()) -> Checked:
        """Judge a completion (an object of an SDK or a dictionary), or the text of a reply.

        `messages` is the history before the reply. It is needed to detect repeated calls, missing
        steps and quoted calls. Raises ValueError if the reply is an error.
        """
        if isinstance(reply, str):
            message: JsonObject = {"role": "assistant", "content": reply}
            reply = {"choices": [{"index": 0, "message": message, "finish_reason": STOP}]}
        history = [*messages] or [{"role": "user", "content": ""}]  # a request needs a message
        offer = self._guard.plan(history).offer
        assert offer is not None  # noqa: S101 - `tools` is not empty
        # a completion is decoded like a stream with a single chunk
        reader, reason, decoder = ReplyReader(offer), STOP, ChunkDecoder()
        for part in (*decoder.feed(json.dump_text(plain(reply))), *decoder.finish()):
            if isinstance(part, StreamedError):
                problem = "the reply is an error, not a completion"
                raise ValueError(f"{problem}: {part.error.get('message')}")
            if isinstance(part, ReplyFinished):
                reason = part.reason
            reader.read(part)
        _, parsed = reader.finish(reason, is_unseen=True)
        verdict = review(parsed, offer, self._new_id)
        if isinstance(verdict, Accepted):
            return Checked(verdict.text, verdict.calls, facts=verdict.facts)
        nudge = tuple(map(object_of, verdict.nudge))
        return Checked(parsed.text, (), verdict.defect.value, nudge, verdict.facts)

    def _new_id(self) -> str:
        return f"call_{uuid4().hex[:24]}"


class StepEnforcer:
    """Enforces the order of a workflow: `record` finished calls, and `check` new calls.

    `is_exhausted` becomes True when `attempts` replies in a row contained premature calls.
    """

    def __init__(self, workflow: Workflow, *, attempts: int = 3) -> None:
        for rule, problem in contradictions(workflow):
            raise ValueError(f"workflow.{rule}: {problem}")
        expect_positive("attempts", attempts)
        self._workflow = workflow
        self._attempts = attempts
        self._finished: list[CompletedCall] = []
        self._objections = 0

    @property
    def completed(self) -> tuple[str, ...]:
        """The tools that were called successfully, in the order of their first calls."""
        return tuple(dict.fromkeys(call.name for call in self._finished if not call.has_failed))

    @property
    def pending(self) -> tuple[str, ...]:
        """The required steps that were not called yet."""
        return missing_steps(self._workflow, self._finished)

    @property
    def is_exhausted(self) -> bool:
        return self._objections >= self._attempts

    @property
    def summary_hint(self) -> str:
        """A text about the state of the steps, for a summary that replaces earlier messages."""
        text = f"Completed steps: {', '.join(self.completed) or 'none'}."
        return f"{text} Still required: {', '.join(self.pending)}." if self.pending else text

    def reset(self) -> None:
        """Reset the count of premature replies; the recorded calls remain."""
        self._objections = 0

    def record(self, call: ToolCall, *, failed: bool = False) -> None:
        """Store a finished call; a failed call does not count as a step."""
        self._finished.append(CompletedCall(call.name, parse_arguments(call.arguments), "", failed))

    def check(self, calls: Sequence[ToolCall]) -> Checked:
        """Return the calls if all of them are allowed now, otherwise a defect and a nudge."""
        for call in calls:
            arguments = parse_arguments(call.arguments) or {}
            steps = steps_before(call.name, arguments, self._workflow, self._finished)
            if steps:
                text = describe_missing_steps(call.name, steps, self._objections)
                self._objections += 1
                nudge = (object_of(user_message(text)),)
                return Checked("", (), Defect.STEP_MISSING.value, nudge)
        self._objections = 0
        return Checked("", tuple(calls))


class ErrorTracker:
    """Counts failures in a row: of rejected replies, and of tool rounds with a failed call."""

    def __init__(self, *, rejected: int = 3, failed_rounds: int = 3) -> None:
        self._most = (rejected, failed_rounds)
        self.rejected = 0
        self.failed_rounds = 0

    def take(self, checked: Checked) -> None:
        self.rejected = 0 if checked.is_fit else self.rejected + 1

    def finish_round(self, outcomes: Iterable[Outcome]) -> None:
        """Count a failed round; ignores outcomes with `counted=False`, such as an empty search."""
        has_failed = any(outcome.is_failure and outcome.counted for outcome in outcomes)
        self.failed_rounds = self.failed_rounds + 1 if has_failed else 0

    @property
    def is_exhausted(self) -> bool:
        return self.rejected >= self._most[0] or self.failed_rounds >= self._most[1]
