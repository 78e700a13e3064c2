"""Faults of clients: invalid requests and disconnects."""

from dataclasses import replace

from benchmarks.faults import speech
from benchmarks.faults.demands import Call, Demand, RightAnswer
from benchmarks.faults.good_replies import calls, says
from benchmarks.faults.material import ChatRequest, Fault, Manner, Material, Plan
from benchmarks.faults.toxics import Then, Toxic, chunk, chunked, repeats, sends

_PAUSE = 0.05

# Each of these JSON members makes a request invalid.
_BAD_MEMBERS = (
    b'"messages": 5',
    b'"messages": []',
    b'"messages": [{"role": "wizard", "content": "hi"}]',
    b'"messages": [{"role": "user", "content": {"a": 1}}]',
    b'"messages": [{"role": "user", "content": "\\ud800"}]',
    b'"messages": [{"role": "user", "content": "hi"}], "messages": []',
    b'"messages": [{"role": "user", "content": "hi"}], "temperature": NaN',
    b'"messages": [{"role": "user", "content": "hi"}], "temperature": 1e999',
    b'"messages": [{"role": "user", "content": "hi"}], "temperature": "hot"',
    b'"messages": [{"role": "user", "content": "hi"}], "tools": "all"',
    b'"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}]',
    b'"messages": [{"role": "user", "content": "hi"}], "tool_choice": 7',
    b'"messages": [{"role": "user", "content": "hi"}], "stream": "yes"',
    b'"messages": [{"role": "user", "content": "\xff"}]',
    b'"messages": [{"role": "user", "content": "hi"}], "x": ' + b"[" * 5_000,
)
_BAD_BODIES = (b"", b"{", b"[1]", b"null", b'"hi"', b"\xef\xbb\xbf{}", b"{}", b"\0")


def _bad_body(material: Material) -> Plan:
    body = material.chance.choice(_BAD_BODIES)
    return _refused(ChatRequest(body, material.headers()), 400)


def _bad_member(material: Material) -> Plan:
    member = material.chance.choice(_BAD_MEMBERS)
    body = b'{"model": "steady", %s}' % member
    return _refused(ChatRequest(body, material.headers()), 400)


def _wrong_target(material: Material) -> Plan:
    request = material.request(tools=False)
    wrong = (
        (replace(request, headers=material.headers(**{"content-type": "text/plain"})), 415),
        (replace(request, headers=material.headers(**{"content-encoding": "gzip"})), 400),
        (replace(request, headers=material.headers(**{"x-temper-text-policy": "dance"})), 400),
        (replace(request, path="/v1/chat/nothing"), 404),
        (replace(request, method="PUT"), 405),
        (material.request(tools=False, model="nobody"), 404),
    )
    return _refused(*material.chance.choice(wrong))


def _refused(request: ChatRequest, status: int) -> Plan:
    return Plan(request, demand=Demand(failures=frozenset({status}), attempts=0))


def _disconnects_early(material: Material) -> Plan:
    """Disconnect while the backend sends nothing, or only progress events."""
    play = material.chance.choice(
        (
            sends(b"", then=Then.SILENCE),
            sends(chunked(speech.START, is_whole=False), then=Then.SILENCE),
            repeats(chunked(is_whole=False), chunk(speech.progress()), seconds=_PAUSE),
        )
    )
    request = material.request(tools=material.chance.random() < 0.5)
    return Plan(request, (play,), manner=Manner.DISCONNECTS_EARLY)


def _disconnects_in_second_attempt(material: Material) -> Plan:
    bad = calls(Call("launch_rocket", {}), material)
    plays = (bad, sends(b"", then=Then.SILENCE))
    demand = Demand(withheld=(RightAnswer(),), attempts=2)
    return Plan(material.request(tools=True), plays, demand, Manner.DISCONNECTS_EARLY)


def _endless_text(seconds: float) -> Toxic:
    events = chunk(speech.text(["on and on "] * (1 if seconds else 100)))
    return repeats(chunked(speech.START, is_whole=False), events, seconds=seconds)


def _disconnects_within_stream(material: Material) -> Plan:
    request = material.request(tools=False, stream=True)
    return Plan(request, (_endless_text(_PAUSE),), manner=Manner.DISCONNECTS_WITHIN_RESPONSE)


def _disconnects_before_whole_answer(material: Material) -> Plan:
    request = material.request(tools=False, stream=False)
    return Plan(request, (_endless_text(_PAUSE),), manner=Manner.DISCONNECTS_EARLY)


def _disconnects_while_sending(material: Material) -> Plan:
    request = material.request(tools=False)
    return Plan(request, demand=Demand(attempts=0), manner=Manner.DISCONNECTS_WHILE_SENDING)


def _stops_sending(material: Material) -> Plan:
    demand = Demand(failures=frozenset({408}), attempts=0)
    return Plan(material.request(tools=False), demand=demand, manner=Manner.STOPS_SENDING)


def _stops_reading(material: Material) -> Plan:
    request = material.request(tools=False, stream=True)
    return Plan(request, (_endless_text(0),), manner=Manner.STOPS_READING)


def _sends_twice(material: Material) -> Plan:
    """Send a request twice concurrently with one idempotency key; one generation is permitted."""
    text = material.text()
    request = material.request(tools=False).with_header("idempotency-key", f"key-{material.number}")
    play = says(speech.text(speech.pieces(text)))
    demand = Demand((RightAnswer(text),))
    return Plan(request, (play,), demand, Manner.SENDS_TWICE)


FAULTS = (
    Fault("client: sends twice with one key", 15, _sends_twice),
    Fault("client: a bad body", 15, _bad_body),
    Fault("client: a bad field", 20, _bad_member),
    Fault("client: a wrong name, type, path or method", 15, _wrong_target),
    Fault("client: leaves before the first token", 20, _disconnects_early),
    Fault("client: leaves during a second attempt", 5, _disconnects_in_second_attempt),
    Fault("client: leaves within a stream", 20, _disconnects_within_stream),
    Fault("client: leaves a whole answer", 15, _disconnects_before_whole_answer),
    Fault("client: leaves within its own request", 8, _disconnects_while_sending),
    Fault("client: never sends the rest", 3, _stops_sending),
    Fault("client: stops reading", 2, _stops_reading),
)
