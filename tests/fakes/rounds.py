"""Drives a run of tool rounds by hand: replies of the model, and results of tools."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, user_message
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCalled,
    UsageReported,
)
from proxy.conversation.tools import NamedTool, ToolCall, ToolChoice, ToolUse
from proxy.conversation.workflows import Workflow
from proxy.tools.executor import Outcome, Status
from proxy.tools.run import Ask, Execute, Run, RunConfig
from tests.fakes.playbook import make_request, make_tool

ADD = make_tool("add", {"type": "object"})
SHOW = make_tool("show", {"type": "object"})
OPEN = make_tool("open_file", {"type": "object"})
CONFIG = RunConfig(frozenset(("add", "show")))


def called(number: int, name: str = "add") -> ToolCall:
    return ToolCall(f"call_{number}", name, "{}")


def reply(
    text: str = "", *calls: ToolCall, reasoning: str = "", reason: str | None = None
) -> list[ReplyEvent]:
    """Return the events of a reply that sends everything at its end."""
    usage: JsonObject = {"total_tokens": len(text)}
    return [
        ReplyStarted("id"),
        *([ReasoningDelta(reasoning)] if reasoning else []),
        *([TextDelta(text)] if text else []),
        *(ToolCalled(index, call) for index, call in enumerate(calls)),
        UsageReported(usage),
        ReplyFinished(reason or ("tool_calls" if calls else "stop")),
    ]


def done(call: ToolCall, text: str = "3", status: Status = Status.DONE) -> Outcome:
    return Outcome(call, text, status)


@dataclass
class RunBook:
    """A run, and the events that its client has received."""

    run: Run
    seen: list[ReplyEvent] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        config: RunConfig = CONFIG,
        *messages: Message,
        choice: ToolChoice = ToolUse.AUTO,
        workflow: Workflow | None = None,
    ) -> "RunBook":
        """Start a run with two tools of the operator and one of the client."""
        conversation = messages or (user_message("What is 1 + 2?"),)
        request = make_request(*conversation, tools=(OPEN, ADD, SHOW), choice=choice)
        if choice is not ToolUse.AUTO:
            named = choice.name if isinstance(choice, NamedTool) else choice.value
            fields = {**request.fields, "tool_choice": f'"{named}"'.encode()}
            request = replace(request, fields=fields)
        return cls(Run(request, config if workflow is None else replace(config, workflow=workflow)))

    def ask(self) -> Ask:
        step = self.run.next_step()
        assert isinstance(step, Ask)
        return step

    def receive(self, events: Sequence[ReplyEvent], defect: str | None = None) -> list[ReplyEvent]:
        shown = [*self.run.receive(events, defect=defect)]
        self.seen += shown
        return shown

    def execute(self, *texts: str, status: Status = Status.DONE) -> Execute:
        """Return results for the calls of a reply: a text for each, or the same text for all."""
        step = self.run.next_step()
        assert isinstance(step, Execute)
        given = texts if len(texts) == len(step.calls) else (texts or ("3",)) * len(step.calls)
        outcomes = [done(*pair, status) for pair in zip(step.calls, given, strict=True)]
        self.seen += self.run.finish_round(outcomes)
        return step

    def round(self, *calls: ToolCall, status: Status = Status.DONE) -> None:
        """Play one round of tools."""
        self.ask()
        self.receive(reply("", *(calls or (called(len(self.run.rounds)),))))
        self.execute(status=status)

    @property
    def content(self) -> str:
        return "".join(event.text for event in self.seen if isinstance(event, TextDelta))

    @property
    def roles(self) -> list[str]:
        return [message.role for message in self.run.added]
