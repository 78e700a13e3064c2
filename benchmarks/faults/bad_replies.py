"""Faults of the model, or of the parser of its server."""

from collections.abc import Sequence

from benchmarks.faults import speech
from benchmarks.faults.demands import Call, Demand, RightAnswer
from benchmarks.faults.good_replies import as_call, calls, calls_only, says
from benchmarks.faults.material import Fault, Material, Plan
from benchmarks.faults.toxics import Then, Toxic, chunked, sends, whole
from benchmarks.load.replies import event_of
from proxy.conversation import json
from proxy.conversation.json import JsonObject

_MOST = 3  # the limit of upstream requests for one request of a client
_LOST = "The model produced output that does not match the expected peg-native format"
_SILENT = RightAnswer()  # an answer with neither text nor calls


def _prose(text: str) -> Toxic:
    return says(speech.text(speech.pieces(text)))


def _as_json(call: Call) -> str:
    call_members: JsonObject = {"name": call.name, "arguments": call.arguments}
    return json.dump_text(call_members)


def _plan(material: Material, plays: Sequence[Toxic], demand: Demand) -> Plan:
    return Plan(material.request(tools=True), tuple(plays), demand)


def _call_as_text(material: Material) -> Plan:
    """Write a call in the syntax of another model family."""
    call = material.call()
    raw = _as_json(call)
    text = material.chance.choice(
        (
            f"<tool_call>\n{raw}\n</tool_call>",
            f"```json\n{raw}\n```",
            raw,
            f"[TOOL_CALLS][{raw}]",
            f"<|python_tag|>{raw}",
        )
    )
    return _plan(material, (_prose(text),), Demand(answers=(calls_only(call),)))


def _wrong_types(material: Material) -> Plan:
    """Write a number as a string, or a list as its JSON text."""
    call = material.call()
    wrong: JsonObject = {
        name: json.dump_text(value)
        for name, value in call.arguments.items()
        if not isinstance(value, str)
    }
    changed = Call(call.name, {**call.arguments, **wrong})
    return _plan(material, (calls(changed, material),), Demand(answers=(calls_only(call),)))


def _near_miss(material: Material) -> Plan:
    call = material.call()
    first, second = call.name.split("_")
    names = (call.name.title(), f"{first}-{second}", f"functions.{call.name}")
    misnamed = Call(material.chance.choice(names), call.arguments)
    return _plan(material, (calls(misnamed, material),), Demand(answers=(calls_only(call),)))


def _broken_json(material: Material) -> Plan:
    """Write arguments with a trailing comma, single quotes, or without the closing brace."""
    call = material.call()
    raw = json.dump_text(call.arguments)
    broken = [f"{raw[:-1]},}}", raw.replace('"', "'")]
    if not raw[-2].isdigit():  # a number without the closing brace may be incomplete
        broken.append(raw[:-1])
    text = material.chance.choice(broken)
    play = says(speech.call(call.name, speech.pieces(text)), reason="tool_calls")
    return _plan(material, (play,), Demand(answers=(calls_only(call),)))


def _unrepairable_call(material: Material) -> Toxic:
    """Return a reply with a call that cannot be repaired."""
    bad = (
        Call("launch_rocket", {"target": "moon"}),
        Call("get_weather", {}),
        Call("get_weather", {"city": "Oslo", "days": "many"}),
        Call("write_note", {"title": 7, "lines": None}),
    )
    return calls(material.chance.choice(bad), material)


def _good_after_a_nudge(material: Material) -> Plan:
    call = material.call()
    demand = Demand((calls_only(call),), withheld=(_SILENT,), may_break_off=True, attempts=_MOST)
    return _plan(material, (_unrepairable_call(material), calls(call, material)), demand)


def _good_if_constrained(material: Material) -> Plan:
    call = material.call()
    plays = (_unrepairable_call(material), _unrepairable_call(material), _prose(_as_json(call)))
    demand = Demand((calls_only(call),), withheld=(_SILENT,), may_break_off=True, attempts=_MOST)
    return _plan(material, plays, demand)


