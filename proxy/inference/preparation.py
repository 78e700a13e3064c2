"""From a client's request to a turn: repair the history, fix the constraints, fit the context.

These decisions are made once per request, so the prompts of all attempts have the same prefix.
"""

from typing import TypeAlias

from msgspec.structs import replace

from proxy.context.compaction import Fitted
from proxy.conversation import roles
from proxy.conversation.messages import Messages
from proxy.conversation.requests import RefusalCount, Request
from proxy.conversation.tools import NamedTool, Tool, ToolUse
from proxy.conversation.workflows import NO_RULES
from proxy.facts import Fact, FailuresNoticed, LoopNoticed, RoundsExceeded, RoundsMade
from proxy.guardrails import nudges, transcript
from proxy.guardrails.close_out import CloseOut
from proxy.guardrails.history_repair.history import heal_messages, heal_tools, replay_thoughts
from proxy.guardrails.model_quirks import GENERIC, Quirks
from proxy.guardrails.offer import Mode, OfferedTools, TextPolicy
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.syntax import Syntax
from proxy.guardrails.respond import make_respond_tool
from proxy.guardrails.review import NewId
from proxy.guardrails.tool_prompts.history import find_convention
from proxy.guardrails.tool_prompts.json_contract import JsonContractConvention, json_contract
from proxy.guardrails.tool_prompts.react import REACT_CONTRACT, ReActConvention
from proxy.inference.plan import Policy, PromptFormat, RequestPlan
from proxy.inference.turn import MayRetry, Turn

NOTED_ROUNDS = 50  # tool rounds since the last user message; coding agents often make as many

# The prompts of these conventions prescribe a format for answers. So they do not list the tool
# `respond`, which is otherwise called to answer.
_PRESCRIBE_ANSWERS = (JsonContractConvention.name, ReActConvention.name)

# Three values: the notes to append to the history of a model that repeats itself, the facts to
# record, and whether the next reply has to be the answer.
_Ending: TypeAlias = tuple[Messages, tuple[Fact, ...], bool]
_NO_ENDING: _Ending = ((), (), False)


def plan_request(request: Request, policy: Policy) -> RequestPlan:
    """Repair a request, select the earlier reasoning to send, and fix the constraints."""
    untouched = PromptFormat(request.tools)
    if policy.mode is Mode.OFF:
        return RequestPlan(request, policy, request.messages, untouched, None)
    quirks = policy.quirks
    healed, facts = heal_messages(request.messages, quirks.template)
    tools, tool_facts = heal_tools(request.tools, quirks.template.control_tokens)
    facts += tool_facts
    offer = _make_offer(request, healed, policy)
    if policy.mode is Mode.OBSERVE:  # replies are judged, but nothing is changed
        return RequestPlan(request, policy, request.messages, untouched, offer, facts)
    convention = find_convention(quirks.convention) if quirks.convention else None
    respond = None if offer is None else offer.respond
    prompt_format = PromptFormat(tools, respond, convention, quirks.template)
    messages = replay_thoughts(healed, quirks.replay)
    return RequestPlan(request, policy, messages, prompt_format, offer, facts)


def begin(
    plan: RequestPlan,
    new_id: NewId,
    may_retry: MayRetry,
    fitted: Fitted | None = None,
    *,
    is_last: bool = False,
) -> Turn:
    """Make the turn that answers a request.

    `fitted` has the messages that fit the context window; if it is None, all messages are sent.
    `new_id` makes ids of calls. `may_retry` is called before each attempt except the first. If
    `is_last`, the limit of tool rounds is reached, so the reply has to be an answer.
    """
    policy, offer = plan.policy, plan.offer
    fitted = fitted or Fitted(plan.messages)
    compaction = () if fitted.compacted is None else (fitted.compacted,)
    notes, facts, is_final = _NO_ENDING
    if plan.is_untouchable:
        policy = replace(policy, quirks=GENERIC, is_strict=False, close_out=CloseOut.OFF)
    else:
        notes, facts, is_final = _choose_ending(plan, is_last=is_last)
    final = replace(
        plan,
        policy=policy,
        messages=fitted.messages + notes,
        # The prompt still lists the tools. A prompt without them would differ from the previous
        # prompt at its beginning, and the engine would have to read all of it again.
        offer=_without_tools(offer, plan.policy.quirks) if is_final else offer,
        facts=(*plan.facts, *fitted.facts, *compaction, *facts),
        is_final=is_final,
        refusals=RefusalCount(),
    )
    return Turn(final, new_id, may_retry)


def _choose_ending(plan: RequestPlan, *, is_last: bool) -> _Ending:
    offer = plan.offer
    if offer is None and not is_last:
        return _NO_ENDING
    rounds = transcript.rounds_since_user(plan.request.messages)
    notes, facts, is_final = _find_ending(plan, rounds, is_last=is_last)
    if offer is not None and rounds.made >= NOTED_ROUNDS:
        facts += (RoundsMade(rounds.made),)
    return notes, facts, is_final


