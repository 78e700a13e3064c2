import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.foreign_history import write_content
from proxy.dialects.openai_responses.results import is_failure, result_in
from proxy.dialects.raw_json import Node, nodes_in


def text_of(kind: str, output: JsonValue) -> str:
    node = None if output is None else Node(output, json.dump(output), "input.0.output")
    return write_content(result_in(kind, node, []))[0]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("12 degrees", "12 degrees"),
        (None, ""),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb"),
        ({"degrees": 12}, '{"degrees":12}'),
    ],
)
def test_the_result_of_a_function_is_its_text(output: JsonValue, text: str) -> None:
    assert text_of("function_call_output", output) == text


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}], "a"),
        (
            [{"stdout": "a\n", "stderr": "b\n", "outcome": {"type": "exit", "exit_code": 2}}],
            "a\nb\n[exit code 2]",
        ),
        ([{"stdout": "", "outcome": {"type": "timeout"}}, {"stdout": "b"}], "[timed out]\nb"),
    ],
)
def test_the_result_of_a_shell_is_what_it_printed_and_how_it_ended(
    output: JsonValue, text: str
) -> None:
    assert text_of("shell_call_output", output) == text


@pytest.mark.parametrize(
    ("kind", "members", "expected"),
    [
        ("apply_patch_call_output", {"status": "failed"}, True),
        ("apply_patch_call_output", {"status": "completed"}, False),
        ("apply_patch_call_output", {}, False),
        ("function_call_output", {"status": "failed"}, False),
    ],
)
def test_a_patch_tells_whether_it_has_failed(
    kind: str, members: JsonObject, expected: bool
) -> None:
    assert is_failure(kind, nodes_in(members, json.dump(members))) is expected