def _never_good(material: Material) -> Plan:
    plays = tuple(_unrepairable_call(material) for _ in range(_MOST))
    demand = Demand((_SILENT,), has_apology=True, may_break_off=True, attempts=_MOST)
    return _plan(material, plays, demand)


def _prose_then_call(material: Material) -> Plan:
    text, call = material.text(), material.call()
    # The prose may be the answer: Temper accepts it unless it announces a call or follows a tool
    # result.
    demand = Demand((calls_only(call), RightAnswer(text)), attempts=_MOST)
    return _plan(material, (_prose(text), calls(call, material)), demand)


def _only_prose(material: Material) -> Plan:
    first, second = material.text(), material.text()
    demand = Demand((RightAnswer(second), RightAnswer(first)), attempts=_MOST)
    return _plan(material, (_prose(first), _prose(second)), demand)


def _quoted_call(material: Material) -> Plan:
    """Quote a call as an example in a text; Temper must not turn it into a call."""
    example = f"<tool_call>{_as_json(material.call())}</tool_call>"
    text = f"For example, one could write `{example}` here. {material.text()}."
    return _plan(material, (_prose(text),), Demand((RightAnswer(text),), attempts=_MOST))


def _parser_fails(material: Material) -> Plan:
    """Report a parser error as a status or in the stream; a retry without tools gets raw text."""
    call = material.call()
    failure = speech.failure(500, _LOST)
    lost = material.chance.choice(
        (
            sends(whole(json.dump(failure), status="500 Internal Server Error"), then=Then.NEXT),
            sends(chunked(speech.START + event_of(failure)), then=Then.NEXT),
        )
    )
    raw = _prose(f"<tool_call>\n{_as_json(call)}\n</tool_call>")
    demand = Demand((calls_only(call),), withheld=(_SILENT,), attempts=_MOST)
    return _plan(material, (lost, raw), demand)


def _call_cut_off(material: Material) -> Plan:
    call = material.forecast()
    cut = json.dump_text(call.arguments)[:-5]
    play = says(speech.call(call.name, speech.pieces(cut)), reason="length")
    return _plan(material, (play,), Demand((RightAnswer(reason="length"),), attempts=_MOST))


def _too_many_calls(material: Material) -> Plan:
    """Make two calls although the client allows one call at a time."""
    first, second = material.call(), material.call()
    deltas = as_call(first, material) + as_call(second, material, index=1)
    request = material.request(tools=True, parallel_tool_calls=False)
    demand = Demand((calls_only(first),))
    return Plan(request, (says(deltas, reason="tool_calls"),), demand)


def _prose_despite_tool_choice(material: Material) -> Plan:
    """Write prose although the client requires a call."""
    text, call = material.text(), material.call()
    request = material.request(tools=True, tool_choice="required")
    demand = Demand((calls_only(call),), withheld=(RightAnswer(text),), attempts=_MOST)
    return Plan(request, (_prose(text), calls(call, material)), demand)


def _wrong_tool(material: Material) -> Plan:
    """Call a tool other than the one that the client named."""
    wrong, call = Call("write_note", {"title": "a", "lines": []}), material.forecast()
    named: JsonObject = {"type": "function", "function": {"name": call.name}}
    request = material.request(tools=True, tool_choice=named)
    demand = Demand((calls_only(call),), withheld=(_SILENT,), attempts=_MOST)
    return Plan(request, (calls(wrong, material), calls(call, material)), demand)


def _prose_despite_schema(material: Material) -> Plan:
    """Answer in prose although the client requires JSON of a schema."""
    text, answer = material.text(), json.dump_text({"summary": material.text()})
    form: JsonObject = {
        "type": "object",
        "properties": {"summary": {"type": "string"}},
        "required": ["summary"],
        "additionalProperties": False,
    }
    described: JsonObject = {"name": "answer", "schema": form}
    request = material.request(
        tools=True, response_format={"type": "json_schema", "json_schema": described}
    )
    demand = Demand((RightAnswer(answer),), withheld=(RightAnswer(text),), attempts=_MOST)
    return Plan(request, (_prose(text), _prose(answer)), demand)


