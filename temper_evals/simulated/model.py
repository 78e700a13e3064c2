"""The simulated model: the right reply to each prompt, or at random a flawed reply.

The oracle of the task (`PlannedTask.position`) gives the right next step. A random number then
selects a flaw, or none, by the rates of the profile. The number depends only on the case, the step
and the number of tries. So the model makes the same errors in all arms, and only the arms can cause
a difference between their results.

After an error, the model repeats its flaw until a second draw corrects it. The chance of a
correction depends on the messages after the error: no message, a generic message, or a message that
names a tool or a parameter. The wording of messages has no other effect, so a proxy cannot gain by
phrasing.

If the engine or a schema prevents the drawn flaw, the reply is right. No other flaw is drawn
instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jsonschema_rs

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.invention import invent_arguments
from temper_evals.scenarios.scenario import CallTools, GiveAnswer, PlannedCall, Position
from temper_evals.scenarios.suite import HELD_OUT
from temper_evals.scenarios.worlds import schema_of, tool_name
from temper_evals.simulated import renderings, small_models
from temper_evals.simulated.draws import draws_of, uniform
from temper_evals.simulated.profiles import (
    AFTER_RESULTS,
    BEFORE_ANSWERS,
    BEFORE_CALLS,
    OF_FORM,
    OF_PROSE,
    REPEATING,
    UNSEEN,
    Flaw,
    ModelProfile,
    Reaction,
)
from temper_evals.simulated.request import SimulatedRequest, text_parameter

_MISSING_CONTEXT = "I do not know how to go on: a part of the conversation is missing."
_FAMILIES_WITHOUT_CALLS = ("none", "ask")
# an invented tool has the name of an offered tool with one of these suffixes
_INVENTED_SUFFIXES = ("info", "v2", "details", "lookup")
_CALL_AS_TEXT = "<tool_call>\n{call}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class WrittenReply:
    """The content of a reply; each call is a name and its arguments as JSON text.

    The `flaw` is recorded for the statistics, and not sent. If the reply `runs_away`, its text is
    repeated until the token limit of the request.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    flaw: Flaw | None = None
    runs_away: bool = False


@dataclass(frozen=True, slots=True)
class _Moment:
    """A request, its position in the conversation, and the random numbers of the reply."""

    request: SimulatedRequest
    position: Position
    profile: ModelProfile
    is_constrained: bool

    def luck(self, what: str, tries: int | None = None) -> float:
        """Return the random number in [0, 1) for a decision such as "flaw" or "correction"."""
        tries = self.position.tries if tries is None else tries
        return uniform(
            self.request.seed, self.request.task.name, self.position.progress, tries, what
        )

    @property
    def is_held_out(self) -> bool:
        """True if a flawed reply uses the renderings of the second author."""
        return self.request.task.family in HELD_OUT

    def chance(self, reaction: Reaction) -> float:
        return self.profile.reactions[reaction]

    @property
    def answer_tool(self) -> JsonObject | None:
        """The proxy's answer tool; if a reply is constrained, only the schema may contain it."""
        return self.request.answer_tool or (
            self.request.hidden_answer_tool if self.is_constrained else None
        )

    @property
    def key(self) -> tuple[str | int, ...]:
        return (
            self.request.seed,
            self.request.task.name,
            self.position.progress,
            self.position.tries,
        )


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """A model with a profile; it has no state."""

    profile: ModelProfile

    def reply(self, request: SimulatedRequest) -> WrittenReply:
        position = request.task.position(request.messages)
        is_constrained = _is_constrained(request)
        moment = _Moment(request, position, self.profile, is_constrained)
        match position.action:
            case CallTools(calls):
                reply = _write_calls(moment, calls)
            case GiveAnswer(text):
                reply = _write_answer(moment, text)
            case _:
                reply = WrittenReply(_MISSING_CONTEXT)
        return _encode_calls(reply, moment)


def _write_calls(moment: _Moment, calls: tuple[PlannedCall, ...]) -> WrittenReply:
    if moment.request.task.expected.single:
        calls = calls[:1]
    flaw = _choose_flaw(moment, _possible_flaws(moment, calls))
    if flaw is not None and moment.is_constrained and flaw is not Flaw.WRONG_VALUE:
        flaw = _constrained_flaw(moment, flaw)
    if flaw is None:
        return _right_reply(calls)
    write = _write_after_result if flaw in AFTER_RESULTS else _write_flawed
    return write(moment, calls, flaw)


