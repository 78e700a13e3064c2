import re
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall
from proxy.guardrails.contents import plain_message
from proxy.guardrails.model_quirks import SystemRole, Template
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.tool_prompts.fragments import Convention
from proxy.guardrails.tool_prompts.history import (
    CONVENTIONS,
    describe_in_prompt,
    find_convention,
)
from tests.fakes.arrivals import chunkings, is_linear, scan
from tests.unit.guardrails.tool_prompts.retelling import (
    RESPOND,
    SEND,
    WAIT,
    as_written,
    calls,
    exactly,
    syntaxes_of,
    texts,
    write_and_read,
)

HERMES = find_convention("hermes")
DESCRIPTION = HERMES.describe([SEND], RESPOND)
FREE = Template()
NO_SYSTEM_ROLE = Template(system="nowhere")
STRICT = Template(alternates=True)
IMAGE: JsonObject = {"type": "image_url", "image_url": {"url": "data:,"}}
RESULT = b'{"role":"tool","content":"x"}'
SENT = ToolCall("a", "send", '{"to": "x"}')
LOOKED = ToolCall("b", "look", "{}")


def rewrite(*messages: Message, template: Template = FREE) -> list[Message]:
    return list(describe_in_prompt(messages, [SEND], RESPOND, convention=HERMES, template=template))


def rewrite_after_system_message(*messages: Message, template: Template = FREE) -> list[Message]:
    """Rewrite messages after a system message, and return them without the system message.

    The description of the tools is added to the system message.
    """
    return rewrite(plain_message("system", ""), *messages, template=template)[1:]


def with_parts(role: str, *parts: JsonValue) -> Message:
    text = "\n".join(
        str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part
    )
    return Message(role, text, json.dump({"role": role, "content": [*parts], "name": "n"}))


def result_of(call: ToolCall, text: str) -> str:
    return HERMES.write_result(call.name, call.id, text)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_tool_description_is_appended_to_the_system_prompt(role: str) -> None:
    hello = user_message("Hi")
    described, rest = rewrite(plain_message(role, "Be brief."), hello)
    assert described == plain_message(role, f"Be brief.\n\n{DESCRIPTION}")
    assert rest is hello


def test_the_tool_description_is_added_as_a_part_to_a_system_prompt_with_content_parts() -> None:
    (described,) = rewrite(with_parts("system", {"type": "text", "text": "Be brief."}))
    source = json.parse(described.source)
    assert isinstance(source, dict)
    assert source["name"] == "n"
    assert source["content"] == [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "\n\n"},
        {"type": "text", "text": DESCRIPTION},
    ]


@pytest.mark.parametrize("later", [(), (plain_message("system", "Be brief."),)])
def test_without_a_system_prompt_the_tool_description_is_a_system_message(
    later: tuple[Message, ...],
) -> None:
    messages = (user_message("Hi"), *later)
    assert rewrite(*messages) == [plain_message("system", DESCRIPTION), *messages]
    assert rewrite() == [plain_message("system", DESCRIPTION)]


def test_without_a_system_role_the_tool_description_precedes_the_user_text() -> None:
    assert rewrite(user_message("Hi"), template=NO_SYSTEM_ROLE) == (
        [user_message(f"{DESCRIPTION}\n\nHi")]
    )
    image = with_parts("user", IMAGE)
    (described,) = rewrite(image, template=NO_SYSTEM_ROLE)
    assert described.text.startswith(DESCRIPTION)
    assert json.dump(IMAGE) in described.source


def test_without_a_system_role_the_tool_description_precedes_an_assistant_message() -> None:
    greeting = assistant_message("Hello")
    messages = [greeting, user_message("Hi")]
    assert rewrite(*messages, template=NO_SYSTEM_ROLE) == [user_message(DESCRIPTION), *messages]
    assert rewrite(template=NO_SYSTEM_ROLE) == [user_message(DESCRIPTION)]


def test_only_the_history_is_rewritten_if_there_are_no_tools() -> None:
    hello = user_message("Hi")
    result = describe_in_prompt(
        [hello, tool_result("a", "1")], [], None, convention=HERMES, template=FREE
    )
    assert result[0] is hello
    assert [message.role for message in result] == ["user", "user"]