def _text_and_bad_call(material: Material) -> Plan:
    """Send a text and a bad call; the client has received the text, so only the call is retried."""
    text, call = material.text(), material.call()
    bad = speech.call("launch_rocket", ["{}"])
    first = says(speech.text(speech.pieces(text)), bad, reason="tool_calls")
    request = material.request(tools=True).with_header("x-temper-text-policy", "accept")
    demand = Demand(
        (RightAnswer(text, (call,), "tool_calls"),), withheld=(RightAnswer(text),), attempts=_MOST
    )
    return Plan(request, (first, calls(call, material)), demand)


def _good_and_bad_call(material: Material) -> Plan:
    """Make a good call and a bad call; Temper retries both, and uses the good call if that fails.

    In a stream, the client may have received the good call before the bad call arrived.
    """
    good, wanted = material.call(), material.call()
    deltas = as_call(good, material) + speech.call("launch_rocket", ["{}"], index=1)
    first = says(deltas, reason="tool_calls")
    answers = (calls_only(wanted), calls_only(good, wanted))
    demand = Demand(answers, withheld=(calls_only(good),), attempts=_MOST)
    return _plan(material, (first, calls(wanted, material)), demand)


def _same_id_twice(material: Material) -> Plan:
    both = (material.call(), material.call())
    deltas = b"".join(as_call(call, material, index=index) for index, call in enumerate(both))
    same = material.chance.choice((b'"id":"call_0"', b'"id":""', b'"id":null'))
    deltas = deltas.replace(b'"id":"call_0"', same).replace(b'"id":"call_1"', same)
    demand = Demand((calls_only(*both),))
    return _plan(material, (says(deltas, reason="tool_calls"),), demand)


def _prose_then_failure(material: Material) -> Plan:
    """Fail the second attempt; the reply of the first attempt is then the answer."""
    text = material.text()
    demand = Demand((RightAnswer(text),), attempts=_MOST)
    return _plan(material, (_prose(text), _failure(material)), demand)


def _bad_then_failure(material: Material) -> Plan:
    failures = frozenset({429, 502, 504})
    demand = Demand(withheld=(_SILENT,), failures=failures, may_break_off=True, attempts=_MOST)
    return _plan(material, (_unrepairable_call(material), _failure(material)), demand)


def _failure(material: Material) -> Toxic:
    return material.chance.choice(
        (
            sends(b"", then=Then.RESET),
            sends(b"", then=Then.SILENCE),
            sends(chunked(speech.START, is_whole=False), then=Then.HALF_CLOSE),
            sends(b"SSH-2.0-OpenSSH_9.2\r\n"),
            sends(whole(b"{}", status="429 Too Many Requests"), then=Then.NEXT),
            sends(whole(b"{}", status="500 Internal Server Error"), then=Then.NEXT),
        )
    )


FAULTS = (
    Fault("model: a call written as text", 40, _call_as_text),
    Fault("model: arguments of wrong types", 25, _wrong_types),
    Fault("model: a near miss of a name", 15, _near_miss),
    Fault("model: arguments of broken JSON", 20, _broken_json),
    Fault("model: a bad call, good after a retry", 15, _good_after_a_nudge),
    Fault("model: two bad calls, then a constrained one", 8, _good_if_constrained),
    Fault("model: bad calls only", 8, _never_good),
    Fault("model: prose, a call after a retry", 8, _prose_then_call),
    Fault("model: prose only", 8, _only_prose),
    Fault("model: a call quoted in prose", 8, _quoted_call),
    Fault("model: a reply that its server cannot parse", 15, _parser_fails),
    Fault("model: a call cut off by length", 10, _call_cut_off),
    Fault("model: two calls where one is allowed", 8, _too_many_calls),
    Fault("model: prose where a call is demanded", 8, _prose_despite_tool_choice),
    Fault("model: another tool than the one named", 8, _wrong_tool),
    Fault("model: prose where a form is demanded", 8, _prose_despite_schema),
    Fault("model: text, then a bad call", 10, _text_and_bad_call),
    Fault("model: a good call and a bad one", 8, _good_and_bad_call),
    Fault("model: calls with the same id, or none", 10, _same_id_twice),
    Fault("model: prose, then its server fails", 8, _prose_then_failure),
    Fault("model: a bad call, then its server fails", 8, _bad_then_failure),
)
