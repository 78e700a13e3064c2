import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.anthropic_messages.blocks import (
    Findings,
    blocks_of,
    parts_of,
    texts_of,
)
from proxy.dialects.foreign_history import write_arguments, write_content
from proxy.dialects.raw_json import JsonText, Node
from proxy.errors import InvalidRequest
from proxy.facts import Omitted
from tests.unit.dialects.anthropic_messages.conversations import PICTURE


def node(value: JsonValue) -> Node:
    return Node(value, json.dump(value), "content")


def read(*blocks: JsonValue) -> tuple[JsonValue, list[str]]:
    """Return the content that blocks become, and what was left out."""
    findings = Findings()
    parts = [part for one in blocks_of(node([*blocks])) for part in parts_of(one, findings)]
    _, content = write_content([one for one in parts if not isinstance(one, JsonText) or one.text])
    return json.parse(content), [fact.what for fact in findings.facts]


def document(source: JsonObject, **members: JsonValue) -> JsonObject:
    return {"type": "document", "source": source, **members}


PLAIN: JsonObject = {"type": "text", "media_type": "text/plain", "data": "All of it."}


def text(said: str) -> JsonObject:
    return {"type": "text", "text": said}


@pytest.mark.parametrize(
    ("block", "written"),
    [
        (text("Hi"), "Hi"),
        (document(PLAIN), "All of it."),
        (document(PLAIN, title="Report", context="Of May."), "Report\nOf May.\nAll of it."),
        (document({"type": "content", "content": "All."}), "All."),
        (document({"type": "content", "content": [text("a"), text("b")]}, title=None), "a\nb"),
        (
            {
                "type": "search_result",
                "title": "T",
                "source": "http://t",
                "content": [text("a"), text("b")],
                "citations": {"enabled": False},
            },
            "T\nhttp://t\na\nb",
        ),
        ({"type": "search_result"}, ""),
        ({"type": "tool_reference", "tool_name": "f"}, "Tool f is available now."),
        ({"type": "compaction", "content": "So far."}, "So far."),
        ({"type": "compaction", "content": None}, ""),
        ({"type": "brand_new", "text": "So?"}, "So?"),
    ],
)
def test_what_is_text_is_written_as_text(block: JsonObject, written: str) -> None:
    assert read(block) == (written, [])


def test_a_picture_goes_as_a_data_url() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert read(PICTURE) == ([picture], [])
    inside = document({"type": "content", "content": [PICTURE]}, title="Plan")
    assert read(inside) == ([text("Plan"), picture], [])


FOUND: JsonObject = {
    "type": "web_search_result",
    "title": "T",
    "url": "u",
    "encrypted_content": "e",
}
FETCHED = document(PLAIN, title="Report")
PICTURED = document({"type": "base64", "media_type": "application/pdf", "data": "AA=="})


@pytest.mark.parametrize(
    ("block", "written"),
    [
        ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}}, ""),
        (
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [FOUND, FOUND]},
            "T\nu\nT\nu",
        ),
        (
            {"type": "web_search_tool_result", "content": {"type": "error", "error_code": "x"}},
            "",
        ),
        (
            {"type": "web_fetch_tool_result", "content": {"url": "u", "content": FETCHED}},
            "u\nReport\nAll of it.",
        ),
        ({"type": "web_fetch_tool_result", "content": {"url": "u", "content": PICTURED}}, "u"),
        (
            {
                "type": "bash_code_execution_tool_result",
                "content": {"stdout": "out", "stderr": "", "return_code": 0, "content": []},
            },
            "out",
        ),
        ({"type": "mcp_tool_result", "content": "done"}, "done"),
        ({"type": "mcp_tool_result", "content": [text("done"), 5]}, "done"),
        ({"type": "mcp_tool_result", "content": [[[["too deep"]]]]}, ""),
        ({"type": "container_upload", "file_id": "f"}, ""),
        ({"type": "fallback"}, ""),
        ({"type": "redacted_thinking", "data": "EqQ"}, ""),
    ],
)
def test_what_a_vendors_servers_did_is_dropped_but_for_its_text(
    block: JsonObject, written: str
) -> None:
    kind = block["type"]
    assert read(block) == (written, [kind])


def test_tools_that_a_vendors_search_found_are_named() -> None:
    references: JsonValue = [{"type": "tool_reference", "tool_name": "f"}]
    found: JsonObject = {"type": "tool_search_tool_search_result", "tool_references": references}
    kind = "tool_search_tool_result"
    assert read({"type": kind, "content": found}) == ("Tool f is available now.", [kind])
    assert read({"type": kind, "content": {"error_code": "x"}}) == ("", [kind])
    assert read({"type": kind}, {"type": kind, "content": []}) == ("", [kind])


def test_what_nobody_knows_is_left_out_and_told() -> None:
    assert read({"type": "brand_new"}, {"type": "newer", "text": 5}) == ("", ["unknown_block"])
    assert read({"type": "tool_use", "name": "f"}) == ("", ["misplaced_block"])


def test_who_shows_no_pictures_has_his_texts_read() -> None:
    findings = Findings()
    source: JsonObject = {"type": "content", "content": [text("a"), PICTURE]}
    (block,) = blocks_of(node([document(source)]))
    assert texts_of(block, findings) == [JsonText("a", b'"a"')]
    assert findings.facts == (Omitted("misplaced_block"),)


def test_content_is_a_string_or_blocks_or_nothing() -> None:
    assert blocks_of(None) == blocks_of(node([])) == []
    (block,) = blocks_of(node("Hi"))
    assert (block.kind, block.members.text("text"), block.members.text("title")) == (
        "text",
        JsonText("Hi", b'"Hi"'),
        None,
    )


def test_the_input_of_a_call_is_copied() -> None:
    assert write_arguments(Node({"a": 1.0}, b'{ "a":1.0 }', "")).text == '{ "a":1.0 }'
    assert write_arguments(None).text == "{}"


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "u"}},
            "capability_rejected: image_block (",
        ),
        ({"type": "image", "source": {"type": "file"}}, "capability_rejected: image_block ("),
        (document({"type": "url"}), "capability_rejected: document_block ("),
        (PICTURED, "capability_rejected: document_block ("),
        (document({"type": "text"}), ".data: Field required"),
        (document({"type": "content"}), ".content: Field required"),
        ({"type": "image", "source": {"type": "base64"}}, ".media_type: Field required"),
        ({"type": "image", "source": {"type": "base64", "media_type": "m"}}, ".data: Field"),
        ({"type": "image", "source": {}}, ".type: Field required"),
        (document({}), ".type: Field required"),
        ({"type": "image", "source": 5}, ": Expected an object, got a number."),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_path(block: JsonObject, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(text("Hi"), block)
    path = "content.1.source"
    expected = f"{path}{problem}" if problem[0] in ".:" else f"{path}: {problem}"
    assert str(refused.value).startswith(expected)