def _right_reply(calls: Sequence[PlannedCall]) -> WrittenReply:
    return WrittenReply(calls=tuple((call.name, json.dump_text(call.arguments)) for call in calls))


def _possible_flaws(moment: _Moment, calls: tuple[PlannedCall, ...]) -> list[Flaw]:
    """List the flaws that a reply with these calls can have, in the order of the draw."""
    is_first = moment.position.progress == 0
    flaws = [Flaw.PROSE_FIRST if is_first else Flaw.PROSE_LATER]
    flaws += [Flaw.FOREIGN, Flaw.BROKEN_JSON, Flaw.WRONG_NAME, Flaw.MISSING, Flaw.WRONG_TYPE]
    flaws += [Flaw.WRONG_VALUE]
    flaws += [] if is_first else [Flaw.REPEATED, Flaw.EARLY_STOP]
    flaws += [Flaw.WRONG_COUNT] if len(calls) > 1 else []
    return flaws + _flaws_after_results(moment, BEFORE_CALLS)


def _flaws_after_results(moment: _Moment, flaws: Sequence[Flaw]) -> list[Flaw]:
    """List the `flaws` that the profile has; empty before a tool result or without tools."""
    known = [flaw for flaw in flaws if moment.profile.rates.get(flaw)]
    is_later = moment.position.progress > 0 and bool(moment.request.tools)
    return known if known and is_later and small_models.executed(moment.request.messages) else []


def _choose_flaw(moment: _Moment, possible: list[Flaw]) -> Flaw | None:
    """Draw the flaw of a reply.

    In the first try, draw a flaw. In a later try, draw whether the flaw of the first try is
    corrected; if the first try had no flaw, draw a flaw for this try.
    """
    first, tries = _draw_flaw(moment, possible, 0), moment.position.tries
    if tries == 0:
        return first
    if first is None:
        return _draw_flaw(moment, possible, tries)
    if first is Flaw.WRONG_VALUE and moment.is_constrained:
        return first
    return None if _is_corrected(moment, first) else first


def _is_corrected(moment: _Moment, flaw: Flaw) -> bool:
    """Draw whether the model corrects its flaw after the messages that followed it."""
    request = moment.request
    # Qwen2.5-Coder repeats a call after each execution, so an identical result corrects nothing
    if flaw in AFTER_RESULTS:
        request = replace(request, messages=small_models.without_same_results(request.messages))
    return moment.luck("correction") < moment.chance(_reaction(request))


def _draw_flaw(moment: _Moment, possible: list[Flaw], tries: int) -> Flaw | None:
    luck, rates = moment.luck("flaw", tries), _rates(moment)
    for flaw in possible:
        luck -= rates.get(flaw, 0.0)
        if luck < 0:
            return None if _is_prevented(flaw, moment) else flaw
    return None


def _rates(moment: _Moment) -> Mapping[Flaw, float]:
    """Return the error rates of a reply.

    After a failed tool, early stops and repetitions are at least as frequent as in real models.
    """
    rates = moment.profile.rates
    if not (moment.position.after_failure and rates.get(Flaw.EARLY_STOP)):
        return rates
    stops = moment.chance(Reaction.GIVES_UP) - rates.get(Flaw.PROSE_LATER, 0.0)
    fails = moment.chance(Reaction.FAILS_AGAIN)
    fails -= sum(rates.get(flaw, 0.0) for flaw in (*OF_FORM, Flaw.WRONG_VALUE))
    least = {Flaw.EARLY_STOP: stops, Flaw.REPEATED: fails}
    return {**rates, **{flaw: max(rates.get(flaw, 0.0), rate) for flaw, rate in least.items()}}


def _is_prevented(flaw: Flaw, moment: _Moment) -> bool:
    """Return whether a grammar or the tool choice prevents this flaw."""
    by_grammar = flaw in OF_FORM and moment.profile.holds_form
    return by_grammar or (flaw in (OF_PROSE | AFTER_RESULTS) and moment.request.forces_call)