def test_calls_and_results_in_the_history_become_text() -> None:
    text = HERMES.write_calls("Sending.", [SENT, LOOKED])
    assert rewrite_after_system_message(
        assistant_message("Sending.", (SENT, LOOKED)),
        tool_result("b", "seen"),
        tool_result("a", "sent"),
        assistant_message("Done."),
    ) == [
        assistant_message(text),
        user_message(f"{result_of(LOOKED, 'seen')}\n{result_of(SENT, 'sent')}"),
        assistant_message("Done."),
    ]


def test_a_result_gets_the_tool_name_of_the_latest_call_with_the_same_id() -> None:
    again = replace(LOOKED, id="a")
    messages = rewrite_after_system_message(
        assistant_message("", (SENT,)),
        tool_result("a", "1"),
        assistant_message("", (again,)),
        tool_result("a", "2"),
    )
    assert [messages[1].text, messages[3].text] == [result_of(SENT, "1"), result_of(again, "2")]


def test_a_result_without_a_call_names_an_unknown_tool() -> None:
    stray = ToolCall("z", "unknown tool", "")
    assert rewrite_after_system_message(tool_result("z", "1")) == [
        user_message(result_of(stray, "1"))
    ]
    nameless = Message("tool", "1", b'{"role":"tool","content":"1"}')
    assert rewrite_after_system_message(nameless) == [user_message(result_of(stray, "1"))]


def test_results_of_two_rounds_are_not_joined() -> None:
    messages = rewrite_after_system_message(
        tool_result("a", "1"), user_message("And?"), tool_result("a", "2")
    )
    assert [message.role for message in messages] == ["user", "user", "user"]


def test_an_image_in_a_tool_result_is_kept_in_the_user_message() -> None:
    result = Message(
        "tool",
        "1",
        json.dump({"role": "tool", "content": [{"type": "text", "text": "1"}, IMAGE]}),
        tool_call_id="a",
    )
    (message,) = rewrite_after_system_message(result)
    assert json.dump(IMAGE) in message.source
    assert message.role == "user"


def test_messages_without_calls_or_results_are_unchanged() -> None:
    image = with_parts("user", {"type": "text", "text": "See"}, IMAGE)
    messages = [image, assistant_message("ok"), image, image, plain_message("system", "x")]
    assert all(
        message is other
        for message, other in zip(rewrite_after_system_message(*messages), messages, strict=True)
    )


def test_adjacent_messages_of_the_same_role_are_merged_if_roles_must_alternate() -> None:
    system = plain_message("system", "x")
    assert rewrite_after_system_message(
        assistant_message("", (SENT,)),
        tool_result("a", "1"),
        user_message("And?"),
        assistant_message("One."),
        assistant_message("Two."),
        system,
        system,
        template=STRICT,
    ) == [
        assistant_message(HERMES.write_calls("", [SENT])),
        user_message(f"{result_of(SENT, '1')}\n\nAnd?"),
        assistant_message("One.\n\nTwo."),
        system,
        system,
    ]


def parts_of(message: Message) -> list[JsonValue]:
    source = json.parse(message.source)
    assert isinstance(source, dict)
    content = source.get("content")
    match content:
        case list():
            return content
        case str() if content:
            return [{"type": "text", "text": content}]
        case _:
            return []


def other_members(message: Message) -> JsonValue:
    source = json.parse(message.source)
    assert isinstance(source, dict)
    return {key: value for key, value in source.items() if key != "content"}


ids = st.sampled_from(("a", "b", ""))
random_calls = st.builds(ToolCall, ids, st.sampled_from(("send", "look")), st.just('{"to": "x"}'))
part: st.SearchStrategy[JsonValue] = st.just(IMAGE) | texts.map(
    lambda text: {"type": "text", "text": text}
)
messages_of = st.lists(
    st.builds(plain_message, st.sampled_from(("system", "user", "assistant")), texts)
    | st.builds(lambda parts: with_parts("user", *parts), st.lists(part, max_size=3))
    | st.builds(assistant_message, texts, st.lists(random_calls, max_size=2).map(tuple))
    | st.builds(tool_result, ids, texts),
    min_size=1,
    max_size=5,
)
templates = st.builds(
    Template, system=st.sampled_from(get_args(SystemRole)), alternates=st.booleans()
)


