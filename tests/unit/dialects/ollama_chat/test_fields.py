import re
from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.field_table import CARRIED, Handling
from proxy.dialects.ollama_chat.fields import FIELDS, OPTIONS, ModelSettings, body_fields
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.schema import ChatCompletionRequest

SETTINGS = ModelSettings("m")


def upstream_request(**fields: JsonValue) -> UpstreamRequest:
    body: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    request = decode_request(json.dump(body))
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


def encoded(settings: ModelSettings = SETTINGS, /, **fields: JsonValue) -> JsonObject:
    return body_fields(upstream_request(**fields), settings)


def test_every_field_with_a_counterpart_is_encoded() -> None:
    values: JsonObject = {
        "stop": "a",
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "think": True,
        "chat_template_kwargs": {"enable_thinking": True},
        "keep_alive": 1,
        "options": {"seed": 1},
    }
    fields = {name for name, row in FIELDS.items() if row == CARRIED}
    assert fields == set(values)
    for name, value in values.items():
        assert encoded(**{name: value}) != {}


def test_the_table_names_every_field_of_a_chat_completion_request() -> None:
    assert set(ChatCompletionRequest.model_fields) <= set(FIELDS)


def test_the_guide_documents_the_handling_of_every_field() -> None:
    guide = Path(__file__).parents[4] / "docs" / "guides" / "ollama.md"
    table = guide.read_text(encoding="utf-8").partition("| field |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert set(named) == {*FIELDS, "enable_thinking"}
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.target.startswith("options.")]
)
def test_every_option_is_known_to_ollama(name: str) -> None:
    row = FIELDS[name]
    assert row.target.removeprefix("options.") in OPTIONS


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.handling is Handling.REFUSED]
)
def test_the_note_of_every_refused_field_is_a_sentence(name: str) -> None:
    row = FIELDS[name]
    assert row.note.endswith(".")