def _reaction(request: SimulatedRequest) -> Reaction:
    """Return how specific the messages after the model's last reply are about its error."""
    replies = [
        index
        for index, message in enumerate(request.messages)
        if message.get("role") == "assistant"
    ]
    reports = request.messages[replies[-1] + 1 :] if replies else ()
    if not reports:
        return Reaction.UNCHANGED
    text = "\n".join(str(message.get("content")) for message in reports)
    names = [tool_name(tool) for tool in request.tools]
    calls = (call for step in request.task.steps for call in step.calls)
    parameters = [name for call in calls for name in call.arguments]
    is_specific = any(_mentions(text, name) for name in (*names, *parameters))
    return Reaction.SPECIFIC if is_specific else Reaction.GENERIC


def _mentions(text: str, name: str) -> bool:
    """Return whether a text contains a name as a whole word."""
    before, match, after = text.partition(name)
    is_word = bool(match) and not (before[-1:].isalnum() or after[:1].isalnum())
    return is_word or (bool(match) and _mentions(after, name))


def _constrained_flaw(moment: _Moment, flaw: Flaw) -> Flaw | None:
    """Return the flaw that remains in a constrained reply; None if the reply becomes right."""
    if flaw in REPEATING:
        again = _right_reply(small_models.executed_calls(moment.request.messages)[-1:]).calls
        return Flaw.REPEATED_TEXT if _as_allowed_json(again, moment) is not None else None
    if moment.luck("constrained") < moment.chance(Reaction.CONSTRAINED_ERROR):
        return Flaw.WRONG_VALUE
    tool = moment.answer_tool
    may_answer = tool is not None and _as_allowed_json([_answer_call(tool, "")], moment) is not None
    return flaw if flaw in OF_PROSE and may_answer else None


def _write_flawed(moment: _Moment, calls: tuple[PlannedCall, ...], flaw: Flaw) -> WrittenReply:
    draw = draws_of(*moment.key, "rendering")
    call = calls[0]
    if flaw in OF_PROSE:
        if word := moment.request.closing_word:
            return WrittenReply(word, flaw=flaw)
        kind = "early" if flaw is Flaw.EARLY_STOP else "prose"
        return _say(moment, renderings.prose(kind, call, draw, held_out=moment.is_held_out), flaw)
    if flaw is Flaw.FOREIGN:
        text = renderings.foreign(calls, draw, held_out=moment.is_held_out)
        return WrittenReply(text, flaw=flaw)
    if flaw is Flaw.REPEATED:
        return _repeat_call(moment, calls)
    if flaw is Flaw.WRONG_COUNT:
        changed = calls[:1] if moment.luck("count") < 0.5 else (*calls, calls[0])
        return WrittenReply(calls=_right_reply(changed).calls, flaw=flaw)
    name, text = _spoil_call(moment, call, flaw)
    other_calls = _right_reply(calls[1:]).calls
    return WrittenReply(calls=((name, text), *other_calls), flaw=flaw)


def _spoil_call(moment: _Moment, call: PlannedCall, flaw: Flaw) -> tuple[str, str]:
    """Write a call with a flaw in its name or its arguments."""
    draw, held_out = draws_of(*moment.key, "rendering"), moment.is_held_out
    schema = schema_of(moment.request.task.setting.tools, call.name) or {}
    match flaw:
        case Flaw.BROKEN_JSON:
            return call.name, renderings.broken_json(call, draw, held_out=held_out)
        case Flaw.WRONG_NAME:
            name = renderings.wrong_name(call, draw, held_out=held_out)
            return name, json.dump_text(call.arguments)
        case Flaw.MISSING:
            return call.name, json.dump_text(renderings.missing(call, draw)[0])
        case Flaw.WRONG_TYPE:
            arguments, _ = renderings.wrong_type(call, schema, draw, held_out=held_out)
            return call.name, json.dump_text(arguments)
        case _:
            return call.name, json.dump_text(renderings.wrong_value(call, schema, draw))


def _repeat_call(moment: _Moment, calls: tuple[PlannedCall, ...]) -> WrittenReply:
    """Make the last step's call again."""
    done = moment.request.task.calls[: moment.position.progress]
    again = done[-1:] or calls
    return WrittenReply(calls=_right_reply(again).calls, flaw=Flaw.REPEATED)


def _write_after_result(
    moment: _Moment, next_calls: tuple[PlannedCall, ...], flaw: Flaw
) -> WrittenReply:
    """Return a flawed reply after a tool result; `next_calls` is empty if the task is done."""
    executed = small_models.executed(moment.request.messages)
    if moment.is_constrained:
        return WrittenReply(calls=_right_reply([executed[-1][0]]).calls, flaw=flaw)
    draw = draws_of(*moment.key, "rendering")
    text = small_models.flawed_text(flaw, executed, next_calls, moment.profile, draw=draw)
    return WrittenReply(text, flaw=flaw, runs_away=flaw is Flaw.RUNAWAY)