def _find_ending(plan: RequestPlan, rounds: transcript.Rounds, *, is_last: bool) -> _Ending:
    offer = plan.offer
    if is_last:
        notes = (nudges.demand_last_answer(rounds.made),) if rounds.made else ()
        return notes, (RoundsExceeded(rounds.made),), True
    is_disabled = "loops" in plan.policy.without
    if offer is None or offer.choice is not ToolUse.AUTO or is_disabled:
        return _NO_ENDING
    if transcript.is_stuck(rounds, plan.policy.most_rounds):
        return (nudges.demand_answer(rounds.made),), (RoundsExceeded(rounds.made),), True
    if offer.loop is not None:
        name, times = offer.loop.name, offer.loop.times
        return (nudges.warn_of_loop(name, times),), (LoopNoticed(name, times),), False
    failed = transcript.count_failed_rounds(plan.request.messages)
    if failed >= plan.policy.most_failures:
        return (nudges.warn_of_failures(failed),), (FailuresNoticed(failed),), False
    return _NO_ENDING


def _make_offer(request: Request, history: Messages, policy: Policy) -> OfferedTools | None:
    if not request.tools and not request.checks_answer:
        return None
    text_policy = _text_policy(request, policy.text_policy or policy.quirks.text_policy)
    respond = _respond(request, policy, text_policy)
    user_texts, results, instructions = _sort_texts(request.messages)
    completed = transcript.list_completed_calls(history)
    user_turns = sum(map(transcript.begins_turn, history))
    watches_loops = "loops" not in policy.without
    # calls before the user's last message do not count: the user may want them to be repeated
    executed = tuple(call for call in completed if watches_loops and call.turn == user_turns)
    offer = OfferedTools(
        request.tools,
        text_policy,
        _syntaxes(policy.quirks, respond),
        respond,
        request.tool_choice,
        request.parallel_tool_calls,
        tuple(user_texts),
        tuple(results),
        request.stop_strings,
        None if text_policy is TextPolicy.REQUIRE else request.answer_schema,
        completed,
        policy.workflow if request.workflow == NO_RULES else request.workflow,
        transcript.find_loop(executed, policy.most_repeats),
        policy.quirks.aliases,
        request.allowed_tools,
        "repair" not in policy.without,
        "rescue" not in policy.without,
        opens_thoughts=policy.quirks.opens_thoughts,
        instructions=tuple(instructions),
        own_syntaxes=frozenset(_own_syntaxes(policy.quirks)),
        executed=executed,
    )
    is_none = request.tool_choice is ToolUse.NONE
    return _without_tools(offer, policy.quirks) if is_none else offer


def _sort_texts(messages: Messages) -> tuple[list[str], list[str], list[str]]:
    """Return the texts of users, of tool results, and of all other messages."""
    user_texts: list[str] = []
    results: list[str] = []
    instructions: list[str] = []
    for message in messages:
        if message.role == "user":
            user_texts.append(message.text)
        else:
            is_result = message.role in roles.RESULTS
            (results if is_result else instructions).append(message.text)
    return user_texts, results, instructions


def _without_tools(offer: OfferedTools | None, quirks: Quirks) -> OfferedTools | None:
    """Return an offer of `respond` alone; None unless the prompt prescribes an answer format."""
    if offer is None or offer.respond is None or quirks.convention not in _PRESCRIBE_ANSWERS:
        return None
    return OfferedTools((), TextPolicy.ACCEPT, offer.syntaxes, offer.respond)


def _respond(request: Request, policy: Policy, text_policy: TextPolicy) -> Tool | None:
    is_disabled = "respond" in policy.without
    if policy.mode is not Mode.ON or request.answer_schema is not None or is_disabled:
        return None
    quirks = policy.quirks
    # Only a prompt that Temper writes may describe the `respond` tool. In the tool list of a chat
    # template, `respond` spoiled 9 of 152 correct replies (decision 0003).
    is_auto = text_policy is TextPolicy.AUTO and bool(quirks.convention) and quirks.offers_respond
    is_offered = text_policy is TextPolicy.RESPOND or is_auto
    prescribes_answers = quirks.convention in _PRESCRIBE_ANSWERS
    has_answer_form = prescribes_answers and text_policy is not TextPolicy.REQUIRE
    is_needed = has_answer_form or (is_offered and request.tool_choice is not ToolUse.NONE)
    return make_respond_tool(tuple([tool.name for tool in request.tools])) if is_needed else None


def _syntaxes(quirks: Quirks, respond: Tool | None) -> tuple[Syntax, ...]:
    """List the syntaxes of calls: first the prompt's syntax, then those of the model's profile."""
    syntaxes = order_syntaxes(_own_syntaxes(quirks))
    if quirks.convention == ReActConvention.name:
        return (REACT_CONTRACT, *syntaxes)
    if quirks.convention == JsonContractConvention.name:
        return (json_contract(respond.name if respond is not None else None), *syntaxes)
    return syntaxes


def _own_syntaxes(quirks: Quirks) -> tuple[str, ...]:
    """Return the names of the syntaxes of the prompt and of the model's profile."""
    of_prompt = find_convention(quirks.convention).syntaxes if quirks.convention else ()
    return tuple(dict.fromkeys((*of_prompt, *quirks.syntaxes)))


def _text_policy(request: Request, configured: TextPolicy) -> TextPolicy:
    if request.tool_choice is ToolUse.REQUIRED or isinstance(request.tool_choice, NamedTool):
        return TextPolicy.REQUIRE
    return configured if request.answer_schema is None else TextPolicy.ACCEPT
