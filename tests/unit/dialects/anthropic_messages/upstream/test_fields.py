import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.anthropic_messages.upstream.fields import (
    FIELDS,
    ModelLimits,
    body_fields,
    is_forced,
)
from proxy.dialects.field_table import Field, Handling
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.schema import ChatCompletionRequest
from proxy.errors import InvalidRequest


def upstream_request(**fields: JsonValue) -> UpstreamRequest:
    body: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    request = decode_request(json.dump(body))
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


def refused(request: UpstreamRequest) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        body_fields(request)
    return raised.value


KEPT_HERE = (Handling.ENFORCED, Handling.IGNORED)


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.handling in KEPT_HERE]
)
def test_enforced_and_ignored_fields_are_not_sent(name: str) -> None:
    request = upstream_request()
    fields = {**request.request.fields, name: b'"x"'}
    assert body_fields(replace(request, request=replace(request.request, fields=fields))) == {}


@pytest.mark.parametrize(
    ("name", "row"),
    [(name, row) for name, row in FIELDS.items() if row.handling is Handling.REFUSED],
)
def test_unsupported_fields_are_refused_unless_their_value_is_neutral(
    name: str, row: Field
) -> None:
    request = upstream_request()

    def with_value(raw: bytes) -> UpstreamRequest:
        fields = {**request.request.fields, name: raw}
        return replace(request, request=replace(request.request, fields=fields))

    for harmless in (*row.harmless, None):
        assert body_fields(with_value(json.dump(harmless))) == {}
    error = refused(with_value(b'"something"'))
    assert (error.param, error.problem) == (name, row.note)


@pytest.mark.parametrize(
    ("limits", "requested", "limit"),
    [
        (ModelLimits("m"), None, 4096),
        (ModelLimits("m"), 9, 9),
        (ModelLimits("m"), 0, 1),
        (ModelLimits("m", window=8192), None, 4096),
        (ModelLimits("m", window=200_000), None, 100_000),
        (ModelLimits("m", 64_000, 200_000), None, 64_000),
        (ModelLimits("m", 64_000, 200_000), 100_000, 64_000),
        (ModelLimits("m", 64_000, 200_000), 9, 9),
    ],
)
def test_the_sent_max_tokens_is_at_least_one_and_has_a_default(
    limits: ModelLimits, requested: int | None, limit: int
) -> None:
    assert limits.limit(requested) == limit


def test_the_table_names_every_field_of_a_chat_completion_request() -> None:
    assert set(ChatCompletionRequest.model_fields) <= set(FIELDS)


def test_the_guide_documents_the_handling_of_every_field() -> None:
    guide = Path(__file__).parents[5] / "docs" / "guides" / "engines.md"
    table = guide.read_text(encoding="utf-8").partition("| field |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert set(named) == {*FIELDS, "enable_thinking"}
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.handling is Handling.REFUSED]
)
def test_the_note_of_every_refused_field_is_a_sentence(name: str) -> None:
    row = FIELDS[name]
    assert row.note.endswith(".")


@pytest.mark.parametrize(
    ("kind", "expected"), [("any", True), ("tool", True), ("auto", False), ("none", False)]
)
def test_the_tool_choices_any_and_tool_force_a_call(kind: str, expected: bool) -> None:
    assert is_forced({"type": kind}) is expected
    assert not is_forced(None)
