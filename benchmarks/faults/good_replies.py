"""Right replies, some of which are sent in unusual ways."""

from benchmarks.faults import speech
from benchmarks.faults.demands import Call, Demand, RightAnswer
from benchmarks.faults.material import Fault, Manner, Material, Plan
from benchmarks.faults.toxics import LAST_CHUNK, Then, Toxic, chunk, chunked, paced, sends, whole
from benchmarks.load.replies import DONE
from proxy.conversation import json

_PAUSE = 0.05
_HALF = 0.5
_LARGE = 1_500  # deltas; more than fit into all buffers between backend and client
_SEGMENT = 3  # bytes, so that multi-byte characters are split


def as_call(call: Call, material: Material, *, index: int = 0) -> bytes:
    """Return the events of a call, in pieces of a random size."""
    arguments = json.dump_text(call.arguments)
    size = material.chance.choice((1, 5, 20, len(arguments)))
    return speech.call(call.name, speech.pieces(arguments, size), index=index)


def says(*deltas: bytes, reason: str = "stop", then: Then = Then.NEXT) -> Toxic:
    """Return a complete reply."""
    return sends(chunked(speech.reply(*deltas, reason=reason)), then=then)


def calls(call: Call, material: Material) -> Toxic:
    """Return a reply that consists of one call."""
    return says(as_call(call, material), reason="tool_calls")


def calls_only(*made: Call, thoughts: str = "") -> RightAnswer:
    """Return the expected answer that consists of these calls."""
    return RightAnswer(calls=made, reason="tool_calls", thoughts=thoughts)


def _one_call(material: Material) -> Plan:
    call = material.call()
    return Plan(
        material.request(tools=True), (calls(call, material),), Demand(answers=(calls_only(call),))
    )


def _two_calls(material: Material) -> Plan:
    both = (material.call(), material.call())
    deltas = (as_call(call, material, index=index) for index, call in enumerate(both))
    play = says(*deltas, reason="tool_calls")
    return Plan(material.request(tools=True), (play,), Demand(answers=(calls_only(*both),)))


def _thoughts_and_call(material: Material) -> Plan:
    call, thoughts = material.call(), material.text()
    deltas = speech.thoughts(speech.pieces(thoughts))
    play = says(deltas, as_call(call, material), reason="tool_calls")
    demand = Demand(answers=(calls_only(call, thoughts=thoughts),))
    return Plan(material.request(tools=True), (play,), demand)


def _text(material: Material) -> Plan:
    text = material.text(200)
    play = says(speech.text(speech.pieces(text)))
    return Plan(material.request(tools=False), (play,), Demand(answers=(RightAnswer(text),)))


def _thoughts_and_text(material: Material) -> Plan:
    text, thoughts = material.text(), material.text()
    deltas = speech.thoughts(speech.pieces(thoughts)) + speech.text(speech.pieces(text))
    demand = Demand(answers=(RightAnswer(text, thoughts=thoughts),))
    return Plan(material.request(tools=False), (says(deltas),), demand)


def _answer_in_respond(material: Material) -> Plan:
    text = material.text()
    play = calls(Call("respond", {"message": text}), material)
    request = material.request(tools=True).with_header("x-temper-text-policy", "respond")
    return Plan(request, (play,), Demand(answers=(RightAnswer(text),)))


def _answer_and_call(material: Material) -> Plan:
    """Call a tool and `respond` in one reply; Temper forwards the call, and the message as text."""
    text, call = material.text(), material.call()
    both = [Call("respond", {"message": text}), call]
    material.chance.shuffle(both)
    deltas = (as_call(call, material, index=index) for index, call in enumerate(both))
    demand = Demand((RightAnswer(text, (call,), "tool_calls"),))
    request = material.request(tools=True).with_header("x-temper-text-policy", "respond")
    return Plan(request, (says(*deltas, reason="tool_calls"),), demand)


def _accepted_text(material: Material) -> Plan:
    text, has_call = material.text(), material.chance.random() < _HALF
    made = (material.call(),) if has_call else ()
    deltas = [speech.text(speech.pieces(text)), *(as_call(call, material) for call in made)]
    reason = "tool_calls" if made else "stop"
    request = material.request(tools=True).with_header("x-temper-text-policy", "accept")
    return Plan(
        request, (says(*deltas, reason=reason),), Demand((RightAnswer(text, made, reason),))
    )


