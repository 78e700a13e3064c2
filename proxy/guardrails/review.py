"""The verdict on one finished reply: names, arguments, order, and whether prose will do.

Order: name -> arguments -> steps and loops -> verdict. Pure; a misbehaving model is never an
exception here.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.facts import Coerced, Dropped, Fact, Refused, Renamed, Repaired
from proxy.guardrails import nudges
from proxy.guardrails.announcements.recognition import announces
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.order import object_to
from proxy.guardrails.reading import ReadReply
from proxy.guardrails.rescue.syntax import Reason
from proxy.guardrails.schemas import arguments
from proxy.guardrails.schemas.arguments import InvalidAnswer, ValidAnswer, check_answer
from proxy.guardrails.schemas.violations import Violation
from proxy.guardrails.unparsed_calls.recognition import looks_like_call
from proxy.guardrails.verdict import Accepted, Defect, Rejected, Verdict

NewId: TypeAlias = Callable[[], str]


_CUT_OFF = ("length", "content_filter")


class _Good(msgspec.Struct, frozen=True):
    """A call the client may run."""

    call: ToolCall
    facts: tuple[Fact, ...] = ()


class _Bad(msgspec.Struct, frozen=True):
    """A call with a defect; `call` is None where no history could hold it."""

    call: ToolCall | None
    defect: Defect
    problem: str
    facts: tuple[Fact, ...] = ()


class _CallRules(msgspec.Struct, frozen=True):
    """What every call of one reply is judged by."""

    offer: OfferedTools
    is_complete: bool
    insistence: int


def review(
    reply: ReadReply,
    offer: OfferedTools,
    new_id: NewId,
    *,
    insistence: int = 0,
    taken: Collection[str] = (),
) -> Verdict:
    """Judge a finished reply.

    `new_id` makes the ids of calls that have none or share one; `insistence` counts the replies
    of this turn that were rejected before. The calls with the ids `taken` need no repetition.
    """
    whole = _drop_cut_off(reply, offer)
    facts = reply.facts
    if len(whole) < len(reply.calls):
        facts += (Refused("cut_off"),)
    if not whole and not reply.is_botched:
        return _judge_text(reply, offer, facts, insistence)
    wanted = whole if offer.parallel else whole[:1]
    facts += (Dropped("parallel_call"),) * (len(whole) - len(wanted))
    terms = _CallRules(offer, _is_complete(reply, offer), insistence)
    judged = _judge_calls(wanted, terms, new_id)
    for one in judged:
        facts += one.facts
    good = _before_any_bad(judged)
    bad = [one for one in judged if isinstance(one, _Bad)]
    answer = Accepted(reply.text, good, _finish_reason(reply.reason, good), facts)
    if reply.is_botched:
        return _reject_botched(reply, offer, answer)
    if not bad:
        return answer
    if bad[0].defect is Defect.LOOP:
        return Rejected(Defect.LOOP, nudges.report_withheld_call(reply.text, offer), answer, facts)
    if any(one.call is None for one in judged):
        nudge = nudges.correct_broken_call(reply.text, bad[0].problem, offer)
    else:
        nudge = nudges.correct_calls(reply.text, _answer_calls(judged, taken), offer)
    return Rejected(bad[0].defect, nudge, answer, facts)


def _reject_botched(reply: ReadReply, offer: OfferedTools, answer: Accepted) -> Rejected:
    nudge = nudges.correct_broken_call(reply.text, "its JSON is broken", offer)
    return Rejected(Defect.BROKEN_ARGUMENTS, nudge, answer, answer.facts)


def _is_complete(reply: ReadReply, offer: OfferedTools) -> bool:
    """Return whether the model itself chose to stop, so that missing brackets may be closed."""
    return reply.reason not in _CUT_OFF and not offer.stop_strings


def _drop_cut_off(reply: ReadReply, offer: OfferedTools) -> tuple[WrittenCall, ...]:
    if _is_complete(reply, offer) or not reply.calls:
        return reply.calls
    *before, last = reply.calls
    if _is_whole(last.arguments, allow_empty=reply.reason not in _CUT_OFF):
        return reply.calls
    return tuple(before)


def _is_whole(written: JsonValue, *, allow_empty: bool) -> bool:
    if not isinstance(written, str):
        return True
    if not written.strip():
        return allow_empty
    try:
        return isinstance(json.parse(written), dict)
    except ValueError:
        return False


def _judge_calls(
    calls: Sequence[WrittenCall], terms: _CallRules, new_id: NewId
) -> list[_Good | _Bad]:
    judged: list[_Good | _Bad] = []
    taken: set[str] = set()
    for written in calls:
        call_id = written.id if written.id and written.id not in taken else new_id()
        taken.add(call_id)
        judged.append(_judge_call(written, call_id, terms))
    return judged


def _before_any_bad(judged: Sequence[_Good | _Bad]) -> tuple[ToolCall, ...]:
    """Return the calls before the first one with a defect, which the later ones were to follow."""
    places = (place for place, one in enumerate(judged) if isinstance(one, _Bad))
    before = judged[: next(places, len(judged))]
    return tuple(one.call for one in before if isinstance(one, _Good))


def _judge_call(written: WrittenCall, call_id: str, terms: _CallRules) -> _Good | _Bad:
    offer = terms.offer
    tool = offer.tool_named(written.name)
    if tool is None:
        problem = nudges.describe_unknown_tool(written.name, offer)
        return _bad_name(written, call_id, Defect.UNKNOWN_TOOL, problem)
    if not offer.may_call(tool.name):
        problem = nudges.describe_wrong_tool(written.name, offer)
        return _bad_name(written, call_id, Defect.WRONG_TOOL, problem)
    renamed = () if tool.name == written.name else (Renamed(written.name, tool.name),)
    match arguments.check(tool, written.arguments, may_close=terms.is_complete):
        case arguments.ValidArguments(text, _, facts) if _is_mended(facts) and not offer.repairs:
            return _object_to_repair(ToolCall(call_id, tool.name, text), facts, offer)
        case arguments.ValidArguments(text, value, facts):
            call = ToolCall(call_id, tool.name, text)
            return _judge_order(call, value, terms, (*renamed, *facts))
        case arguments.BrokenArguments(problem):
            return _Bad(None, Defect.BROKEN_ARGUMENTS, problem, renamed)
        case arguments.InvalidArguments(value, violations, facts):
            problem = nudges.describe_invalid_arguments(violations, offer)
            call = ToolCall(call_id, tool.name, json.dump_text(value))
            return _Bad(call, Defect.INVALID_ARGUMENTS, problem, (*renamed, *facts))


def _is_mended(facts: tuple[Fact, ...]) -> bool:
    return any(isinstance(fact, Repaired | Coerced) for fact in facts)


def _object_to_repair(call: ToolCall, facts: tuple[Fact, ...], offer: OfferedTools) -> _Bad:
    """Object to arguments that would have to be mended, where nothing is."""
    places = [fact.pointer for fact in facts if isinstance(fact, Coerced)]
    if len(places) < len(facts):
        return _Bad(None, Defect.BROKEN_ARGUMENTS, "The arguments are not valid JSON")
    wrong = [Violation(place, "another type") for place in places]
    problem = nudges.describe_invalid_arguments(wrong, offer)
    return _Bad(call, Defect.INVALID_ARGUMENTS, problem)


def _bad_name(written: WrittenCall, call_id: str, defect: Defect, problem: str) -> _Bad:
    text = arguments.object_text(written.arguments)
    return _Bad(ToolCall(call_id, written.name, text or "{}"), defect, problem)


def _judge_order(
    call: ToolCall, value: JsonObject, terms: _CallRules, facts: tuple[Fact, ...]
) -> _Good | _Bad:
    objection = object_to(call.name, value, terms.offer, insistence=terms.insistence)
    if objection is None:
        return _Good(call, facts)
    return _Bad(call, objection.defect, objection.problem, facts)


def _answer_calls(
    judged: Sequence[_Good | _Bad], taken: Collection[str]
) -> list[nudges.CallAnswer]:
    """Say of every call what is wrong with it, or what happens to it beside those."""
    return [
        nudges.CallAnswer(
            one.call,
            one.problem if isinstance(one, _Bad) else None,
            is_taken=one.call.id in taken,
        )
        for one in judged
        if one.call is not None
    ]


def _judge_text(
    reply: ReadReply, offer: OfferedTools, facts: tuple[Fact, ...], insistence: int
) -> Verdict:
    cut_off = reply.is_cut_off or bool(reply.calls)
    reason = _finish_reason(reply.reason, ())
    reason = "length" if cut_off and reason == "stop" else reason
    answer = Accepted(reply.text, (), reason, facts)
    demands_call = offer.text_policy is TextPolicy.REQUIRE
    if not demands_call and reason in _CUT_OFF:
        return answer
    if steps := offer.missing_steps:
        nudge = nudges.correct_early_answer(reply.text, steps, insistence)
        return Rejected(Defect.STEP_MISSING, nudge, answer, facts)
    if reply.has_responded:
        return _judge_announcement(answer, offer)
    if insistence and not demands_call and nudges.is_done(reply.text):
        return replace(answer, text="")
    return _judge_prose(answer, offer)


def _judge_prose(answer: Accepted, offer: OfferedTools) -> Verdict:
    text, facts = answer.text, answer.facts
    if offer.answer_schema is not None and text.strip():
        return _judge_answer(answer, offer.answer_schema)
    if offer.text_policy is TextPolicy.ACCEPT:
        return answer
    if not text.strip():
        return Rejected(Defect.EMPTY, nudges.correct_silence(offer), answer, facts)
    if offer.text_policy is not TextPolicy.AUTO:
        return Rejected(Defect.PROSE, nudges.correct_prose(text, offer), answer, facts)
    if _is_unread_call(answer, offer):
        nudge = nudges.correct_unknown_syntax(text, offer)
        return Rejected(Defect.UNKNOWN_SYNTAX, nudge, answer, facts)
    return _judge_announcement(answer, offer)


def _is_unread_call(answer: Accepted, offer: OfferedTools) -> bool:
    """Return whether a reply looks like a call that no reader knows, and none refused as quoted."""
    if any(isinstance(one, Refused) and one.reason != Reason.NOT_A_CALL for one in answer.facts):
        return False
    return looks_like_call(answer.text, offer.tools, offer.quotable)


def _judge_announcement(answer: Accepted, offer: OfferedTools) -> Verdict:
    """Look whether what was said, in prose or by `respond`, only announces a call."""
    text, names = answer.text, [tool.name for tool in offer.tools]
    is_watched = offer.text_policy is TextPolicy.AUTO
    if is_watched and announces(text, names):
        nudge = nudges.correct_announcement(text, offer)
        return Rejected(Defect.ANNOUNCED, nudge, answer, answer.facts)
    return answer


def _judge_answer(answer: Accepted, schema: JsonSchema) -> Verdict:
    match check_answer(answer.text, schema):
        case ValidAnswer(text, facts):
            return replace(answer, text=text, facts=(*answer.facts, *facts))
        case InvalidAnswer(problems):
            nudge = nudges.correct_answer(answer.text, problems)
            return Rejected(Defect.INVALID_ANSWER, nudge, answer, answer.facts)


def _finish_reason(written: str, calls: Sequence[ToolCall]) -> str:
    """Make the finish reason agree with what the client gets; `length` and others stay."""
    if written in ("stop", "tool_calls", "function_call"):
        return "tool_calls" if calls else "stop"
    return written
