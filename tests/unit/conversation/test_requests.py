import pytest

from proxy.conversation.messages import user_message
from proxy.conversation.requests import UNSAID, Parsing, Request, ThinkingOptions, UpstreamRequest
from proxy.conversation.tools import Tool, ToolUse

REQUEST = Request("m", (user_message("Hi"),), {"model": b'"m"'})


def test_the_options_of_a_request_have_defaults() -> None:
    assert (REQUEST.tool_choice, REQUEST.parallel_tool_calls) == (ToolUse.AUTO, True)
    assert (REQUEST.tools, REQUEST.max_tokens) == ((), None)
    assert not any((REQUEST.stream, REQUEST.stop_strings))
    assert REQUEST.answer_schema is None


def test_by_default_the_backend_parses_the_reply_to_an_upstream_request() -> None:
    upstream_request = UpstreamRequest(REQUEST, REQUEST.messages, (), ToolUse.AUTO)

    assert (upstream_request.parsing, upstream_request.schema) == (Parsing.BACKEND, None)


def test_a_request_cannot_be_altered() -> None:
    with pytest.raises(AttributeError):
        REQUEST.model = "n"  # type: ignore[misc]


def test_max_tokens_are_reserved_unless_answer_reserve_is_set() -> None:
    assert (REQUEST.reserved, REQUEST.answer_reserve) == (None, None)
    assert Request("m", (), {}, max_tokens=900).reserved == 900
    assert Request("m", (), {}, max_tokens=900, answer_reserve=0).reserved == 0


def test_limit_tokens_sets_the_field_that_the_client_used() -> None:
    plain = Request("m", (), {"model": b'"m"'})
    assert plain.limit_tokens(512).fields["max_tokens"] == b"512"
    generous = Request("m", (), {"max_completion_tokens": b"900"}, max_tokens=900)
    bounded = generous.limit_tokens(512)
    assert (bounded.max_tokens, dict(bounded.fields)) == (512, {"max_completion_tokens": b"512"})
    assert generous.limit_tokens(2000).fields["max_completion_tokens"] == b"900"


RAW = {"model": b'"m"', "messages": b"[]", "tools": b"[]", "tool_choice": b'"required"'}


def test_append_messages_removes_the_field_messages() -> None:
    request = Request("m", (user_message("Hi"),), RAW, tool_choice=ToolUse.REQUIRED)
    longer = request.append_messages((user_message("Ho"),))
    assert [message.text for message in longer.messages] == ["Hi", "Ho"]
    assert [*longer.fields] == ["model", "tools", "tool_choice"]


def test_added_tools_come_after_the_tools_of_the_client() -> None:
    client_tool, more = (Tool(name, {}, b"{}") for name in ("own", "more"))
    request = Request("m", (), RAW, (client_tool,)).offering((more,))
    assert request.tools == (client_tool, more)
    assert [*request.fields] == ["model", "messages", "tool_choice"]


def test_the_method_choosing_changes_the_attribute_and_the_field_tool_choice() -> None:
    request = Request("m", (), RAW, tool_choice=ToolUse.REQUIRED).choosing(ToolUse.AUTO)
    assert (request.tool_choice, request.fields["tool_choice"]) == (ToolUse.AUTO, b'"auto"')


def test_defaults_replace_only_unset_thinking_options() -> None:
    assert UNSAID.or_else(None) is UNSAID
    assert ThinkingOptions(effort="high").or_else(is_on=False) == ThinkingOptions(False, "high")


@pytest.mark.parametrize(
    ("options", "effort"),
    [
        (UNSAID, "low"),
        (ThinkingOptions(is_on=True), "low"),
        (ThinkingOptions(is_on=False), ""),
        (ThinkingOptions(effort="high"), "high"),
        (ThinkingOptions(budget=9), ""),
    ],
)
def test_defaults_do_not_override_thinking_options_of_the_client(
    options: ThinkingOptions, effort: str
) -> None:
    assert options.or_else(None, "low").effort == effort
    assert ThinkingOptions(is_on=True).or_else(is_on=False) == ThinkingOptions(is_on=True)


@pytest.mark.parametrize(
    ("sent", "stops", "together"),
    [
        (None, (), ()),
        (b'"a"', ("x",), ("a", "x")),
        (b'["a","x"]', ("x",), ("a", "x")),
        (b'["a","b","c"]', ("x", "y"), ("a", "b", "c", "x")),
        (b'["a","b","c","d","e"]', ("x",), ("a", "b", "c", "d", "e")),
        (b"null", ("x",), ("x",)),
    ],
)
def test_stop_strings_are_added_after_those_of_the_client_up_to_the_limit(
    sent: bytes | None, stops: tuple[str, ...], together: tuple[str, ...]
) -> None:
    request = Request("m", (), {} if sent is None else {"stop": sent})
    upstream_request = UpstreamRequest(request, (), (), ToolUse.AUTO, stops=stops)
    assert upstream_request.stop_strings == together
