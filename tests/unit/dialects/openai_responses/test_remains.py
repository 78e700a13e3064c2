import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.openai_responses.remains import remains_of
from proxy.dialects.raw_json import nodes_in


@pytest.mark.parametrize(
    ("kind", "members", "text"),
    [
        (
            "file_search_call",
            {"results": [{"filename": "a.md", "text": "Rain."}, {"score": 1}, 3]},
            "[file_search_call]\na.md\nRain.",
        ),
        ("file_search_call", {"results": None}, None),
        (
            "code_interpreter_call",
            {"code": "1+1", "outputs": [{"type": "logs", "logs": "2"}, {"type": "image"}]},
            "[code_interpreter_call]\n1+1\n2",
        ),
        ("mcp_call", {"output": "found"}, "[mcp_call]\nfound"),
        ("mcp_call", {"output": None}, None),
        ("web_search_call", {"action": {"query": "x"}}, None),
    ],
)
def test_only_what_is_said_in_the_open_is_kept(
    kind: str, members: JsonObject, text: str | None
) -> None:
    found = remains_of(kind, nodes_in(members, json.dump(members)))
    assert (found and found.text) == text