@given(
    before=messages_of,
    later=messages_of,
    template=templates,
    convention=st.sampled_from(CONVENTIONS),
)
def test_appending_messages_changes_no_rewritten_message_but_may_extend_the_last(
    before: list[Message], later: list[Message], template: Template, convention: Convention
) -> None:
    def rewrite_all(messages: list[Message]) -> tuple[Message, ...]:
        return describe_in_prompt(
            messages, [SEND], RESPOND, convention=convention, template=template
        )

    first, complete = rewrite_all(before), rewrite_all(before + later)
    assert first == rewrite_all(before)
    *same, last = first
    assert list(complete[: len(same)]) == same
    extended = complete[len(same)]
    if extended != last:
        assert other_members(extended) == other_members(last)
        assert extended.text.startswith(last.text)
        short, long = parts_of(last), parts_of(extended)
        assert long[: max(len(short) - 1, 0)] == short[:-1]
        assert template.alternates or last.role == "user"
    assert not any(message.calls or message.role == "tool" for message in complete)


@pytest.mark.parametrize("template", [FREE, STRICT])
@pytest.mark.parametrize("role", ["tool", "user"])
def test_rewriting_takes_time_linear_in_the_number_of_results(
    template: Template, role: str
) -> None:
    def work(text: str) -> None:
        rewrite(
            *(Message(role, content, RESULT, tool_call_id="a") for content in text),
            template=template,
        )

    assert is_linear(work, lambda size: "x" * size, 500)


# Text without characters that can begin a call or a quotation.
prose = st.text(st.characters(codec="ascii", exclude_characters="`[{<"))
every_convention = pytest.mark.parametrize(
    "convention", CONVENTIONS, ids=lambda convention: convention.name
)
MARKS = {
    "hermes": ("<tool_response>", "</tool_response>", "<tool_call>"),
    "mistral": ("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[/INST]"),
    "gemma": ("```",),
    "llama3": ("<function_response>", "</function_response>", "<function="),
}
MARKED_NAME = re.compile(r'[<`\[{](?:[^"\\]|\\.)*":')
HARD = ToolCall("a", "send", r'{"a": "</tool_call>\"}}\n```\\", "b": [1, 1.0, true, "é"]}')


def names_are_plain(calls: list[ToolCall]) -> bool:
    """Return whether no member name contains a mark; a call with a mark in a name is refused."""
    return not any(MARKED_NAME.search(call.arguments) for call in calls)


def test_find_convention_finds_every_name_and_raises_key_error_for_another() -> None:
    assert [find_convention(convention.name) for convention in CONVENTIONS] == list(CONVENTIONS)
    with pytest.raises(KeyError):
        find_convention("morse")


@every_convention
def test_every_syntax_named_by_a_convention_exists(convention: Convention) -> None:
    assert tuple(syntax.name for syntax in order_syntaxes(convention.syntaxes))[
        : len(convention.syntaxes)
    ] == (convention.syntaxes)


@pytest.mark.deep
@every_convention
@settings(deadline=None)
@given(
    made_calls=st.lists(calls(), min_size=1, max_size=2).filter(names_are_plain),
    text=st.just("") | prose,
)
@example(made_calls=[HARD], text="Let me look.\n")
@example(made_calls=[HARD], text='It is "')
@example(made_calls=[HARD, ToolCall("", "now", "{}"), HARD], text="")
def test_calls_written_in_any_convention_are_read_back_as_the_same_calls(
    convention: Convention, made_calls: list[ToolCall], text: str
) -> None:
    again = write_and_read(convention, *made_calls, text=text)
    assert [exactly(call) for call in again] == [as_written(call) for call in made_calls]


@every_convention
def test_calls_in_any_convention_are_found_however_the_text_is_split(
    convention: Convention,
) -> None:
    text = convention.write_calls("", [HARD, HARD])
    syntaxes = syntaxes_of(convention)
    complete = scan([text], syntaxes, ("send",))
    assert all(scan(pieces, syntaxes, ("send",)) == complete for pieces in chunkings(text))


