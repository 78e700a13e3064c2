"""The plan of a request: everything that its attempts share.

The plan builds the upstream request of each attempt.
"""

import msgspec
from msgspec.structs import replace

from proxy.context.compaction import Compaction, Fitted
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Messages
from proxy.conversation.requests import RefusalCount, Request, UpstreamRequest
from proxy.conversation.tools import Tool, ToolChoice, ToolUse
from proxy.conversation.workflows import NO_RULES, Workflow
from proxy.facts import Compacted, Fact
from proxy.guardrails import transcript
from proxy.guardrails.close_out import CloseOut
from proxy.guardrails.history_repair.history import fit_roles, neutralize
from proxy.guardrails.model_quirks import GENERIC, Quirks, Template
from proxy.guardrails.offer import Mode, OfferedTools, Part, TextPolicy
from proxy.guardrails.reasoning import ReasoningSplitter, ThoughtHabit
from proxy.guardrails.retry import MOST_ATTEMPTS, Attempt, AttemptKind
from proxy.guardrails.tool_prompts.fragments import Convention
from proxy.guardrails.tool_prompts.history import describe_in_prompt

# not sent upstream if the prompt describes the tools
_TOOL_FIELDS = frozenset(("tools", "tool_choice", "parallel_tool_calls"))


class PromptFormat(msgspec.Struct, frozen=True):
    """The tools of a prompt, and the format in which the prompt describes them.

    `tools` are the client's tools, and `respond` is the synthetic tool for answers. With a
    `convention`, Temper writes tools, calls and results into the messages; otherwise the chat
    template writes them. Adjacent messages of one role are merged if the template requires
    alternating roles.
    """

    tools: tuple[Tool, ...]
    respond: Tool | None = None
    convention: Convention | None = None
    template: Template = msgspec.field(default_factory=Template)

    @property
    def offered(self) -> tuple[Tool, ...]:
        return self.tools if self.respond is None else (*self.tools, self.respond)

    def upstream_request(
        self,
        request: Request,
        messages: Messages,
        choice: ToolChoice = ToolUse.AUTO,
        omits: frozenset[str] = frozenset(),
    ) -> UpstreamRequest:
        """Build an upstream request; `omits` names the fields that were moved into the messages."""
        if self.convention is None:
            if self.template.alternates:
                messages = fit_roles(messages, self.template, [])
            return UpstreamRequest(request, messages, self.offered, choice, omits=omits)
        described = describe_in_prompt(
            messages, self.tools, self.respond, convention=self.convention, template=self.template
        )
        stops = self.convention.stops if self.tools else ()
        return UpstreamRequest(
            request, described, (), choice, omits=omits | _TOOL_FIELDS, stops=stops
        )


RESPONSE_FORMAT = "response_format"


# a guardrail in `Policy.without` -> the kind of attempt that is then switched off
_KINDS: dict[Part, AttemptKind] = {"nudge": "nudged", "constrained": "constrained"}


class Policy(msgspec.Struct, frozen=True):
    """The guardrail settings of the operator, or of one request.

    If `text_policy` is None, the policy of the model's `quirks` applies. `attempts` is the maximum
    number of generations per request. After they were all rejected, the client receives an error
    if `is_strict`. Otherwise it receives the best rejected reply, with a sentence about the reason
    if `explains`.

    `most_repeats`, `most_rounds` and `most_failures` are limits after which Temper adds a note for
    the model. After a call was repeated `most_repeats` times, the note warns the model. After
    `most_rounds` rounds of tool calls, if the last rounds returned nothing new, the note demands an
    answer. After `most_failures` failed rounds in a row, the note reports the failures.

    `workflow` has the operator's rules about the order of calls. If `streams_calls`, a streaming
    client receives calls while the model writes them. If `shows_pieces`, the client's deltas have
    the boundaries of the engine's deltas even without streaming. The guardrails in `without` are
    switched off, to measure their effect.

    `close_out` selects the text answers after which a close-out check is sent, up to
    `close_out_tries` times per answer. `habit` is updated by each reply of the model.
    """

    quirks: Quirks = GENERIC
    text_policy: TextPolicy | None = None
    attempts: int = MOST_ATTEMPTS
    is_strict: bool = False
    mode: Mode = Mode.ON
    most_repeats: int = transcript.MOST_REPEATS
    most_rounds: int = transcript.MOST_ROUNDS
    workflow: Workflow = NO_RULES
    streams_calls: bool = True
    most_failures: int = transcript.MOST_FAILURES
    without: frozenset[Part] = frozenset()
    shows_pieces: bool = False
    explains: bool = True
    close_out: CloseOut = CloseOut.OFF
    close_out_tries: int = 1
    habit: ThoughtHabit = msgspec.field(default_factory=ThoughtHabit)

    @property
    def disabled_attempts(self) -> frozenset[AttemptKind]:
        return frozenset(_KINDS[part] for part in self.without if part in _KINDS)


