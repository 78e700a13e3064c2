"""The same conversation and reply in every API dialect must have the same meaning.

A case is a document with a conversation, an engine's reply and its finish reason. For every ordered
pair of the four dialects, streamed and not, these are compared: the upstream request, the text and
the calls that the client receives, and whether the end is a natural one.
"""

from itertools import permutations
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st

from proxy.backends.llama_server import LlamaServer
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes import sse
from tests.fakes.asgi import HandMadeClient
from tests.fakes.languages import PATHS, Chat, LanguageReply, read_answer
from tests.fuzz.targets import Target
from tests.fuzz.wire import STREAM, ask, cut

CITY: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
NATURAL = ("stop", "tool_calls", "eos", "stop_sequence", "end_turn")
FOREIGN = (
    "abort",
    "error",
    "cancelled",
    "x\u001b[2J\n",
)  # finish reasons that are no term of any dialect
CUT = ("length", "max_tokens", "content_filter", *FOREIGN)
# how each dialect marks a natural end, in a whole response or an event
_ENDED = {
    "chat": ('"finish_reason":"stop"', '"finish_reason":"tool_calls"'),
    "messages": ('"stop_reason":"end_turn"', '"stop_reason":"tool_use"'),
    "responses": ('"status":"completed","error":null',),
    "ollama": ('"done_reason":"stop"',),
}


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """A conversation of alternating user and assistant messages, and the engine's reply."""

    texts: list[str]
    words: str
    city: str | None
    finish: str
    size: int
    system: str = ""


class Meaning(NamedTuple):
    """The upstream request, and the client's result."""

    sent: JsonValue
    status: bool
    words: str
    calls: JsonValue
    has_ended: bool


def read_case(data: bytes) -> Case | None:
    try:
        case = msgspec.json.decode(data, type=Case)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return case if 0 < len(case.texts) < 8 and len(data) < 4096 else None


def reply_of(case: Case) -> bytes:
    reply = sse.START + (sse.text(case.words) if case.words else b"")
    if case.city is not None:
        reply += sse.call_delta("get_weather", json.dump_text({"city": case.city}))
    return STREAM + reply + sse.end(case.finish)


def play(case: Case, dialect: str, *, stream: bool) -> tuple[Meaning, bytes]:
    """Send a case in a dialect to an engine that always sends the same reply."""
    path, write = PATHS[dialect]
    roles = ("user", "assistant")
    turns = [(roles[number % 2], text) for number, text in enumerate(case.texts)]
    if len(turns) % 2 == 0:
        turns.append(("user", "And now?"))
    system = [("system", case.system)] if case.system else []
    chat = Chat((*system, *turns), has_tools=True, parameters=CITY)
    body: JsonObject = {"model": "m", "stream": stream, **write(chat)}
    client = HandMadeClient(json.dump(body), "POST", path)
    reply = reply_of(case)
    places = range(0, len(reply), case.size) if case.size > 0 else ()
    wire = ask(LlamaServer, client, cut(reply, places))
    assert client.status < 600
    got = read_answer(client.status, client.answer_headers["content-type"], client.answer)
    sent = [_messages(question) for question in wire.upstream_requests]
    return _meaning(dialect, sent, got, client.answer), client.answer


def _meaning(dialect: str, sent: JsonValue, got: LanguageReply, answer: bytes) -> Meaning:
    has_ended = any(mark in answer.decode() for mark in _ENDED[dialect])
    calls: list[JsonValue] = [[name, arguments] for name, arguments in got.called]
    is_good = got.status == 200 and not got.error
    return Meaning(sent, is_good, got.text if is_good else "", calls, has_ended)


def _messages(question: bytes) -> JsonValue:
    """Return the roles and words of a request, whatever the format of its contents."""
    messages = json.parse(json.split_object(question)["messages"])
    assert isinstance(messages, list)
    return [_words(message) for message in messages if isinstance(message, dict)]


def _words(message: JsonObject) -> JsonValue:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        content = "".join(str(part) for part in parts)
    return [message.get("role"), content or ""]


def judge_pairs(data: bytes) -> None:
    """Compare a case in all ordered pairs of dialects, streamed and not."""
    if (case := read_case(data)) is None:
        return
    meanings = {
        (name, stream): play(case, name, stream=stream)[0]
        for name in PATHS
        for stream in (False, True)
    }
    for path, other in permutations(PATHS, 2):
        for stream in (False, True):
            assert meanings[path, stream] == meanings[other, stream], (path, other, stream)


def judge_finish(data: bytes) -> None:
    """Check that only natural ends are reported as such, and that no raw reason is forwarded."""
    if (case := read_case(data)) is None:
        return
    for name in PATHS:
        for stream in (False, True):
            meaning, answer = play(case, name, stream=stream)
            # a complete call is valid, because vLLM also reports `length` for complete calls
            if case.finish not in NATURAL and meaning.status and not meaning.calls:
                assert not meaning.has_ended, (name, stream, case.finish)
            if case.finish in FOREIGN:
                raw = json.dump_text(case.finish)
                assert f'reason":{raw}'.encode() not in answer, (name, stream)


_TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="<>[]{}`|\\"), max_size=20
).map(lambda text: text.strip() or "Hi.")


def _cases(finish: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    made = st.builds(
        Case,
        texts=st.lists(_TEXT, min_size=1, max_size=5),
        words=_TEXT,
        city=st.none() | _TEXT,
        finish=finish,
        size=st.sampled_from([0, 1, 7, 64]),
        system=_TEXT | st.just(""),
    )
    return made.map(msgspec.json.encode)


TARGETS = (
    Target("pairs of dialects", _cases(st.sampled_from(["stop", "tool_calls"])), judge_pairs),
    Target("finish reasons", _cases(st.sampled_from([*NATURAL, *CUT])), judge_finish),
)