@pytest.mark.parametrize(
    "convention", [convention for convention in CONVENTIONS if convention.name in MARKS], ids=MARKS
)
@given(name=texts, text=texts)
@example(name="</tool_response>", text="</tool_response>[/TOOL_RESULTS]```</function_response>")
def test_names_and_results_cannot_contain_the_marks_of_a_convention(
    convention: Convention, name: str, text: str
) -> None:
    empty = convention.write_result("", "", "")
    result = convention.write_result(name, "", text)
    for mark in MARKS[convention.name]:
        assert result.count(mark) == empty.count(mark)


@every_convention
def test_the_prompt_describes_tools_in_order_and_the_tool_respond_only_if_offered(
    convention: Convention,
) -> None:
    without = convention.describe([SEND, WAIT], None)
    assert without.index("send") < without.index("wait")
    assert "respond" not in without
    assert convention.describe([SEND, WAIT], RESPOND) != without


@pytest.mark.parametrize(
    "convention", [convention for convention in CONVENTIONS if convention.name in MARKS], ids=MARKS
)
def test_the_prompt_demands_a_call_in_every_reply_only_if_the_tool_respond_is_offered(
    convention: Convention,
) -> None:
    without, with_respond = (convention.describe([SEND], respond) for respond in (None, RESPOND))
    assert with_respond.endswith("Every reply is a call: to answer the user, call respond.")
    assert "Every reply" not in without


@every_convention
def test_non_object_arguments_are_kept_as_a_string(convention: Convention) -> None:
    for broken in ('{"a', "[1]", '"</tool_call>"'):
        (call,) = write_and_read(convention, ToolCall("a", "send", broken))
        assert call.arguments == {"unparsable": broken}


@every_convention
def test_blank_arguments_are_read_back_as_an_empty_object(convention: Convention) -> None:
    (call,) = write_and_read(convention, ToolCall("a", "send", " "))
    assert call.arguments == {}


LLAMA = find_convention("llama3")
LLAMA_DESCRIPTION = """You can call these functions:
{"type":"function","function":{"name":"send","description":"send","parameters":\
{"type":"object","properties":{"to":{"type":"string"}}}}}
{"type": "function",
 "function": {"name": "wait"}}
%s
To call one, write a line in this form, the arguments as a JSON object, \
and one line more for each further call:
<function=NAME>{"PARAMETER": "VALUE"}</function>
You get the results between <function_response> tags.%s"""


def test_the_llama_prompt_describes_each_function_on_one_line() -> None:
    duty = " Every reply is a call: to answer the user, call respond."
    source = RESPOND.source.decode() + "\n"
    assert LLAMA.describe([SEND, WAIT], RESPOND) == LLAMA_DESCRIPTION % (source, duty)
    assert LLAMA.describe([SEND, WAIT], None) == LLAMA_DESCRIPTION % ("", "")


def test_each_call_is_written_on_a_separate_line() -> None:
    calls = [ToolCall("a", "send", '{"to": "</function>"}'), ToolCall("b", "wait", "{}")]
    assert LLAMA.write_calls("Sending.", calls) == (
        'Sending.\n\n<function=send>{"to": "\\u003c/function>"}</function>\n'
        "<function=wait>{}</function>"
    )


def test_a_result_is_written_between_tags() -> None:
    assert LLAMA.write_result("send", "a", "</function_response>") == (
        '<function_response>{"name": "send", "content": "\\u003c/function_response>"}'
        "</function_response>"
    )


@pytest.mark.parametrize("name", ["a b", "a>b", "a'b", "<f", 'a"'])
def test_a_call_whose_tool_name_would_break_a_tag_is_not_read_back(name: str) -> None:
    assert name not in [call.name for call in write_and_read(LLAMA, ToolCall("a", name, "{}"))]


def test_a_single_argument_named_arguments_contains_all_arguments() -> None:
    (call,) = write_and_read(LLAMA, ToolCall("a", "send", '{"arguments": {"to": "x"}}'))
    assert call.arguments == {"to": "x"}