def _unguarded(material: Material) -> Plan:
    """Write text that looks like a call; the client has turned the guardrails off."""
    text = f'<tool_call>{{"name": "get_weather", "arguments": {{}}}}</tool_call> {material.text()}'
    mode = material.chance.choice(("off", "observe"))
    request = material.request(tools=True).with_header("x-temper-guardrails", mode)
    return Plan(request, (says(speech.text(speech.pieces(text))),), Demand((RightAnswer(text),)))


def _cut_by_length(material: Material) -> Plan:
    text = material.text()
    play = says(speech.text(speech.pieces(text)), reason="length")
    demand = Demand(answers=(RightAnswer(text, reason="length"),))
    return Plan(material.request(tools=material.chance.random() < _HALF), (play,), demand)


def _in_small_segments(material: Material) -> Plan:
    text = material.text()
    play = sends(
        chunked(speech.reply(speech.text(speech.pieces(text)))), size=_SEGMENT, then=Then.NEXT
    )
    return Plan(material.request(tools=False), (play,), Demand(answers=(RightAnswer(text),)))


def _slow_drip(material: Material) -> Plan:
    text = material.text(20)
    start = chunked(speech.START + speech.progress(), is_whole=False)
    chunks = [chunk(speech.text([piece])) for piece in speech.pieces(text)]
    end = chunk(speech.end()) + LAST_CHUNK
    play = paced(start, *chunks, end, seconds=_PAUSE, then=Then.NEXT)
    return Plan(material.request(tools=False), (play,), Demand(answers=(RightAnswer(text),)))


def _to_a_slow_reader(material: Material) -> Plan:
    text = f"{material.text()} " * _LARGE
    deltas = speech.text(speech.pieces(text, len(text) // _LARGE))
    demand = Demand(answers=(RightAnswer(text),))
    return Plan(material.request(tools=False), (says(deltas),), demand, Manner.READS_SLOWLY)


def _in_one_body(material: Material) -> Plan:
    text = material.text()
    play = sends(whole(speech.completion(text)), then=Then.NEXT)
    return Plan(material.request(tools=False), (play,), Demand(answers=(RightAnswer(text),)))


def _unusual_framing(material: Material) -> Plan:
    """Send comments, CRLF, another content type, a 103 head, or no `[DONE]`."""
    text = material.text()
    stream = speech.reply(speech.text(speech.pieces(text)))
    without_mark = stream.removesuffix(DONE)
    odd = (
        sends(chunked(b": hello\n\n" + stream.replace(b"\n", b"\r\n")), then=Then.NEXT),
        sends(whole(stream, kind="application/octet-stream"), then=Then.NEXT),
        sends(b"HTTP/1.1 103 Early Hints\r\n\r\n" + chunked(stream), then=Then.NEXT),
        sends(chunked(without_mark), then=Then.NEXT),
        sends(b"HTTP/1.0 200 OK\r\n\r\n" + without_mark),
    )
    play = material.chance.choice(odd)
    return Plan(material.request(tools=False), (play,), Demand(answers=(RightAnswer(text),)))


def _surplus_after_the_end(material: Material) -> Plan:
    """Close a kept-alive connection, or send surplus bytes; neither may affect other requests."""
    text = material.text()
    stream = chunked(speech.reply(speech.text(speech.pieces(text))))
    play = material.chance.choice(
        (sends(stream), sends(stream + whole(b"{}"), then=Then.NEXT), sends(stream + b"\0\xff"))
    )
    return Plan(material.request(tools=False), (play,), Demand(answers=(RightAnswer(text),)))


FAULTS = (
    Fault("good: a call", 120, _one_call),
    Fault("good: two calls", 30, _two_calls),
    Fault("good: thoughts and a call", 30, _thoughts_and_call),
    Fault("good: text", 120, _text),
    Fault("good: thoughts and text", 30, _thoughts_and_text),
    Fault("good: an answer next to tools", 40, _answer_in_respond),
    Fault("good: an answer and a call", 15, _answer_and_call),
    Fault("good: accepted text", 15, _accepted_text),
    Fault("good: unguarded", 10, _unguarded),
    Fault("good: cut off by length", 20, _cut_by_length),
    Fault("good: in segments of 3 bytes", 20, _in_small_segments),
    Fault("good: a slow drip", 25, _slow_drip),
    Fault("good: to a slow reader", 4, _to_a_slow_reader),
    Fault("good: one body instead of a stream", 20, _in_one_body),
    Fault("good: unusual framing", 30, _unusual_framing),
    Fault("good: surplus bytes after the end", 30, _surplus_after_the_end),
)