def _write_answer(moment: _Moment, text: str) -> WrittenReply:
    if moment.request.forces_call:
        return _call_needlessly(moment)
    if (flawed := _write_flawed_answer(moment)) is not None:
        return flawed
    if word := moment.request.closing_word:
        return WrittenReply(word)
    quoted = moment.request.task.expected.quoted
    if quoted is not None and moment.luck("quoted") < moment.profile.rates.get(Flaw.QUOTED, 0.0):
        draw = draws_of(*moment.key, "rendering")
        call_text = renderings.foreign((quoted,), draw, held_out=moment.is_held_out)
        return _say(moment, f"{text}\n\n{call_text}", Flaw.QUOTED)
    return _say(moment, text, None)


def _write_flawed_answer(moment: _Moment) -> WrittenReply | None:
    """Return a flawed reply in place of the answer, such as a needless call; None for no flaw."""
    flaw = _choose_flaw(moment, _flaws_after_results(moment, BEFORE_ANSWERS))
    if flaw is not None and moment.is_constrained:
        flaw = _constrained_flaw(moment, flaw) if flaw in REPEATING else None
    if flaw is not None:
        return _write_after_result(moment, (), flaw)
    if _is_needless(moment, Flaw.NEEDLESS_CALL) or _over_acts(moment):
        return _shape_needless(moment)
    is_made_up = _is_needless(moment, Flaw.PLACEHOLDERS)
    return _call_needlessly(moment, Flaw.PLACEHOLDERS) if is_made_up else None


def _is_needless(moment: _Moment, flaw: Flaw) -> bool:
    """Draw whether the model calls a tool at once instead of answering or asking."""
    rate = moment.profile.rates.get(flaw, 0.0)
    is_open = (
        moment.request.task.family in _FAMILIES_WITHOUT_CALLS and moment.position.progress == 0
    )
    luck = "needless" if flaw is Flaw.NEEDLESS_CALL else flaw.value
    if not is_open or moment.luck(luck, 0) >= rate:
        return False
    if moment.position.tries > 0 and _is_corrected(moment, flaw):
        return False
    helps = moment.chance(Reaction.ANSWER_TOOL_RESTRAINT)
    return moment.request.answer_tool is None or moment.luck("restraint", 0) >= helps


def _over_acts(moment: _Moment) -> bool:
    """Draw whether a model that has answered makes a call after a further user message."""
    errs = not moment.profile.rates.keys() <= UNSEEN
    is_asked = moment.position.tries > 0 and moment.request.messages[-1].get("role") == "user"
    return errs and is_asked and moment.luck("over-acting") < moment.chance(Reaction.OVER_ACTING)


def _shape_needless(moment: _Moment) -> WrittenReply:
    """Return a needless call: valid, of an invented tool, with invented arguments, or as text."""
    reply = _call_needlessly(moment)
    if not reply.calls:
        return reply
    (name, text), luck = reply.calls[0], moment.luck("needless shape", 0)
    arguments = _parse_arguments(text)
    known = arguments if isinstance(arguments, dict) else {}
    draw = draws_of(*moment.key, "rendering")
    if (luck := luck - moment.chance(Reaction.NEEDLESS_INVENTED)) < 0:
        return replace(reply, calls=((f"{name}_{draw.choice(_INVENTED_SUFFIXES)}", text),))
    if (luck := luck - moment.chance(Reaction.NEEDLESS_ARGUMENTS)) < 0:
        return replace(reply, calls=((name, json.dump_text({"value": [*known.values()]})),))
    if luck < moment.chance(Reaction.NEEDLESS_TEXT):
        call = PlannedCall(name, known)
        call_text = renderings.foreign((call,), draw, held_out=moment.is_held_out)
        return WrittenReply(call_text, flaw=Flaw.NEEDLESS_CALL)
    return reply


