"""What comes of a run, and what is shown of it while it goes on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias

import msgspec
from typing_extensions import TypeVar

from proxy import errors
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import UsageReported
from proxy.facts import Compacted, Fact
from proxy.guardrails.verdict import Defect
from proxy.tools.executor import Added, Round, ToolFinished, ToolStarted
from proxy.tools.run import Stop
from proxy.tools.transcript import Conversation

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


class Progress(msgspec.Struct, frozen=True):
    """How far a generation is, before there is anything to show.

    While the model reads the prompt, `share` is how much of it, from 0 to 1, where the engine
    reports that. `defect` is the reason of a retry, "" in a first attempt.
    """

    stage: Literal["reading", "generating"]
    share: float | None = None
    defect: str = ""


@dataclass(frozen=True, slots=True)
class RunResult(Generic[Output]):
    """What came of a run.

    `output` is the answer in its form, or what the terminal tool returned; None where there is
    none. `messages` are those that the run has added to the conversation. Where it was `EXHAUSTED`,
    `defect` and `objection` say what was wrong with the last reply, which was `reply` as the model
    wrote it, and how many `attempts` were made at it. Of the `required` steps those in `completed`
    were taken.
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
    objection: str = ""
    attempts: int = 0
    reply: str = ""
    required: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Whether there is an answer, or a terminal tool has succeeded."""
        return self.stop in (Stop.ANSWERED, Stop.TERMINAL)

    @property
    def iterations(self) -> int:
        """How many rounds of tools there were."""
        return len(self.rounds)

    @property
    def pending(self) -> tuple[str, ...]:
        """The required steps that were not taken."""
        return tuple(step for step in self.required if step not in self.completed)

    @property
    def metadata(self) -> JsonObject:
        """The rest in plain JSON, to be logged or kept."""
        return {
            "stop": self.stop.value,
            "iterations": self.iterations,
            "completed": [*self.completed],
            "pending": [*self.pending],
            "defect": self.defect,
            "usage": {name: getattr(self.usage, name) for name in Usage.__struct_fields__},
        }

    def raise_for_stop(self) -> "RunResult[Output]":
        """Return the result if there is an answer; raises `RunStopped` kinds of errors if not."""
        missing = f" Not called yet: {', '.join(self.pending)}." if self.pending else ""
        match self.stop:
            case Stop.ANSWERED | Stop.TERMINAL:
                return self
            case Stop.ROUNDS:
                most = f"The limit of {len(self.rounds)} rounds of tools is reached"
                raise errors.RoundsExhausted(self, f"{most} (Limits.rounds).{missing}")
            case Stop.FAILURES:
                last = [one for one in self.rounds[-1].outcomes if one.is_failure][-1]
                problem = (
                    f"Tools failed again and again; the last was {last.call.name}: {last.text}"
                )
                raise errors.ToolsFailed(self, problem, last.call.name) from last.error
            case Stop.EXHAUSTED if self.defect == Defect.STEP_MISSING.value:
                raise errors.StepsSkipped(self, f"The model skips required steps.{missing}")
            case Stop.EXHAUSTED:
                wrong = self.defect.replace("_", " ") + f" ({self.objection})" * bool(
                    self.objection
                )
                problem = f"No reply could be used after {self.attempts} attempts: {wrong}."
                raise errors.NoValidReply(self, problem, self.objection.split(":")[0])
            case Stop.CANCELLED:
                raise errors.RunCancelled(self, f"The run was cancelled.{missing}")


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is over."""

    result: RunResult[object]


RunEvent: TypeAlias = (
    Text | Thought | AskedAgain | Compacted | ToolStarted | ToolFinished | Added | Finished
)


def usage_of(reported: Iterable[UsageReported]) -> Usage:
    usages = [one.usage for one in reported]
    details = [one.get("prompt_tokens_details") for one in usages]

    def total(name: str, counts: Sequence[JsonValue] = usages) -> int:
        found = [one.get(name) for one in counts if isinstance(one, dict)]
        return sum(one for one in found if isinstance(one, int))

    cached = total("cached_tokens", details)
    return Usage(len(usages), total("prompt_tokens"), total("completion_tokens"), cached)
