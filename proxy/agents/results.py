"""The result of a run, and the events during the run."""

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

    `cached_tokens` is the number of `prompt_tokens` that came from the engine's prompt cache.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class Text(msgspec.Struct, frozen=True):
    """A part of the answer."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """A part of the reasoning, or of the text in a reply with tool calls."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """A part of the arguments of one call; `name` is the tool that it calls.

    `index` is the number of the call within the reply. The first part of a streamed call is empty.
    A call that is not streamed arrives as one part.
    """

    index: int
    name: str
    arguments: str


class AskedAgain(msgspec.Struct, frozen=True):
    """A reply was rejected because of `defect`, and a retry begins."""

    defect: str


class Progress(msgspec.Struct, frozen=True):
    """The progress of a generation before the first token of output.

    While the engine reads the prompt, `share` is the fraction of the prompt that it has read, from
    0 to 1, or None if the engine does not report the fraction. `defect` is the reason for a retry,
    "" in the first attempt.
    """

    stage: Literal["reading", "generating"]
    share: float | None = None
    defect: str = ""


@dataclass(frozen=True, slots=True)
class RunResult(Generic[Output]):
    """The result of a run.

    `output` is the answer in the requested type, or the return value of the terminal tool;
    otherwise None. `messages` are the messages that the run added to the conversation. If `stop` is
    EXHAUSTED, all `attempts` replies were rejected: `defect` and `objection` describe the problem
    of the last reply, and `reply` is its text as the model wrote it. `required` are the required
    steps of the workflow; if the model called a tool too early, also the prerequisites of that
    tool. `completed` are the tools that were called successfully.
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
        """True if there is an answer, or if a terminal tool succeeded."""
        return self.stop in (Stop.ANSWERED, Stop.TERMINAL)

    @property
    def iterations(self) -> int:
        """The number of rounds of tools."""
        return len(self.rounds)

    @property
    def pending(self) -> tuple[str, ...]:
        """The required steps that were not completed."""
        return tuple(step for step in self.required if step not in self.completed)

    @property
    def metadata(self) -> JsonObject:
        """The stop reason, steps, defect and usage as JSON, for logs and storage."""
        return {
            "stop": self.stop.value,
            "iterations": self.iterations,
            "completed": [*self.completed],
            "pending": [*self.pending],
            "defect": self.defect,
            "usage": {name: getattr(self.usage, name) for name in Usage.__struct_fields__},
        }

    def raise_for_stop(self) -> "RunResult[Output]":
        """Return the result if there is an answer; otherwise raise a subclass of `RunStopped`."""
        missing = f" Not called yet: {', '.join(self.pending)}." if self.pending else ""
        match self.stop:
            case Stop.ANSWERED | Stop.TERMINAL:
                return self
            case Stop.ROUNDS:
                problem = f"The limit of {len(self.rounds)} tool rounds was reached"
                raise errors.RoundsExhausted(self, f"{problem} (Limits.rounds).{missing}")
            case Stop.FAILURES:
                last = [outcome for outcome in self.rounds[-1].outcomes if outcome.is_failure][-1]
                cause = f"the last failure was {last.call.name}: {last.text}"
                problem = f"Tools failed in too many rounds; {cause}"
                raise errors.ToolsFailed(self, problem, last.call.name) from last.error
            case Stop.EXHAUSTED if self.defect == Defect.STEP_MISSING.value:
                before = f" before {self.objection}" if self.objection else ""
                problem = f"The model skipped required steps{before}.{missing}"
                raise errors.StepsSkipped(self, problem, self.objection)
            case Stop.EXHAUSTED:
                details = f" ({self.objection})" if self.objection else ""
                problem = (
                    f"None of {self.attempts} attempts gave a usable reply; "
                    f"last defect: {self.defect.replace('_', ' ')}{details}."
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
    # many engines omit the member `prompt_tokens_details` of OpenAI's usage
    details = [usage.get("prompt_tokens_details") for usage in usages]

    def total(name: str, counts: Sequence[JsonValue] = usages) -> int:
        numbers = [count.get(name) for count in counts if isinstance(count, dict)]
        return sum(number for number in numbers if isinstance(number, int))

    cached = total("cached_tokens", details)
    return Usage(len(usages), total("prompt_tokens"), total("completion_tokens"), cached)