def _call_needlessly(moment: _Moment, flaw: Flaw = Flaw.NEEDLESS_CALL) -> WrittenReply:
    draw = draws_of(*moment.key, "needless")
    known = [tool for tool in moment.request.tools if tool != moment.request.answer_tool]
    names = [tool_name(tool) for tool in known if moment.request.named in ("", tool_name(tool))]
    if moment.is_constrained and (allowed := moment.request.allowed):
        names = [name for name in names if name in allowed]
    if not names:
        return WrittenReply(_MISSING_CONTEXT)
    name = draw.choice(names)
    schema = schema_of(moment.request.tools, name) or {}
    arguments = invent_arguments(schema, draw)
    if flaw is Flaw.PLACEHOLDERS:
        arguments = small_models.with_placeholders(arguments, schema)
    return WrittenReply(calls=((name, json.dump_text(arguments)),), flaw=flaw)


def _say(moment: _Moment, text: str, flaw: Flaw | None) -> WrittenReply:
    """Return a text, as a call of the answer tool if the model uses this tool."""
    tool = moment.answer_tool
    uses_it = moment.luck("answer tool") < moment.chance(Reaction.ANSWER_TOOL)
    if tool is None or not (uses_it or moment.is_constrained):
        return WrittenReply(text, flaw=flaw)
    return WrittenReply(calls=(_answer_call(tool, text),), flaw=flaw)


def _answer_call(tool: JsonObject, text: str) -> tuple[str, str]:
    return tool_name(tool), json.dump_text({text_parameter(tool): text})


def _is_constrained(request: SimulatedRequest) -> bool:
    """Return whether the schema is for calls, and is not the task's own response format."""
    response_format = request.task.fields.get("response_format")
    own_schema = json.dump_text(response_format) if response_format else ""
    return request.schema is not None and json.dump_text(request.schema) not in own_schema


def _encode_calls(reply: WrittenReply, moment: _Moment) -> WrittenReply:
    """Write the calls of a reply as JSON of the schema, as structured calls, or as text."""
    if moment.is_constrained and moment.request.schema is not None:
        return WrittenReply(_fit_schema(reply, moment), flaw=reply.flaw)
    forms = () if moment.request.forces_call else moment.profile.call_forms
    if not reply.calls or not (forms or moment.request.choice == "none"):
        return reply
    form = draws_of(*moment.key, "form").choice(forms) if forms else _CALL_AS_TEXT
    parsed = [(name, _parse_arguments(text)) for name, text in reply.calls]
    lines = [
        form.replace("{call}", json.dump_text({"name": name, "arguments": arguments}))
        for name, arguments in parsed
    ]
    flaw = reply.flaw or (Flaw.FOREIGN if forms else None)
    return WrittenReply("\n".join((reply.text, *lines)).strip(), flaw=flaw)


def _parse_arguments(text: str) -> JsonValue:
    """Parse the arguments of a call; invalid JSON remains a text."""
    try:
        return json.parse(text)
    except ValueError:
        return text


def _fit_schema(reply: WrittenReply, moment: _Moment) -> str:
    """Return the calls of the reply as JSON that the schema allows.

    If the schema does not allow these calls, the right call is returned; if there is no right call,
    a needless call is returned. For example, a schema may fix arguments that were already sent,
    which excludes a wrong value.
    """
    right = (
        moment.position.action.calls[:1] if isinstance(moment.position.action, CallTools) else ()
    )
    for calls in (reply.calls, _right_reply(right).calls, _call_needlessly(moment).calls):
        if (allowed_json := _as_allowed_json(calls, moment)) is not None:
            return json.dump_text(allowed_json)
    return json.dump_text(invent_arguments(moment.request.schema or {}, draws_of(*moment.key)))


def _as_allowed_json(calls: Sequence[tuple[str, str]], moment: _Moment) -> JsonValue:
    """Return calls as the first of `_json_shapes` that the request's schema allows, or None."""
    validator = jsonschema_rs.validator_for(moment.request.schema or {})
    return next((shape for shape in _json_shapes(calls) if validator.is_valid(shape)), None)


def _json_shapes(calls: Sequence[tuple[str, str]]) -> list[JsonValue]:
    """Write calls in all common JSON shapes, such as `{"name": ..., "arguments": ...}`."""
    parsed = [(name, _parse_arguments(text)) for name, text in calls]
    shapes: list[JsonValue] = []
    for member in ("arguments", "parameters"):
        named: list[JsonValue] = [{"name": name, member: arguments} for name, arguments in parsed]
        shapes += [*named[:1], named, {"tool_calls": named}]
    shapes += [{"tool": name, "arguments": arguments} for name, arguments in parsed[:1]]
    shapes += [{name: arguments} for name, arguments in parsed[:1]]
    return shapes
