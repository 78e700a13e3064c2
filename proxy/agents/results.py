"""What comes of a run, and what is shown of it while it goes on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias

import msgspec
from typing_extensions import TypeVar

from proxy import errors
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import UsageReported
from proxy.facts import Fact
from proxy.guardrails.verdict import Defect
from proxy.tool_rounds.executor import Added, Round, ToolFinished, ToolStarted
from proxy.tool_rounds.terms import Stop
from proxy.tool_rounds.transcript import Conversation

Output = TypeVar("Output", default=str)


class Usage(msgspec.Struct, frozen=True):
    """What the generations of a run cost in tokens, retries too, as far as the backend told.

    `cached_tokens` are those of prompts that it had read before.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class Text(msgspec.Struct, frozen=True):
    """More of what the model says."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """More of what the model thinks, or says beside its calls."""

    text: str


class AskedAgain(msgspec.Struct, frozen=True):
    """A reply was not fit to be used, because of this `defect`, and the model is asked again."""

    defect: str


@dataclass(frozen=True, slots=True)
class RunResult(Generic[Output]):
    """What came of a run.

    `output` is the answer in its form, or what the terminal tool returned; None where there is
    none. `messages` are those that the run has added to the conversation. `defect` says what was
    wrong with the last reply of a run that was `EXHAUSTED`.
    """

    stop: Stop
    output: Output | None
    text: str
    rounds: tuple[Round, ...]
    messages: tuple[JsonObject, ...]
    conversation: Conversation
    usage: Usage = field(default_factory=Usage)
    facts: tuple[Fact, ...] = ()
    defect: str = ""

    def raise_for_stop(self) -> "RunResult[Output]":
        """Return the result if there is an answer; raises `RunStopped` kinds of errors if not."""
        match self.stop:
            case Stop.ANSWERED | Stop.TERMINAL:
                return self
            case Stop.ROUNDS:
                raise errors.RoundsExhausted(self, f"It took {len(self.rounds)} rounds of tools.")
            case Stop.FAILURES:
                last = [one.text for one in self.rounds[-1].outcomes if one.is_failure][-1]
                raise errors.ToolsFailed(self, f"Tools failed again and again: {last}")
            case Stop.EXHAUSTED if self.defect == Defect.STEP_MISSING.value:
                raise errors.StepsSkipped(self, "The model would not take a step that is required.")
            case Stop.EXHAUSTED:
                raise errors.NoValidReply(
                    self, f"No reply could be used; the last one: {self.defect}"
                )
            case Stop.CANCELLED:
                raise errors.RunCancelled(self, "The run was cancelled.")


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is over."""

    result: RunResult[object]


RunEvent: TypeAlias = Text | Thought | AskedAgain | ToolStarted | ToolFinished | Added | Finished


def usage_of(reported: Iterable[UsageReported]) -> Usage:
    usages = [one.usage for one in reported]
    details = [one.get("prompt_tokens_details") for one in usages]

    def total(name: str, counts: Sequence[JsonValue] = usages) -> int:
        found = [one.get(name) for one in counts if isinstance(one, dict)]
        return sum(one for one in found if isinstance(one, int))

    cached = total("cached_tokens", details)
    return Usage(len(usages), total("prompt_tokens"), total("completion_tokens"), cached)
