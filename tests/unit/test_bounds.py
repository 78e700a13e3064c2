"""Tests that each bound in `proxy.bounds` is documented in docs/security.md and enforced."""

import asyncio
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from starlette.types import Message, Scope

from proxy import bounds
from proxy.api.errors import DASHBOARD_PROBLEMS
from proxy.api.request_reader import BodyLimits, read_body
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyStarted
from proxy.conversation.tools import Tool
from proxy.dialects.dialect import Client, IdsAndClock
from proxy.dialects.openai_responses.dialect import ResponsesDialect
from proxy.dialects.raw_json import read_object
from proxy.dialects.sse import EventDecoder
from proxy.errors import RequestTooLarge
from proxy.facts import Dropped
from proxy.files import read_text, read_toml
from proxy.guardrails.rescue.syntaxes.tool_names import syntaxes_for
from proxy.guardrails.rescue.values.reader import read_only_value
from proxy.guardrails.rescue.values.scalars import Unreadable, parse_number
from proxy.guardrails.schemas.arguments import BrokenArguments, check
from proxy.guardrails.schemas.schema import TooLongToMatch, compile_schema
from proxy.guardrails.schemas.workload import Workload
from proxy.mcp.specification import CallLimits
from proxy.observability.recording import read_recording
from proxy.observability.sentences import sentences
from proxy.processes.model_file import read_header
from proxy.profiles.tried_models import TriedModels
from proxy.serving.request_preparation import takes_long
from proxy.settings.values import File
from proxy.tools.results import cut
from tests.corpus.cases import NOW, Case, ask, outcome
from tests.corpus.spellings import JSON
from tests.fakes.responses import make_store
from tests.test_repository import REPOSITORY
from tests.unit.guardrails.schemas.test_workload import doubling
from tests.unit.profiles.test_tried_models import tried_model

_UNITS = ((bounds.MIB, "MiB"), (bounds.KIB, "KiB"))


def by_source() -> Iterator[tuple[str, str, int]]:
    """Yield each bound: its source (such as "client" or "model"), its name and its value."""
    source = ""
    for line in Path(bounds.__file__).read_text(encoding="utf-8").splitlines():
        if match := re.match(r"# ([a-z ]+)$", line):
            source = match[1]
        elif source and (match := re.match(r"([A-Z_]+) = ", line)):
            yield source, match[1], getattr(bounds, match[1])


def rows() -> dict[str, str]:
    """Return the bounds in the table of the security page, as one text for each source."""
    text = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    rows_: dict[str, str] = {}
    for source, bound in re.findall(r"^\| ([a-z ]+) \| (.+?) \|", text, re.MULTILINE):
        rows_[source] = f"{rows_.get(source, '')} {bound}"
    return rows_


def bound_in_words(name: str, value: int) -> str:
    """Write a bound as in the table: a size in bytes in the largest unit that divides it."""
    for size, unit in _UNITS:
        if value % size == 0 and (name.endswith("BYTES") or name == "READ_IN_VAIN"):
            return f"{value // size} {unit}"
    return f"{value:,}"


@pytest.mark.parametrize(("source", "name", "value"), [*by_source()])
def test_the_security_page_lists_every_bound_in_the_row_of_its_source(
    source: str, name: str, value: int
) -> None:
    assert re.search(
        rf"(?<![\d,]){re.escape(bound_in_words(name, value))}(?![\d,])", rows()[source]
    )


