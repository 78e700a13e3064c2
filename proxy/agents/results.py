"""The result of a run, and its events while it runs."""

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
    """The tokens of all generations of a run, including retries, as reported by the backend.

    `cached_tokens` are the part of prompts that the engine had cached.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class Text(msgspec.Struct, frozen=True):
    """A part of the answer."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """A part of the reasoning, or text next to tool calls."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """A part of the arguments of a call that the model is writing, after its tool's `name`.

    `index` is the number of the call in its reply.
    """

    index: int
    name: str
    arguments: str


class AskedAgain(msgspec.Struct, frozen=True):
    """A reply was rejected because of this `defect`, and the model is prompted again."""

    defect: str


class Progress(msgspec.Struct, frozen=True):
    """The progress of a generation before there is anything to show.

    While the engine reads the prompt, `share` is the finished part, from 0 to 1, if it reports
    that. `defect` is the reason of a retry, "" in a first attempt.
    """

    stage: Literal["reading", "generating"]
    share: float | None = None
    defect: str = ""


@dataclass(frozen=True, slots=True)
class RunResult(Generic[Output]):
    """The result of a run.

    `output` is the answer in the requested type, or the return value of the terminal tool, else
    None. `messages` are those that the run added to the conversation. If it was `EXHAUSTED` after
    so many `attempts`, `defect` and `objection` describe the problem of the last reply, and `reply`
    is its text as the model wrote it. Of the `required` steps, which include the prerequisites of a
    call that came too early, `completed` ones were taken.
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
        """The number of rounds of tools."""
        return len(self.rounds)

    @property
    def pending(self) -> tuple[str, ...]:
        """The required steps that were not taken."""
        return tuple(step for step in self.required if step not in self.completed)

    @property
    def metadata(self) -> JsonObject:
        """The other fields as plain JSON, for logs and storage."""
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
                most = f"The limit of {len(self.rounds)} tool rounds was reached"
                raise errors.RoundsExhausted(self, f"{most} (Limits.rounds).{missing}")
            case Stop.FAILURES:
                last = [outcome for outcome in self.rounds[-1].outcomes if outcome.is_failure][-1]
                cause = f"the last failure was {last.call.name}: {last.text}"
                problem = f"Tools failed in too many rounds; {cause}"
                raise errors.ToolsFailed(self, problem, last.call.name) from last.error
            case Stop.EXHAUSTED if self.defect == Defect.STEP_MISSING.value:
                early = f" before {self.objection}" if self.objection else ""
                problem = f"The model skipped required steps{early}.{missing}"
                raise errors.StepsSkipped(self, problem, self.objection)
            case Stop.EXHAUSTED:
                wrong = self.defect.replace("_", " ") + f" ({self.objection})" * bool(
                    self.objection
                )
                problem = (
                    f"None of {self.attempts} attempts gave a usable reply; last defect: {wrong}."
                )
                raise errors.NoValidReply(self, problem, self.objection.split(":")[0])
            case Stop.CANCELLED:
                raise errors.RunCancelled(self, f"The run was canceled.{missing}")


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is over."""

    result: RunResult[object]


RunEvent: TypeAlias = (
    Text
    | Thought
    | CallDelta
    | AskedAgain
    | Compacted
    | ToolStarted
    | ToolFinished
    | Added
    | Finished
)


def usage_of(reported: Iterable[UsageReported]) -> Usage:
    usages = [event.usage for event in reported]
    # OpenAI's member for cached tokens, which many engines omit
    details = [usage.get("prompt_tokens_details") for usage in usages]

    def total(name: str, counts: Sequence[JsonValue] = usages) -> int:
        numbers = [count.get(name) for count in counts if isinstance(count, dict)]
        return sum(number for number in numbers if isinstance(number, int))

    cached = total("cached_tokens", details)
    return Usage(len(usages), total("prompt_tokens"), total("completion_tokens"), cached)
