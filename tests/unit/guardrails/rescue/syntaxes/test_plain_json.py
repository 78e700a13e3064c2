import pytest

from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.rescue.formats import FORMATS, Format
from proxy.guardrails.rescue.registry import SYNTAXES, find_syntax
from proxy.guardrails.rescue.syntax import NoCall
from proxy.guardrails.rescue.syntaxes.marked_json import marked_json
from proxy.guardrails.rescue.syntaxes.plain_json import fenced_json
from tests.fakes.arrivals import chunkings, read_syntax, scan

ROW = FORMATS["fenced_json"]
HERMES = find_syntax("hermes")
BARE_JSON = find_syntax("bare_json")
QWEN_CODER = find_syntax("qwen_coder")


GRANITE = marked_json(Format(name="granite", shape="json", marks={"<function_call>": ""}))
MARKED = fenced_json(ROW, (HERMES, QWEN_CODER, GRANITE, BARE_JSON))
TAGGED = "<tool_call><function=ping><parameter=host>```</parameter></function></tool_call>"


@pytest.mark.parametrize(
    "body",
    [
        f"Like this: {TAGGED}",
        f"{TAGGED}\nor so",
        "<tool_call>oh</tool_call>",
        "<s>" * 9 + TAGGED,
        TAGGED * 30,
    ],
)
def test_a_marked_call_with_other_text_in_the_same_code_fence_is_refused(body: str) -> None:
    outcome, rest = read_syntax(MARKED, f"```xml\n{body}\n```")
    assert isinstance(outcome, NoCall) or rest.strip("`\n") or not outcome.closed


def test_the_arguments_of_a_refused_call_in_a_fence_are_not_reported() -> None:
    text = "```<|channel|>commentary to=functions.ping<|constrain|>json<|message|>{>"
    for pieces in chunkings(text):
        assert scan(pieces, SYNTAXES, ["ping"]) == [Prose(text)]
