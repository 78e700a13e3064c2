"""What clients do wrong: bad requests, and leaving."""

from dataclasses import replace

from benchmarks.faults import speech
from benchmarks.faults.demands import Call, Demand, Wanted
from benchmarks.faults.good_replies import calls, says
from benchmarks.faults.material import Asked, Fault, Manner, Material, Plan
from benchmarks.faults.toxics import Then, Toxic, chunk, chunked, repeats, sends

_PAUSE = 0.05

# Members of a request, as they are written, that make it a bad one.
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
    return _refused(Asked(body, material.headers()), 400)


def _bad_member(material: Material) -> Plan:
    member = material.chance.choice(_BAD_MEMBERS)
    body = b'{"model": "steady", %s}' % member
    return _refused(Asked(body, material.headers()), 400)


def _wrong_door(material: Material) -> Plan:
    asked = material.asks(tools=False)
    wrong = (
        (replace(asked, headers=material.headers(**{"content-type": "text/plain"})), 415),
        (replace(asked, headers=material.headers(**{"content-encoding": "gzip"})), 400),
        (replace(asked, headers=material.headers(**{"x-temper-text-policy": "dance"})), 400),
        (replace(asked, path="/v1/chat/nothing"), 404),
        (replace(asked, method="PUT"), 405),
        (material.asks(tools=False, model="nobody"), 404),
    )
    return _refused(*material.chance.choice(wrong))


def _refused(asked: Asked, status: int) -> Plan:
    return Plan(asked, demand=Demand(failures=frozenset({status}), questions=0))


def _leaves_early(material: Material) -> Plan:
    """Leave while the backend says nothing, or nothing but that it lives."""
    play = material.chance.choice(
        (
            sends(b"", then=Then.SILENCE),
            sends(chunked(speech.START, is_whole=False), then=Then.SILENCE),
            repeats(chunked(is_whole=False), chunk(speech.progress()), seconds=_PAUSE),
        )
    )
    asked = material.asks(tools=material.chance.random() < 0.5)
    return Plan(asked, (play,), manner=Manner.LEAVES_EARLY)


def _leaves_second_attempt(material: Material) -> Plan:
    bad = calls(Call("launch_rocket", {}), material)
    plays = (bad, sends(b"", then=Then.SILENCE))
    demand = Demand(withheld=(Wanted(),), questions=2)
    return Plan(material.asks(tools=True), plays, demand, Manner.LEAVES_EARLY)


def _talks(seconds: float) -> Toxic:
    said = chunk(speech.text(["on and on "] * (1 if seconds else 100)))
    return repeats(chunked(speech.START, is_whole=False), said, seconds=seconds)


def _leaves_amid(material: Material) -> Plan:
    asked = material.asks(tools=False, stream=True)
    return Plan(asked, (_talks(_PAUSE),), manner=Manner.LEAVES_AMID)


def _leaves_a_whole_answer(material: Material) -> Plan:
    asked = material.asks(tools=False, stream=False)
    return Plan(asked, (_talks(_PAUSE),), manner=Manner.LEAVES_EARLY)


def _leaves_sending(material: Material) -> Plan:
    asked = material.asks(tools=False)
    return Plan(asked, demand=Demand(questions=0), manner=Manner.LEAVES_SENDING)


def _stops_sending(material: Material) -> Plan:
    demand = Demand(failures=frozenset({408}), questions=0)
    return Plan(material.asks(tools=False), demand=demand, manner=Manner.STOPS_SENDING)


def _stops_reading(material: Material) -> Plan:
    asked = material.asks(tools=False, stream=True)
    return Plan(asked, (_talks(0),), manner=Manner.STOPS_READING)


def _asks_twice(material: Material) -> Plan:
    """Ask for the same twice at the same time, with one key: it is generated once."""
    text = material.text()
    asked = material.asks(tools=False).wishing("idempotency-key", f"key-{material.number}")
    play = says(speech.text(speech.pieces(text)))
    demand = Demand((Wanted(text),))
    return Plan(asked, (play,), demand, Manner.ASKS_TWICE)


FAULTS = (
    Fault("client: repeats a request with one key", 15, _asks_twice),
    Fault("client: an invalid body", 15, _bad_body),
    Fault("client: an invalid field", 20, _bad_member),
    Fault("client: a wrong name, type, path or method", 15, _wrong_door),
    Fault("client: disconnects before the first token", 20, _leaves_early),
    Fault("client: disconnects during a retry", 5, _leaves_second_attempt),
    Fault("client: disconnects during a stream", 20, _leaves_amid),
    Fault("client: disconnects without streaming", 15, _leaves_a_whole_answer),
    Fault("client: disconnects during its request", 8, _leaves_sending),
    Fault("client: sends an incomplete request", 3, _stops_sending),
    Fault("client: stops reading", 2, _stops_reading),
)
