"""Foreign files, which must be read or rejected with a message."""

import contextlib
import os
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.openai_responses.store import StoredResponse
from proxy.errors import InvalidConfiguration, TemperError
from proxy.observability.replay import document, replay_file, summary
from proxy.processes.model_file import read_model_file
from proxy.profiles.files import load_profiles
from proxy.profiles.tried_models import TriedModels
from proxy.settings import load_settings
from proxy.state.responses_file import open_responses
from tests.fuzz.documents import VALUES, nearly
from tests.fuzz.targets import Target, in_file, run

REPOSITORY = Path(__file__).parents[2]
NO_BYTES = st.just(b"")


def read_or_refused(read: Callable[[], object]) -> None:
    """Read a file; a rejection must carry a message."""
    problem = "none"
    try:
        read()
    except InvalidConfiguration as error:
        problem = str(error)
    assert problem.strip()
    assert "Traceback" not in problem


def broken(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return valid bytes that are truncated, changed or doubled in some places."""
    change = st.tuples(
        st.integers(0, 2**16), st.integers(0, 2**8), NO_BYTES | st.binary(max_size=8)
    )
    return st.tuples(whole, st.lists(change, max_size=3)).map(lambda made: _break(*made))


def _break(whole: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for position, length, new in changes:
        start = position % (len(whole) + 1)
        end = min(len(whole), start + length % 16)
        whole = whole[:start] + new + whole[end:]
    return whole


# GGUF

_LETTERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_NAMES = (
    *("block_count", "context_length", "embedding_length", "attention.head_count"),
    *("attention.head_count_kv", "attention.key_length", "attention.sliding_window"),
    *("attention.sliding_window_pattern", "attention.shared_kv_layers", "feed_forward_length"),
    *("ssm.conv_kernel", "ssm.state_size", "ssm.inner_size", "wkv.head_size", "kda.head_dim"),
)
_KEYS = ("general.architecture", "general.name", "tokenizer.chat_template", "tokenizer.ggml.tokens")
_SIZES = st.integers(0, 40) | st.sampled_from(
    [4095, 4096, 4097, 2**24 + 1, 2**32, 2**63, 2**64 - 1]
)


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _numbers(kind: int) -> st.SearchStrategy[bytes]:
    size = struct.calcsize(_LETTERS[kind])
    small = st.integers(0, 127).map(lambda number: number.to_bytes(size, "little"))
    return small | st.binary(min_size=size, max_size=size)


_TEXTS = st.sampled_from([b"llama", b"gemma3", b"falcon-h1", "é".encode(), b"\xff", b""])
_VALUES_OF_MODELS = st.one_of(
    st.tuples(st.just(struct.pack("<I", 8)), _TEXTS.map(_string)).map(b"".join),
    st.sampled_from([*_LETTERS]).flatmap(
        lambda kind: _numbers(kind).map(lambda body: struct.pack("<I", kind) + body)
    ),
    st.tuples(
        st.sampled_from([*_LETTERS, 8, 9, 13]), _SIZES, st.lists(_TEXTS.map(_string), max_size=4)
    ).map(lambda array: struct.pack("<IIQ", 9, array[0], array[1]) + b"".join(array[2])),
)
_MODELS = st.tuples(
    st.sampled_from([2, 3, 3, 3, 1, 4]),
    _SIZES | st.integers(1, 9),
    st.lists(
        st.tuples(
            st.sampled_from([*_KEYS, *(f"llama.{name}" for name in _NAMES)]), _VALUES_OF_MODELS
        ),
        max_size=9,
    ),
).map(
    lambda array: (
        struct.pack("<4sIQQ", b"GGUF", array[0], 0, array[1] if array[1] > 9 else len(array[2]))
        + b"".join(_string(key.encode()) + value for key, value in array[2])
    )
)


def judge_model(data: bytes) -> None:
    """Read a model file: with any content, its name is known and nothing is raised."""
    path = in_file("model.gguf", data)
    read = read_model_file(path)
    assert read.names[0] == str(path)
    assert read.shape is None or read.shape.trained_context > 0


# recordings

_PIECES: list[JsonValue] = [
    ["text", "Hi."],
    ["reasoning", "Hm."],
    ["call", 0, "a", "look"],
    ["arguments", 0, '{"at": "x"}'],
    ["finished", "tool_calls"],
]
_LOOK: JsonObject = {"name": "look", "parameters": {"properties": {"at": {"type": "string"}}}}
_EXCHANGE: JsonObject = {
    "version": 2,
    "id": "r",
    "at": 1.0,
    "model": {"names": ["m"], "architecture": "", "template": ""},
    "policy": {
        "mode": "on",
        "text_policy": None,
        "attempts": 3,
        "is_strict": False,
        "most_repeats": 3,
        "most_rounds": 9,
    },
    "request": {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": _LOOK}],
    },
    "generations": [_PIECES],
    "run": {
        "owned": ["look"],
        "most_rounds": 3,
        "most_failed_rounds": 3,
        "rounds": [
            {
                "generations": 1,
                "outcomes": [{"name": "look", "arguments": "{}", "text": "t", "status": "done"}],
            }
        ],
    },
    "answer": {"text": "Hi.", "calls": [{"name": "look", "arguments": "{}"}]},
    "verdict": {"outcome": "clean", "attempts": [["as_asked", None]], "repairs": ""},
}
_WITHOUT_RUN = {name: value for name, value in _EXCHANGE.items() if name != "run"}
_RECORDINGS = broken(
    st.lists((nearly(_EXCHANGE) | nearly(_WITHOUT_RUN)).map(json.dump), max_size=3).map(b"\n".join)
)


def judge_recording(data: bytes) -> None:
    """Replay a recording, and report the result in every form."""
    path = in_file("recording.jsonl", data)

    def play() -> None:
        replayed = replay_file(path, None)
        json.dump(document(replayed))
        assert all("\x1b" not in line for line in summary(replayed))

    read_or_refused(play)


# profiles and settings in TOML


def _toml(value: JsonValue) -> str:
    match value:
        case dict():
            members = (
                f"{json.dump_text(name)} = {_toml(member)}" for name, member in value.items()
            )
            return f"{{{', '.join(members)}}}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case None:
            return "nan"
        case _:
            return json.dump_text(value)


_LINE = re.compile(r"^#?([a-z_]+) = (.+)$")
_SECTION = re.compile(r"^#?(\[.+\])$")


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    """Return the section, name and value of each line."""
    section = ""
    for line in text.splitlines():
        if match := _SECTION.match(line):
            section = match[1]
        elif match := _LINE.match(line):
            yield section, match[1], match[2]


def _rewritten(text: str) -> st.SearchStrategy[bytes]:
    """Return files with some lines of a file, each with its own or another value."""
    lines = [*_lines(text)]
    chosen = st.tuples(
        st.integers(0, len(lines) - 1), st.none() | VALUES.map(_toml) | st.just("${HOME}")
    )
    return broken(st.lists(chosen, max_size=8).map(lambda chosen: _written(lines, chosen)))


def _written(lines: list[tuple[str, str, str]], chosen: list[tuple[int, str | None]]) -> bytes:
    sections: dict[str, dict[str, str]] = {}
    for number, other in chosen:
        section, name, value = lines[number]
        sections.setdefault(section, {})[name] = value if other is None else other
    database = [
        "\n".join([section, *(f"{name} = {value}" for name, value in values.items())])
        for section, values in sorted(sections.items())
    ]
    return "\n\n".join(database).encode("utf-8", "surrogatepass")


_SETTINGS = _rewritten((REPOSITORY / "config" / "temper.toml").read_text("utf-8"))
_PROFILE = (REPOSITORY / "config" / "models" / "qwen3.toml").read_text("utf-8")
_SECTIONS_OF_PROFILES = (
    '[answers]\ntext_policy = "auto"\nrespond = true\n[launch]\nflags = ["-c"]\n'
)
_PROFILES = _rewritten(_PROFILE + _SECTIONS_OF_PROFILES) | broken(st.just(_PROFILE.encode()))


def judge_profile(data: bytes) -> None:
    path = in_file("profiles/qwen3.toml", data)
    read_or_refused(lambda: load_profiles(path.parent))


def judge_settings(data: bytes) -> None:
    """Read settings from a file, then from the environment and the command line."""
    path = in_file("temper.toml", data)
    read_or_refused(lambda: load_settings(path))
    try:
        lines = [*_lines(data.decode())]
    except UnicodeDecodeError:
        return
    usable = {
        f"TEMPER_{section.strip('[]')}__{name}".upper(): value
        for section, name, value in lines
        if "\0" not in value and re.fullmatch(r"\[[a-z]+\]", section)
    }
    with _environment(usable):
        read_or_refused(load_settings)
    flags: dict[str, dict[str, object]] = {}
    for section, name, value in lines:
        flags.setdefault(section.strip("[]"), {})[name] = value
    read_or_refused(lambda: load_settings(flags=flags))


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


# storage of earlier runs: responses and tuned models

_RESPONSE = StoredResponse("resp_1", [b'{"id":"msg_1"}'], [b'{"id":"msg_2"}'], b"{}")
_LATER = StoredResponse("resp_2", [b"{}"], [b'{"id":"msg_3"}'], b"{}", "resp_1")


def _good_database() -> bytes:
    path = in_file("responses.db", b"")
    path.unlink()
    with open_responses(path) as responses:
        for row in (_RESPONSE, _LATER):
            responses.keep("us", row)
        run(responses.flush())
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    return path.read_bytes()


def _damages() -> st.SearchStrategy[bytes]:
    """Return positions and new bytes of a damaged database."""
    offset = st.integers(0, 2**20).map(lambda offset: offset.to_bytes(4, "big"))
    return st.lists(st.tuples(offset, st.binary(min_size=1, max_size=6)), max_size=6).map(
        lambda damages: b"".join(offset + bytes([len(new)]) + new for offset, new in damages)
    )


def _damaged(whole: bytes, damages: bytes) -> bytes:
    held = bytearray(whole)
    while len(damages) > 4:
        offset, length = int.from_bytes(damages[:4], "big") % len(held), damages[4]
        new = damages[5 : 5 + length]
        held[offset : offset + len(new)] = new
        damages = damages[5 + length :]
    return bytes(held)


_databases: list[bytes] = []


def judge_responses(data: bytes) -> None:
    """Use a damaged file of responses: it must be refused, or its readable entries read."""
    if not _databases:
        _databases.append(_good_database())
    path = in_file("responses.db", _damaged(_databases[0], data))
    for beside in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + beside).unlink(missing_ok=True)

    def use() -> None:
        with open_responses(path, busy_seconds=0.01) as responses:
            for owner in ("us", ""):
                responses.chain(owner, "resp_2")
                responses.find(owner, "resp_1")
                responses.item(owner, "msg_3")
            responses.keep("us", StoredResponse("resp_3", [], [b"{}"], b"{}", "resp_2"))
            run(responses.flush())
            with contextlib.suppress(TemperError):
                responses.forget("us", "resp_1")

    read_or_refused(use)


_TRIED: JsonObject = {
    "name": "m",
    "identity": "i",
    "template": "t",
    "server": "s",
    "tried_at": "2026-11-24T00:00:00Z",
    "temper": "1",
    "measured": {"reads": 1.5, "calls": True, "words": ["a"], "none": None},
    "failed": ["a"],
    "version": 1,
}


def judge_tried_models(data: bytes) -> None:
    path = in_file("tried/0123456789abcdef.json", data)
    models = TriedModels(path.parent)
    assert len(models.all()) <= 1
    models.latest("i", "t")


TARGETS = (
    Target("gguf headers", broken(_MODELS), judge_model),
    Target("recordings", _RECORDINGS, judge_recording),
    Target("profiles", _PROFILES, judge_profile),
    Target("settings", _SETTINGS, judge_settings),
    Target("response files", _damages(), judge_responses, is_guided=False),
    Target("tried models", broken(nearly(_TRIED).map(json.dump)), judge_tried_models),
)