class RequestPlan(msgspec.Struct, frozen=True):
    """A request with its repaired history and the constraints of its answer.

    `prompt_format` defines how `messages` and tools are written. Replies are checked against the
    tools and rules in `offer`; if `offer` is None, nothing is checked. In observe mode, the result
    of the checks is only recorded. A plan that `is_final` demands an answer and allows no call. All
    attempts count the engine's refusals of request fields in one object, `refusals`.
    """

    request: Request
    policy: Policy
    messages: Messages
    prompt_format: PromptFormat
    offer: OfferedTools | None
    facts: tuple[Fact, ...] = ()
    is_final: bool = False
    refusals: RefusalCount = msgspec.field(default_factory=RefusalCount)

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self.prompt_format.offered

    @property
    def is_untouchable(self) -> bool:
        """Whether the client's messages must be sent unchanged."""
        return self.policy.mode is not Mode.ON

    @property
    def streams_calls(self) -> bool:
        """Whether the client sees calls while they are written."""
        is_enabled = self.policy.streams_calls and self.request.stream
        # `ArgumentsGate` repairs arguments before it shows them, so it needs the guardrail "repair"
        return is_enabled and "repair" not in self.policy.without

    @property
    def shows_pieces(self) -> bool:
        return self.request.stream or self.policy.shows_pieces

    def make_splitter(self) -> ReasoningSplitter | None:
        """Make the splitter of reasoning; None if replies must not be changed."""
        if self.is_untouchable:
            return None
        texts = [message.text for message in self.messages]
        return ReasoningSplitter(self.policy.quirks.opens_thoughts, texts)

    def fit(self, strategy: Compaction) -> Fitted:
        """Fit messages and tools into the window; raises `ContextOverflow` if nothing fits."""
        return strategy.fit(self.messages, self.tools, self.request.reserved)

    def upstream_request(self) -> UpstreamRequest:
        """Build the first upstream request from the complete conversation."""
        return self.prompt_format.upstream_request(
            self.request, self.messages, self.request.tool_choice
        )

    def request_for(
        self,
        attempt: Attempt,
        nudges: Messages,
        schema: JsonObject | None,
        most_tokens: int | None = None,
    ) -> UpstreamRequest:
        """Build the request of an attempt; if `most_tokens` is None, the client's limit applies."""
        is_answer = attempt.kind == "answer"
        may_call = self.offer is not None and bool(self.offer.tools)
        is_guarded = may_call and not (self.is_untouchable or self.is_final)
        # An engine that enforces a response format from the first token makes calls impossible. So
        # the first attempt is sent without the format, and Temper checks its answer. The format is
        # sent only if that answer is invalid, with the retry.
        omits = frozenset((RESPONSE_FORMAT,) if is_guarded and not is_answer else ())
        request = self.request if most_tokens is None else self.request.limit_tokens(most_tokens)
        choice = ToolUse.NONE if self.is_final else request.tool_choice
        quirks = self.policy.quirks
        # nudges quote the reply, which may contain control tokens
        neutral_nudges = neutralize(nudges, quirks.template.control_tokens, [])
        return replace(
            self.prompt_format.upstream_request(
                request, self.messages + neutral_nudges, choice, omits
            ),
            parsing=attempt.parsing,
            schema=schema,
            resets_cache=quirks.resets_state and not self._extends_prompt(attempt),
            calls_singly=not quirks.calls_in_parallel,
            checks_answer=is_answer,
            refusals=self.refusals,
            may_fail=attempt.kind == "close_out",
        )

    def _extends_prompt(self, attempt: Attempt) -> bool:
        """Return whether the prompt extends the cached prompt of the previous request."""
        is_cut = any(isinstance(fact, Compacted) and fact.is_new for fact in self.facts)
        has_begun = any(message.role == "assistant" for message in self.messages)
        return attempt.kind == "as_asked" and has_begun and not is_cut
