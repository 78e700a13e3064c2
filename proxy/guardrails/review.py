"""Judges a complete reply: accepts it, or rejects it with a nudge for the retry.

`review` checks each call in this order: its name, its arguments against the schema, loops and
steps. Of the calls that were written as text, it drops those that have already run, and rejects
those with invented values. A reply without calls is judged as an answer: it may be a repetition, a
call in an unknown syntax, an announcement, or prose although a call is required. The first defect
determines the verdict. `nudges` writes the messages that describe this defect to the model. No
reply causes an exception.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.endings import CALLS, LENGTH, STOP, is_cut
from proxy.conversation.json import JsonObject, JsonSchema
from proxy.conversation.messages import Messages
from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.facts import Coerced, Dropped, Fact, Refused, Renamed, Repaired
from proxy.guardrails import nudges
from proxy.guardrails.announcements.recognition import announces, instructs, instructs_user
from proxy.guardrails.call_facts import asks_about_calls
from proxy.guardrails.executed_calls import (
    fails_again,
    find_failed_call,
    has_run,
    is_executed,
    is_variant,
)
from proxy.guardrails.grounding import (
    Progress,
    find_invented_values,
    find_open_values,
    judge_progress,
)
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import ReadReply
from proxy.guardrails.repetition import (
    copies_result,
    find_foreign_calls,
    is_broken_call,
    is_echo,
    is_json,
    list_shown_calls,
    repeats_line,
    words_in_json,
)
from proxy.guardrails.rescue.copies import is_same
from proxy.guardrails.rescue.swallowed import find_leak
from proxy.guardrails.rescue.syntax import Reason
from proxy.guardrails.schemas import arguments
from proxy.guardrails.schemas.arguments import InvalidAnswer, ValidAnswer, check_reply
from proxy.guardrails.schemas.coercion import unescape_values
from proxy.guardrails.schemas.violations import Violation
from proxy.guardrails.steps import steps_before
from proxy.guardrails.transcript import CompletedCall, parse_arguments
from proxy.guardrails.unparsed_calls.recognition import looks_like_call
from proxy.guardrails.verdict import Accepted, Defect, Rejected, Verdict

NewId: TypeAlias = Callable[[], str]


_NO_FUNCTION = "no_function"  # Granite calls this function if no tool fits
_EMPHASIS = " \n*_\"'"
_QUESTION_MARKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}")


class _JudgedCall(msgspec.Struct, frozen=True):
    """A checked call; without a `defect` the client may run it.

    - `call`: None if the arguments are broken, because the history must not contain a call with
      broken arguments
    - `problem` describes the defect to the model, `objection` describes it in the log
    - `arguments`: None if the tool is not offered or the arguments are broken
    - `is_text`: the call was written in the text
    """

    call: ToolCall | None
    facts: tuple[Fact, ...] = ()
    defect: Defect | None = None
    problem: str | None = None
    objection: str = ""
    tool: str = ""
    arguments: JsonObject | None = None
    is_text: bool = False


def review(
    reply: ReadReply,
    offer: OfferedTools,
    new_id: NewId,
    *,
    insistence: int = 0,
    sent_ids: Collection[str] = (),
) -> Verdict:
    """Judge a complete reply.

    `new_id` makes an id for a call whose id is missing or not unique. `insistence` is the number of
    rejected replies in this turn. `sent_ids` are the ids of calls that the client already has.
    """
    reply = _drop_denied(reply, offer)
    complete = _drop_cut_off(reply, offer)
    facts = reply.facts
    if not reply.is_broken and _declines(complete, offer):
        answer = reply.text if reply.text.strip() else nudges.NO_TOOL_FITS
        return Accepted(answer, (), _finish_reason(reply, ()), (*facts, Dropped("no_function")))
    if len(complete) < len(reply.calls):
        facts += (Refused("cut_off"),)
    if not complete and not reply.is_broken:
        return _judge_text(reply, offer, facts, insistence)
    # If the client allows only one call in a reply, only the first call is accepted. The model can
    # make the other calls after it has received the result.
    allowed = complete if offer.parallel else complete[:1]
    facts += (Dropped("parallel_call"),) * (len(complete) - len(allowed))
    judged, may_close = list[_JudgedCall](), _is_complete(reply, offer)
    ids: set[str] = set()
    for call in allowed:
        call_id = call.id if call.id and call.id not in ids else new_id()
        ids.add(call_id)
        checked = _judge_call(call, call_id, offer, insistence, may_close=may_close)
        judged.append(replace(checked, is_text=True) if _is_text(call) else checked)
    kept = judged
    if any(call.is_text for call in judged):
        kept, dropped = _drop_repetition(judged, offer)
        facts += dropped
        if not kept and not reply.is_broken:
            return _object_to_repetition(replace(reply, facts=facts), judged[0], offer)
        kept, dropped, invented = _drop_inventions(kept, offer)
        facts += dropped
        if invented is not None:
            return _object_to_inventions(replace(reply, facts=facts), invented, offer)
    facts += tuple(fact for call in kept for fact in call.facts)
    return _judge_all(replace(reply, facts=facts), kept, offer, sent_ids)


def _drop_repetition(
    judged: Sequence[_JudgedCall], offer: OfferedTools
) -> tuple[list[_JudgedCall], tuple[Fact, ...]]:
    """Drop calls written as text that have already run, would fail again, or are repeated.

    Repeated structured calls are kept, because the model may be polling. Loops of structured calls
    are detected by `transcript.find_loop`.
    """
    kept: list[_JudgedCall] = []
    facts: list[Fact] = []
    structured = [call for call in judged if not call.is_text]
    for judged_call in judged:
        call, is_text = judged_call.call, judged_call.is_text
        if not is_text or call is None or judged_call.defect not in (None, Defect.LOOP):
            kept.append(judged_call)
        elif _find_failed(judged_call, offer) or is_executed(
            call.name, judged_call.arguments, offer
        ):
            facts.append(Dropped("executed_call"))
        elif any(_is_repetition(judged_call, other, offer) for other in (*structured, *kept)):
            facts.append(Dropped("repeated_call"))
        else:
            kept.append(judged_call)
    return kept, tuple(facts)


def _find_failed(judged: _JudgedCall, offer: OfferedTools) -> CompletedCall | None:
    call = judged.call
    return None if call is None else find_failed_call(call.name, judged.arguments, offer)


def _is_repetition(judged: _JudgedCall, other: _JudgedCall, offer: OfferedTools) -> bool:
    """Return whether a call in the text repeats another call of the same reply.

    An engine may return a call both as a structured call and as text. Two equal calls in the text
    are not a repetition, because the model may want both.
    """
    call = judged.call
    if call is None or other.call is None or other.call.name != call.name:
        return False
    is_copy = not other.is_text and judged.arguments == other.arguments
    return is_copy or is_variant(call.name, judged.arguments, other.arguments, offer)


def _drop_inventions(
    judged: Sequence[_JudgedCall], offer: OfferedTools
) -> tuple[list[_JudgedCall], tuple[Fact, ...], tuple[_JudgedCall, tuple[str, ...]] | None]:
    """Drop the first call with invented values and all later calls.

    If the first call of the reply has invented values, no call remains. Then this call is also
    returned with its invented values, so that the caller can reject the reply.
    """
    may_reject = offer.may_answer and offer.text_policy is not TextPolicy.ACCEPT
    if not may_reject or offer.accepts_invented_values:
        return [*judged], (), None
    for index, call in enumerate(judged):
        values = _invented_values(call, offer)
        if not values:
            continue
        if not index:
            return [], (), (call, values)
        # Later calls depend on this call: Qwen2.5-Coder 0.5B uses the invented values in them
        # again.
        return [*judged[:index]], (Dropped("invented_values"),) * (len(judged) - index), None
    return [*judged], (), None


def _invented_values(judged: _JudgedCall, offer: OfferedTools) -> tuple[str, ...]:
    call, arguments = judged.call, judged.arguments
    if call is None or arguments is None or judged.defect is not None or not judged.is_text:
        return ()
    tool = offer.tool_named(call.name)
    return () if tool is None else find_invented_values(tool, arguments, offer)


def _object_to_repetition(reply: ReadReply, judged: _JudgedCall, offer: OfferedTools) -> Rejected:
    answer = Accepted(_text_next_to_calls(reply), (), _finish_reason(reply, ()), reply.facts)
    failed = _find_failed(judged, offer)
    if failed is None:
        nudge = nudges.report_executed_calls(answer.text, offer, find_open_values(offer))
    else:
        nudge = nudges.report_failed_call(failed)
    name = "" if judged.call is None else judged.call.name
    return Rejected(Defect.EXECUTED, nudge, answer, reply.facts, name)


def _object_to_inventions(
    reply: ReadReply, invented: tuple[_JudgedCall, tuple[str, ...]], offer: OfferedTools
) -> Rejected:
    judged, values = invented
    calls = () if judged.call is None else (judged.call,)
    facts = (*reply.facts, *judged.facts)
    answer = Accepted(reply.text, calls, _finish_reason(reply, calls), facts)
    name = calls[0].name if calls else ""
    is_open = judge_progress(offer) is Progress.OPEN
    text = _text_next_to_calls(reply)
    nudge = nudges.correct_invented_values(text, name, values, is_open=is_open)
    return Rejected(Defect.INVENTED, nudge, answer, facts, name)


def _text_next_to_calls(reply: ReadReply) -> str:
    """Return the text, or "" if it is a result that the model invented.

    The nudge quotes the text, and the model would believe that a quoted result came from a tool.
    """
    return "" if is_json(reply.text) else reply.text


def _is_text(call: WrittenCall) -> bool:
    """Return whether a call was read from the text.

    A structured call has an id, and its arguments are JSON text.
    """
    return not call.id or not isinstance(call.arguments, str)


def _drop_denied(reply: ReadReply, offer: OfferedTools) -> ReadReply:
    """Drop the calls that an earlier attempt refused because they were copied from a result."""
    if not offer.denied:
        return reply
    kept = tuple(call for call in reply.calls if not _is_denied(call, offer))
    if len(kept) == len(reply.calls):
        return reply
    return replace(reply, calls=kept, facts=(*reply.facts, Refused("quoted_from_history")))


def _is_denied(call: WrittenCall, offer: OfferedTools) -> bool:
    arguments = call.arguments
    if isinstance(arguments, str):
        call = replace(call, arguments=parse_arguments(arguments))
    return any(is_same(call, denied) for denied in offer.denied)


def _declines(calls: Sequence[WrittenCall], offer: OfferedTools) -> bool:
    """Return whether the model declines with the call `no_function({})`, as Granite does."""
    if {call.name for call in calls} != {_NO_FUNCTION}:
        return False
    may_decline = offer.may_answer and offer.answer_schema is None
    return may_decline and offer.tool_named(_NO_FUNCTION) is None


def _judge_all(
    reply: ReadReply, judged: Sequence[_JudgedCall], offer: OfferedTools, sent_ids: Collection[str]
) -> Verdict:
    bad = next((call for call in judged if call.defect is not None), None)
    # If all retries fail, the client receives only the calls before the bad call, because the calls
    # after it may depend on its result.
    before = judged if bad is None else judged[: judged.index(bad)]
    good = tuple([call.call for call in before if call.call is not None])
    if reply.text and any(call.is_text for call in judged) and is_json(reply.text):
        # JSON next to a call is the result that the model invented for this call.
        reply = replace(reply, text="", facts=(*reply.facts, Dropped("invented_result")))
    answer = Accepted(reply.text, good, _finish_reason(reply, good), reply.facts)
    if reply.is_broken:
        answer = replace(answer, text=reply.text_without_calls)
        named, problem = _find_name(reply.broken_end, offer), "its JSON is broken"
        bad = _JudgedCall(None, (), Defect.BROKEN_ARGUMENTS, problem, named, named)
        judged = [bad]
    if bad is None or bad.defect is None:
        return answer
    if bad.defect is Defect.LOOP:
        nudge = nudges.report_withheld_call(reply.text, offer)
    elif any(call.call is None for call in judged):
        nudge = nudges.correct_broken_call(reply.text, bad.problem or "", offer)
    else:
        answers = [(call.call, call.problem) for call in judged if call.call is not None]
        nudge = nudges.correct_calls(reply.text, answers, sent_ids)
    return Rejected(bad.defect, nudge, answer, reply.facts, bad.objection, bad.tool)


def _is_complete(reply: ReadReply, offer: OfferedTools) -> bool:
    """Return whether the model ended the reply itself, so that missing brackets may be added."""
    return not is_cut(reply.reason) and not offer.stop_strings


def _drop_cut_off(reply: ReadReply, offer: OfferedTools) -> tuple[WrittenCall, ...]:
    if _is_complete(reply, offer) or not reply.calls:
        return reply.calls
    last = reply.calls[-1].arguments
    is_complete = True
    if isinstance(last, str):
        # `""` means that there are no arguments, or that the model was stopped before the first
        # argument
        is_empty = not last.strip()
        is_complete = not is_cut(reply.reason) if is_empty else parse_arguments(last) is not None
    return reply.calls if is_complete else reply.calls[:-1]


def _judge_call(
    call: WrittenCall, call_id: str, offer: OfferedTools, insistence: int, *, may_close: bool
) -> _JudgedCall:
    tool = offer.tool_named(call.name)
    if tool is None or not offer.may_call(tool.name):
        # The nudge contains this call, and chat templates fail on broken arguments.
        named = ToolCall(call_id, call.name, arguments.object_text(call.arguments) or "{}")
        defect, describe = Defect.UNKNOWN_TOOL, nudges.describe_unknown_tool
        if tool is not None:
            defect, describe = Defect.WRONG_TOOL, nudges.describe_wrong_tool
        return _JudgedCall(named, (), defect, describe(call.name, offer), call.name)
    renamed = () if tool.name == call.name else (Renamed(call.name, tool.name),)
    values = call.arguments
    if isinstance(values, dict) and "\\_" in call.name:  # Mixtral escapes names and values
        values = unescape_values(values)
    checked = arguments.check(tool, values, may_close=may_close)
    if isinstance(checked, arguments.BrokenArguments):
        objection = f"{tool.name}: {checked.problem}"
        defect = Defect.BROKEN_ARGUMENTS
        return _JudgedCall(None, renamed, defect, checked.problem, objection, tool.name)
    facts, value = (*renamed, *checked.facts), checked.value
    if isinstance(checked, arguments.InvalidArguments):
        problem = nudges.describe_invalid_arguments(checked.violations, offer)
        named = ToolCall(call_id, tool.name, json.dump_text(value))
        objection = f"{tool.name}: {'; '.join(map(str, checked.violations))}"
        defect = Defect.INVALID_ARGUMENTS
        return _JudgedCall(named, facts, defect, problem, objection, tool.name, value)
    named = ToolCall(call_id, tool.name, checked.text)
    if not offer.repairs and any(isinstance(fact, Repaired | Coerced) for fact in checked.facts):
        return _object_to_repair(named, checked.facts, offer)
    leak = _find_leak(call, value, insistence) if offer.repairs else None
    if leak is not None:
        name, text = leak
        problem = f"The value of {name} contains {text}. Repeat the call without it."
        defect, objection = Defect.BROKEN_ARGUMENTS, f"{tool.name}: {text} in {name}"
        return _JudgedCall(named, facts, defect, problem, objection, tool.name, value)
    return _object_to_order(_JudgedCall(named, facts, arguments=value), value, offer, insistence)


def _find_leak(call: WrittenCall, values: JsonObject, insistence: int) -> tuple[str, str] | None:
    """Return the name of an argument that contains foreign text, and the kind of this text.

    - Markup is rejected once. If the model repeats the value, it may be a file about markup.
    - In a retry, a copy of a nudge is rejected if the call was written as text, and so was not
      streamed. Qwen2.5-Coder 0.5B stored the note "write_note has run. Now do the next step, ...".
    """
    if not insistence:
        name = find_leak(values) if isinstance(call.arguments, str) else None
        return None if name is None else (name, "the markup of a call")
    texts = [item for item in values.items() if isinstance(item[1], str)] if _is_text(call) else []
    name = next((name for name, text in texts if nudges.copies_nudge(f"{text}")), None)
    return None if name is None else (name, "an instruction of this conversation")


def _object_to_order(
    judged: _JudgedCall, values: JsonObject, offer: OfferedTools, insistence: int
) -> _JudgedCall:
    """Return a valid call, with a defect if the rules about loops or steps forbid it."""
    name, loop = "" if judged.call is None else judged.call.name, offer.loop
    if loop is not None and (loop.name, loop.arguments) == (name, values):
        problem = nudges.describe_loop(name, loop.times)
        return replace(judged, defect=Defect.LOOP, problem=problem, objection=name)
    if steps := steps_before(name, values, offer.workflow, offer.completed):
        problem = nudges.describe_missing_steps(name, steps, insistence)
        return replace(judged, defect=Defect.STEP_MISSING, problem=problem, objection=name)
    return judged


def _object_to_repair(call: ToolCall, facts: tuple[Fact, ...], offer: OfferedTools) -> _JudgedCall:
    """Return a call with the defect that a repair would have removed.

    This function is for requests that do not allow repairs. `facts` are the repairs that the call
    needs.
    """
    pointers = [fact.pointer for fact in facts if isinstance(fact, Coerced)]
    if len(pointers) < len(facts):
        problem = "The arguments are not valid JSON"
        return _JudgedCall(None, (), Defect.BROKEN_ARGUMENTS, problem, call.name, call.name)
    violations = [Violation(pointer, "another type") for pointer in pointers]
    problem = nudges.describe_invalid_arguments(violations, offer)
    return _JudgedCall(call, (), Defect.INVALID_ARGUMENTS, problem, call.name, call.name)


def _judge_text(
    reply: ReadReply, offer: OfferedTools, facts: tuple[Fact, ...], insistence: int
) -> Verdict:
    cut_off = reply.is_cut_off or bool(reply.calls)
    reason = _finish_reason(reply, ())
    # If a stop string ended the reply within a call, the engine reports `stop`.
    reason = LENGTH if cut_off and reason == STOP else reason
    answer = Accepted(reply.text, (), reason, facts)
    demands_call = offer.text_policy is TextPolicy.REQUIRE
    is_call_lost = Dropped("cut_off_call") in facts and not reply.text.strip()
    is_endless = is_call_lost or repeats_line(reply.text) or instructs(reply.text)
    # If `max_tokens` ends an answer, the client receives the truncated answer. But after tools have
    # run, small models repeat a line or explain their work up to `max_tokens`. Such a repetition or
    # explanation is not an answer.
    if not demands_call and is_cut(reason) and not (is_endless and offer.executed):
        return answer
    if cut_off or (reason == LENGTH and not reply.text.strip()):
        nudge = nudges.correct_cut_call(reply.text_without_calls, offer)
        objection = reply.calls[-1].name if reply.calls else _find_name(reply.broken_end, offer)
        fallback = replace(answer, text=reply.text_without_calls)
        return Rejected(Defect.CUT_OFF, nudge, fallback, facts, objection)
    if steps := offer.missing_steps:
        nudge = nudges.correct_early_answer(reply.text, steps, insistence)
        return Rejected(Defect.STEP_MISSING, nudge, answer, facts)
    repetition = _judge_repetition(reply, answer, offer, is_retry=insistence > 0)
    if repetition or not reply.has_responded:
        return repetition or _judge_words(reply, answer, offer, insistence)
    return _judge_announcement(answer, offer)


def _judge_words(
    reply: ReadReply, answer: Accepted, offer: OfferedTools, insistence: int
) -> Verdict:
    demands_call = offer.text_policy is TextPolicy.REQUIRE
    # After a nudge for an answer in words, a model may write {"outcome": "It is done."}.
    if insistence and offer.executed and (words := words_in_json(answer.text)):
        answer = replace(answer, text=words)
    is_done = bool(insistence) and not demands_call and nudges.is_done(reply.text)
    answer = replace(answer, text="") if is_done else answer
    if is_done and not offer.is_correction:
        return answer
    objection = _judge_ambiguous(reply, answer, offer) or _judge_foreign_calls(answer, offer)
    return objection or _insist_on_call(_judge_prose(answer, offer, reply.reasoning), offer)


def _judge_repetition(
    reply: ReadReply, answer: Accepted, offer: OfferedTools, *, is_retry: bool
) -> Rejected | None:
    """Reject a reply that consists of tool results, or explains calls that have already run."""
    if offer.answer_schema is not None:
        return None
    text, facts = answer.text, answer.facts
    misplaced = [call for call in reply.misplaced_calls if offer.tool_named(call.name) is not None]
    is_new = any(not has_run(call, offer) for call in misplaced)
    is_empty = bool(reply.result_texts) and not text.strip()
    if is_empty and (is_new or not offer.executed):
        nudge = nudges.correct_misplaced_call(misplaced)
        name = misplaced[0].name if misplaced else ""
        return Rejected(Defect.MISPLACED, nudge, replace(answer, text=""), facts, name)
    is_note = is_retry and nudges.copies_nudge(text)
    is_early = copies_result(text, offer) and bool(find_open_values(offer))
    is_copy = is_empty or is_note or is_early or is_echo(text, offer, is_retry=is_retry)
    may_recite = offer.text_policy is not TextPolicy.ACCEPT and not reply.has_responded
    if not (is_copy or (may_recite and _recites(text, offer))):
        return None
    nudge = _report_failure(offer)
    nudge = nudge or nudges.report_executed_calls("", offer, find_open_values(offer))
    if is_copy:
        answer = replace(answer, text="")
        return Rejected(Defect.ECHO, nudge, answer, facts, text_without_calls="")
    return Rejected(Defect.ECHO, nudge, answer, facts)


def _report_failure(offer: OfferedTools) -> Messages:
    """Return the nudge about the last call if it would fail again, otherwise ()."""
    if not offer.executed or not fails_again(offer.executed[-1]):
        return ()
    return nudges.report_failed_call(offer.executed[-1])


def _recites(text: str, offer: OfferedTools) -> bool:
    """Return whether a text shows calls that have run, or explains a call after the work is done.

    For example, Qwen2.5-Coder 1.5B read a file, and then explained how to move it.
    """
    calls = list_shown_calls(text, offer)
    if not calls or all(has_run(call, offer) for call in calls):
        return bool(calls)
    is_asked = asks_about_calls(calls, offer)
    return instructs(text) and not is_asked and judge_progress(offer) is Progress.DONE


def _judge_ambiguous(reply: ReadReply, answer: Accepted, offer: OfferedTools) -> Rejected | None:
    """Reject a reply with ambiguous calls, unless the user wants to see such calls."""
    calls = [call for group in reply.ambiguous for call in group.calls]
    may_ask = offer.text_policy is not TextPolicy.ACCEPT and offer.answer_schema is None
    if not (calls and may_ask) or asks_about_calls(calls, offer):
        return None
    denied = tuple(call for group in reply.ambiguous if group.is_denied for call in group.calls)
    text = prose = reply.text_without_calls
    for group in reply.ambiguous:  # a quoted call would be copied by the model
        prose = prose.replace(group.source, "")
    if offer.executed and not denied:  # the model described its next step
        new = [call for call in calls if not has_run(call, offer)]
        nudge, answer = nudges.correct_described_call(prose, new), replace(answer, text=text)
    else:
        nudge = nudges.correct_doubtful_call(prose, offer)
    plain = text if prose.strip() else ""
    return Rejected(
        Defect.DOUBTFUL,
        nudge,
        answer,
        answer.facts,
        calls[0].name,
        denied=denied,
        text_without_calls=None if plain == reply.text else plain,
    )


def _find_name(text: str, offer: OfferedTools) -> str:
    """Return the name of the tool that a text names first, or ""."""
    return min((name for name in offer.callable_names if name in text), key=text.index, default="")


def _insist_on_call(verdict: Verdict, offer: OfferedTools) -> Verdict:
    """Reject prose after a nudge to correct a call, unless the prose asks the user a question.

    If the rejected call named an unknown tool (`may_withdraw`), the model may need no call at all,
    so prose is accepted.
    """
    if not offer.is_correction or isinstance(verdict, Rejected):
        return verdict
    text = verdict.text
    if offer.may_withdraw or text.rstrip(_EMPHASIS).endswith(_QUESTION_MARKS):
        return verdict
    return Rejected(Defect.PROSE, nudges.correct_prose(text, offer), verdict, verdict.facts)


def _judge_foreign_calls(answer: Accepted, offer: OfferedTools) -> Rejected | None:
    """Reject a reply that consists of calls of tools that are not offered."""
    foreign = find_foreign_calls(answer.text, offer)
    if not foreign or offer.text_policy is not TextPolicy.AUTO or offer.answer_schema is not None:
        return None
    name = foreign[0].name
    nudge, fallback = nudges.correct_foreign_call(name, offer), replace(answer, text="")
    return Rejected(
        Defect.UNKNOWN_SYNTAX, nudge, fallback, answer.facts, name, text_without_calls=""
    )


def _judge_prose(answer: Accepted, offer: OfferedTools, reasoning: str) -> Verdict:
    text, facts = answer.text, answer.facts
    if offer.answer_schema is not None:
        return _judge_answer(answer, reasoning, offer.answer_schema)
    if offer.text_policy is TextPolicy.ACCEPT:
        return answer
    if not text.strip():
        return Rejected(Defect.EMPTY, nudges.correct_silence(offer), answer, facts)
    if offer.text_policy is not TextPolicy.AUTO:
        return Rejected(Defect.PROSE, nudges.correct_prose(text, offer), answer, facts)
    # If a call was read and refused, for example as a quotation, it is not in an unknown syntax.
    is_refused = any(
        isinstance(fact, Refused) and fact.reason != Reason.NOT_A_CALL for fact in facts
    )
    is_call = looks_like_call(text, offer.tools, offer.quotable) or is_broken_call(text, offer)
    if not is_refused and is_call:
        nudge = nudges.correct_unknown_syntax(offer)
        name = _find_name(text, offer)
        return Rejected(Defect.UNKNOWN_SYNTAX, nudge, answer, facts, name, text_without_calls="")
    return _judge_announcement(answer, offer)


def _judge_announcement(answer: Accepted, offer: OfferedTools) -> Verdict:
    """Reject an answer that announces a call, or explains the next step instead of taking it."""
    text, names = answer.text, [tool.name for tool in offer.tools]
    is_auto = offer.text_policy is TextPolicy.AUTO
    if is_auto and announces(text, names):
        nudge = nudges.correct_announcement(text, offer)
        return Rejected(Defect.ANNOUNCED, nudge, answer, answer.facts)
    if is_auto and offer.executed and _explains_next_step(text, names, offer):
        nudge = _report_failure(offer)
        nudge = nudge or nudges.demand_next_step(text, _find_name(text, offer))
        return Rejected(Defect.ANNOUNCED, nudge, answer, answer.facts)
    return answer


def _explains_next_step(text: str, names: Sequence[str], offer: OfferedTools) -> bool:
    """Return whether the model explains to the user how to do the requested work."""
    return instructs_user(text, offer.request, names) and bool(find_open_values(offer))


def _judge_answer(answer: Accepted, reasoning: str, schema: JsonSchema) -> Verdict:
    match check_reply(answer.text, reasoning, schema):
        case ValidAnswer(text, facts):
            return replace(answer, text=text, facts=(*answer.facts, *facts))
        case InvalidAnswer(problems):
            nudge = nudges.correct_answer(answer.text, problems)
            return Rejected(Defect.INVALID_ANSWER, nudge, answer, answer.facts)


def _finish_reason(reply: ReadReply, calls: Sequence[ToolCall]) -> str:
    """Return the finish reason for these calls. If a call was cut off, the reason `length` is kept.

    vLLM also reports `length` for complete calls; in this case the reason becomes `tool_calls`.
    """
    has_cut_call = reply.is_cut_off or Refused("cut_off") in reply.facts
    is_complete = calls and reply.reason == LENGTH and not has_cut_call
    if is_complete or not is_cut(reply.reason):
        return CALLS if calls else STOP
    return reply.reason
