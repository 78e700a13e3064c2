"""From a client's request to a turn: mend the history, offer `respond`, fit the context.

It decides everything that stays the same for all attempts, so that the rendered prompt does too.
"""

from dataclasses import dataclass

from proxy.context.compaction import Compaction, NoCompaction
from proxy.conversation.messages import Message
from proxy.conversation.requests import Request
from proxy.conversation.tools import NamedTool, ToolUse
from proxy.facts import Fact, LoopNoticed, RoundsExceeded
from proxy.guardrails.healing import heal_messages, heal_tools
from proxy.guardrails.loops import MOST_REPEATS, MOST_ROUNDS, loop_at_end
from proxy.guardrails.nudges import about_loop, about_rounds
from proxy.guardrails.offer import Mode, Offer, TextPolicy
from proxy.guardrails.rescue.registry import in_order
from proxy.guardrails.respond import respond_tool
from proxy.guardrails.retry import MOST_ATTEMPTS
from proxy.guardrails.review import NewId
from proxy.guardrails.transcript import completed_calls, rounds_since_user
from proxy.inference.turn import ANSWER_FORM, MayRetry, Prepared, Turn


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator, or one request, decided about the guardrails.

    `attempts` bounds the generations per request; `is_strict` turns an exhausted ladder into an
    error. `syntaxes` names those to try first. A model that has repeated a call `most_repeats`
    times is warned; after `most_rounds` rounds of tool calls it is asked for an answer.
    """

    text_policy: TextPolicy = TextPolicy.RESPOND
    attempts: int = MOST_ATTEMPTS
    is_strict: bool = False
    mode: Mode = Mode.ON
    syntaxes: tuple[str, ...] = ()
    most_repeats: int = MOST_REPEATS
    most_rounds: int = MOST_ROUNDS


@dataclass(frozen=True, slots=True)
class _Ending:
    """What is appended to the history of a model that goes in circles, and why."""

    messages: tuple[Message, ...] = ()
    facts: tuple[Fact, ...] = ()
    is_final: bool = False


def prepare(
    request: Request,
    policy: Policy,
    new_id: NewId,
    may_retry: MayRetry = lambda: True,
    *,
    compaction: Compaction | None = None,
) -> Turn:
    """Make the turn that will answer a request; raises `ContextOverflow` if nothing fits.

    `new_id` makes ids of calls; `may_retry` is asked before each attempt but the first.
    """
    offer = _make_offer(request, policy)
    if policy.mode is not Mode.ON:
        untouched = Prepared(
            request, request.messages, request.tools, offer, request.tool_choice, is_observed=True
        )
        return Turn(untouched, new_id, may_retry, attempts=policy.attempts, is_strict=False)
    messages, facts = heal_messages(request.messages)
    tools, healed = heal_tools(request.tools)
    offered = tools if offer is None or offer.respond is None else (*tools, offer.respond)
    fitted = (compaction or NoCompaction()).fit(messages, offered, request.max_tokens)
    ending = _ending(request, policy, offer)
    prepared = Prepared(
        request,
        fitted.messages + ending.messages,
        offered,  # the last generation keeps the tools in its prompt, and so the cache
        None if ending.is_final else offer,
        ToolUse.NONE if ending.is_final else request.tool_choice,
        (*facts, *healed, *fitted.facts, *ending.facts),
        # a form that is enforced from the first token on leaves no room for a call
        omits=frozenset() if offer is None or ending.is_final else frozenset((ANSWER_FORM,)),
    )
    return Turn(prepared, new_id, may_retry, attempts=policy.attempts, is_strict=policy.is_strict)


def _ending(request: Request, policy: Policy, offer: Offer | None) -> _Ending:
    """Decide what to tell a model before it goes on calling tools."""
    if offer is None or offer.choice is not ToolUse.AUTO:
        return _Ending()
    rounds = rounds_since_user(request.messages)
    if rounds >= policy.most_rounds:
        return _Ending((about_rounds(rounds),), (RoundsExceeded(rounds),), is_final=True)
    if offer.loop is None:
        return _Ending()
    name, times = offer.loop.name, offer.loop.times
    return _Ending((about_loop(name, times),), (LoopNoticed(name, times),))


def _make_offer(request: Request, policy: Policy) -> Offer | None:
    """Fix the terms of the request; None where there is nothing to guard."""
    if policy.mode is Mode.OFF or not request.tools or request.tool_choice is ToolUse.NONE:
        return None
    text_policy = _text_policy(request, policy.text_policy)
    completed = completed_calls(request.messages)
    respond = None
    if text_policy is TextPolicy.RESPOND and policy.mode is Mode.ON:
        respond = respond_tool([tool.name for tool in request.tools])
    return Offer(
        request.tools,
        text_policy,
        in_order(policy.syntaxes),
        respond,
        request.tool_choice,
        request.parallel_tool_calls,
        tuple(one.text for one in request.messages if one.role in ("tool", "user")),
        request.stop_strings,
        None if text_policy is TextPolicy.REQUIRE else request.answer_schema,
        completed,
        request.workflow,
        loop_at_end(completed, policy.most_repeats),
    )


def _text_policy(request: Request, wanted: TextPolicy) -> TextPolicy:
    if request.tool_choice is ToolUse.REQUIRED or isinstance(request.tool_choice, NamedTool):
        return TextPolicy.REQUIRE
    return wanted if request.answer_schema is None else TextPolicy.ACCEPT