def sparse(path: Path, size: int) -> Path:
    """Make a sparse file of zeros."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def written_in(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def with_fields(path: Path, count: int) -> Path:
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, count))
    return path


def declare_body(size: int) -> None:
    """Read a request that declares a body of this length, but contains no body."""
    declared = [(b"content-type", b"application/json"), (b"content-length", b"%d" % size)]
    scope: Scope = {"type": "http", "headers": declared}

    async def receive() -> Message:
        raise AssertionError

    asyncio.run(read_body(scope, receive, BodyLimits()))


def refuse(message: str) -> None:
    raise ValueError(message)


def broken(arguments: str) -> None:
    checked = check(Tool("t", {}, b"{}"), arguments)
    assert isinstance(checked, BrokenArguments)
    raise ValueError(checked.problem)


TOO_MUCH: dict[str, Callable[[Path], object]] = {
    "BODY_BYTES": lambda _: declare_body(bounds.BODY_BYTES + 1),
    "FEEDS": lambda _: refuse(DASHBOARD_PROBLEMS["too_many_watchers"][1]),
    "CALLS": lambda _: refuse(sentences([Dropped("too_many_calls")])[0]),
    "MEMBERS": lambda _: broken('{"a":[' + '{"":0},' * bounds.MEMBERS + '{"":0}]}'),
    "FIELDS": lambda _: read_object(
        b"{" + b",".join(b'"%d":1' % number for number in range(bounds.FIELDS + 1)) + b"}"
    ),
    "EVENT_BYTES": lambda _: [*EventDecoder().feed(b"data: " + b"x" * bounds.EVENT_BYTES + b"\n")],
    "IDLE_LINES": lambda _: EventDecoder().feed(b":\n" * bounds.IDLE_LINES + b":\n"),
    "FILE_BYTES": lambda path: read_text(sparse(path, bounds.FILE_BYTES + 1)),
    "RECORDED_BYTES": lambda path: [*read_recording(sparse(path, bounds.RECORDED_BYTES + 1))],
    "KEY_PARTS": lambda path: read_toml(written_in(path, "a." * bounds.KEY_PARTS + "a = 1")),
    "SCHEMA_BYTES": lambda _: compile_schema({"title": "x" * bounds.SCHEMA_BYTES}),
    "DIGITS": lambda path: read_toml(written_in(path, "a = 0x" + "1" * bounds.DIGITS)),
    "HEADER_FIELDS": lambda path: read_header(with_fields(path, bounds.HEADER_FIELDS + 1)),
    "NAME_BYTES": lambda _: TypeAdapter(File).validate_python("x" * (bounds.NAME_BYTES + 1)),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_the_error_for_input_above_a_bound_contains_the_bound(name: str, tmp_path: Path) -> None:
    most = getattr(bounds, name)
    with pytest.raises(Exception, match=rf"(?<!\d)(?:{most}|{most:,})(?!\d)"):
        TOO_MUCH[name](tmp_path / "file")


def test_the_error_for_a_configurable_bound_names_the_setting() -> None:
    with pytest.raises(RequestTooLarge, match=r"server\.max_body_bytes"):
        declare_body(bounds.BODY_BYTES + 1)


def reads_call_after(noise: str) -> bool:
    """Return whether a call after the text `noise` is recognized."""
    reply = f"{noise}\nLet me look.\n<tool_call>\n{JSON(*NOW)}\n</tool_call>"
    return outcome(Case("", reply, ask()), [reply]).calls == (NOW,)


def calls_of(count: int) -> int:
    reply = "\n".join(
        f"<tool_call>\n{JSON('get_weather', {'city': str(each)})}\n</tool_call>"
        for each in range(count)
    )
    return len(outcome(Case("", reply, ask()), [reply]).calls)


def is_read(text: str) -> bool:
    return not isinstance(read_only_value(text), Unreadable)


def is_number(digits: int) -> bool:
    try:
        parse_number("1" * digits)
    except Unreadable:
        return False
    return True


def workload(schema: JsonObject) -> Workload:
    return Workload.of(schema, json.dump(schema))


def lists_errors_of(items: int) -> bool:
    """Return whether the errors of `items` invalid items are listed."""
    return workload({"items": {"type": "integer"}}).is_listable(["x"] * items)


def is_checked(*patterns: str) -> bool:
    """Return whether the patterns are short enough to be compiled."""
    return not compile_schema({"allOf": [{"pattern": pattern} for pattern in patterns]}).problem


def sized(size: int) -> list[str]:
    """Return patterns with a total size of about `size`."""
    return [f"^[a-z]{{100}}{number}$" for number in range(size // 1_020)]


def is_matched(pattern: str, text: str) -> bool:
    """Return whether a text is short enough to be matched against a pattern."""
    try:
        return not compile_schema({"pattern": pattern}).is_valid(text)
    except TooLongToMatch:
        return False


def is_tried_model_read(folder: Path, size: int) -> bool:
    models = TriedModels(folder)
    models.save(tried_model())
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes().ljust(size))
    return models.all() != ()


def is_stored(_: Path, count: int) -> bool:
    items: list[JsonValue] = [{"role": "user", "content": "Hi"}] * count
    proxy = ResponsesDialect(IdsAndClock(lambda: 0.0, lambda: "0"), make_store())
    builder = proxy.decode(json.dump({"input": items}), Client()).answering.builder(ReplyStarted())
    answer = json.parse(builder.build())
    assert isinstance(answer, dict)
    is_kept = proxy.store is not None and proxy.store.find("", "resp_0") is not None
    assert answer["store"] is is_kept
    return is_kept


# For each exact bound, a function that returns whether input of a given size is accepted.
EXACT: dict[str, Callable[[Path, int], bool]] = {
    "LARGE_BYTES": lambda _, size: not takes_long(b"{" * size),
    "OBJECTS": lambda _, count: not takes_long(b"{" * count + b" " * bounds.LARGE_BYTES),
    "HUGE_BYTES": lambda _, size: not takes_long(b" " * size),
    "NAMED_TOOLS": lambda _, count: syntaxes_for([Tool("t", {}, b"{}")] * count) != (),
    "CALLS": lambda _, count: calls_of(count) == count,
    "LEVELS": lambda _, count: is_read("{a:" * count + "1" + "}" * count),
    "DIGITS": lambda _, count: is_number(count),
    "OPENINGS": lambda _, count: reads_call_after("<tool_call> x " * (count - 1)),
    "STORED_ITEMS": is_stored,
    "TRIED_BYTES": is_tried_model_read,
    "PATTERN_CHARACTERS": lambda _, count: is_checked("a" * count),
    "RESULT_CHARACTERS": lambda _, size: cut("x" * size, CallLimits().result_chars) == "x" * size,
}


NESTED_REFERENCES: JsonObject = {"$defs": doubling(10)["$defs"], "items": {"$ref": "#/$defs/d10"}}
# The same for bounds whose quantity is only roughly proportional to the size of the input.
APPROXIMATE: dict[str, Callable[[int], bool]] = {
    "READ_IN_VAIN": lambda size: reads_call_after(
        f"<tool_call>{'x' * size}" * (bounds.OPENINGS // 2)
    ),
    "CHECKS": lambda count: workload(NESTED_REFERENCES).is_checkable([1] * (count >> 11)),
    "COPIES": lambda count: lists_errors_of(count // 12),
    "PATTERN_SIZE": lambda size: is_checked(f"[^a]{{1,{size // 74}}}"),
    "PATTERNS_SIZE": lambda size: is_checked(*sized(size)),
    "PATTERN_STEPS": lambda steps: is_matched("^(?:ab){1,100}$", "a" * (steps // 400)),
}
# Bounds whose tests need a server or a file, and the files with these tests.
SERVED = {
    "HEAD_BYTES": "unit/api/test_connections.py",
    "HEADERS": "unit/api/test_connections.py",
    "FRAMING_BYTES": "unit/api/test_connections.py",
    "PIPELINED": "unit/api/test_connections.py",
    "DROPPED_BYTES": "unit/api/test_connections.py",
    "STREAM_BYTES": "unit/backends/test_transport.py",
    "DOCUMENT_BYTES": "unit/backends/test_http_backend.py",
    "ANSWER_BYTES": "faults/test_tool_servers.py",
    "VALUES": "faults/test_tool_servers.py",
    "ITEMS": "faults/test_tool_servers.py",
    "TOOLS": "faults/test_tool_servers.py",
    "UNASKED": "faults/test_tool_servers.py",
    "UNASKED_A_SECOND": "unit/mcp/test_connecting.py",
    "PAGES": "faults/test_tool_servers.py",
    "RESPONSE_BYTES": "unit/state/test_shared_responses.py",
    "PROBLEMS": "faults/test_files.py",
    "CHARACTERS": "faults/test_files.py",
    "HEADER_BYTES": "faults/test_files.py",
    "YIELDED": "unit/tools/test_execution.py",
}


def test_every_bound_is_reached_by_a_test() -> None:
    reached = {*TOO_MUCH, *EXACT, *APPROXIMATE, *SERVED}
    assert reached == {name for _, name, _ in by_source()}
    for name, file in SERVED.items():
        text = (REPOSITORY / "tests" / file).read_text(encoding="utf-8")
        assert f"bounds.{name}" in text or f'(bounds, "{name}"' in text


@pytest.mark.parametrize("name", APPROXIMATE)
def test_half_of_an_approximate_bound_is_accepted_and_twice_the_bound_is_refused(
    name: str,
) -> None:
    most: int = getattr(bounds, name)
    assert APPROXIMATE[name](most // 2)
    assert not APPROXIMATE[name](2 * most)


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_bound_is_accepted_and_one_more_is_refused(name: str, tmp_path: Path) -> None:
    most: int = getattr(bounds, name)
    assert EXACT[name](tmp_path, most)
    assert not EXACT[name](tmp_path, most + 1)
