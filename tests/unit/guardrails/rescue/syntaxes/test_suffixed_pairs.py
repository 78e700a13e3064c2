import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.suffixed_pairs import SuffixedPairs, SuffixedPairsAtStart
from tests.fakes.arrivals import read_syntax


def suffixed(name: str, text: str) -> str:
    tags = (("arg_key", "a"), ("arg_value", text))
    pairs = "".join(f"<{tag}:x1>{value}</{tag}:x1>\n" for tag, value in tags)
    return f"<tool_call:x1>{name}<tool_sep:x1>\n{pairs}</tool_call:x1>"


def test_all_tags_may_have_a_suffix() -> None:
    fetch = Calls((WrittenCall("fetch", {"a": "1 </arg_value> 2"}),))
    found = read_syntax(SuffixedPairsAtStart(), suffixed("fetch", "1 </arg_value> 2"))
    assert found == (fetch, "")
    calls = (WrittenCall("fetch", {"a": "1"}), WrittenCall("get", {"a": "2"}))
    text = f"<tool_calls:x1>\n{suffixed('fetch', '1')}\n{suffixed('get', '2')}\n"
    assert read_syntax(SuffixedPairs(), f"{text}</tool_calls:x1>") == (Calls(calls), "")
    assert read_syntax(SuffixedPairs(), text)[0] == Calls(calls, closed=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call: x", Reason.NOT_A_CALL),
        ("<tool_call:x1", Reason.NOT_A_CALL),
        ("<tool_calls:x1></tool_calls:x1>", Reason.NOT_A_CALL),
        ("<tool_calls:x1><tool_call:x1>f<arg_key:x1>a", Reason.BROKEN),
        ("<tool_call:x1>f<arg_key>a</arg_key><arg_value>1</arg_value>", Reason.NOT_A_CALL),
    ],
)
def test_a_suffix_alone_makes_no_call(text: str, reason: Reason) -> None:
    wrapped = text.startswith("<tool_calls")
    syntax = SuffixedPairs() if wrapped else SuffixedPairsAtStart()
    assert read_syntax(syntax, text)[0] == NotACall(reason)
