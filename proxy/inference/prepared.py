"""A prepared request: what is the same for every attempt, and how one attempt is worded."""

import msgspec
from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Messages
from proxy.conversation.requests import Question, RefusalCount, Request
from proxy.conversation.tools import Tool, ToolChoice, ToolUse
from proxy.facts import Compacted, Fact
from proxy.guardrails.close_out import CloseOut
from proxy.guardrails.history_repair.history import fit_roles
from proxy.guardrails.model_quirks import GENERIC, Quirks, Template
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.reasoning import ReasoningSplitter, ThoughtHabit
from proxy.guardrails.retry import MOST_ATTEMPTS, Attempt, AttemptKind
from proxy.guardrails.tool_prompts.fragments import Convention
from proxy.guardrails.tool_prompts.history import describe_in_prompt

_TOOL_FIELDS = frozenset(("tools", "tool_choice", "parallel_tool_calls"))


class PromptFormat(msgspec.Struct, frozen=True):
    """The client's own `tools`, and `respond` if it is offered.

    With a `convention`, the prompt describes the tools, their calls and their results; otherwise
    the chat template does. Neighbouring messages of one role are merged if the template demands
    turns.
    """

    tools: tuple[Tool, ...]
    respond: Tool | None = None
    convention: Convention | None = None
    template: Template = msgspec.field(default_factory=Template)

    @property
    def offered(self) -> tuple[Tool, ...]:
        return self.tools if self.respond is None else (*self.tools, self.respond)

    def question(
        self,
        request: Request,
        messages: Messages,
        choice: ToolChoice = ToolUse.AUTO,
        omits: frozenset[str] = frozenset(),
    ) -> Question:
        """Build a question from messages; fields that were moved into them are in `omits`."""
        if self.convention is None:
            if self.template.alternates:
                messages = fit_roles(messages, self.template, [])
            return Question(request, messages, self.offered, choice, omits=omits)
        described = describe_in_prompt(
            messages, self.tools, self.respond, convention=self.convention, template=self.template
        )
        stops = self.convention.stops if self.tools else ()
        return Question(request, described, (), choice, omits=omits | _TOOL_FIELDS, stops=stops)


ANSWER_FORM = "response_format"


class PreparedTurn(msgspec.Struct, frozen=True):
    """What is really sent, on which terms, and what was done to the request.

    `prompt_format` says how messages and tools are written, `quirks` what else the model needs.
    Without an `offer` there is nothing to guard. In observe mode nothing is guarded either, only
    judged for the record. Questions leave out the fields in `omits`. With `streams_calls` the
    client sees calls while they are written, with `shows_pieces` pieces as they came. At most
    `attempts` attempts are made, none of a kind in `left_out`. How an exhausted ladder or a text
    answer ends is as `Policy` says.
    """

    request: Request
    messages: Messages
    prompt_format: PromptFormat
    offer: OfferedTools | None
    tool_choice: ToolChoice = ToolUse.AUTO
    facts: tuple[Fact, ...] = ()
    omits: frozenset[str] = frozenset()
    quirks: Quirks = GENERIC
    is_observed: bool = False
    streams_calls: bool = False
    left_out: frozenset[AttemptKind] = frozenset()
    shows_pieces: bool = False
    refusals: RefusalCount = msgspec.field(default_factory=RefusalCount)
    attempts: int = MOST_ATTEMPTS
    is_strict: bool = False
    explains: bool = True
    close_out: CloseOut = CloseOut.OFF
    close_out_tries: int = 1
    habit: ThoughtHabit = msgspec.field(default_factory=ThoughtHabit)

    def _goes_on(self, attempt: Attempt) -> bool:
        """Return whether a prompt begins with all of the one before: nothing is rolled back."""
        is_cut = any(isinstance(fact, Compacted) and fact.is_new for fact in self.facts)
        has_begun = any(message.role == "assistant" for message in self.messages)
        return attempt.kind == "as_asked" and has_begun and not is_cut

    def make_splitter(self) -> ReasoningSplitter | None:
        """Make what splits thoughts off, where anything may be changed."""
        return None if self.is_observed else ReasoningSplitter(self.quirks.opens_thoughts)

    def question(
        self,
        attempt: Attempt,
        nudges: Messages,
        schema: JsonObject | None,
        most_tokens: int | None = None,
    ) -> Question:
        """Build the question of an attempt; `most_tokens` None leaves the limit to the client."""
        is_answer = attempt.kind == "answer"
        omits = self.omits - {ANSWER_FORM} if is_answer else self.omits
        request = self.request if most_tokens is None else self.request.limit_tokens(most_tokens)
        messages = self.messages + nudges
        return replace(
            self.prompt_format.question(request, messages, self.tool_choice, omits),
            parsing=attempt.parsing,
            schema=schema,
            resets_cache=self.quirks.resets_state and not self._goes_on(attempt),
            calls_singly=not self.quirks.calls_in_parallel,
            checks_answer=is_answer,
            refusals=self.refusals,
            may_fail=attempt.kind == "close_out",
        )
