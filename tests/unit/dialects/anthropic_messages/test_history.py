from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.backends.affinity import conversation_key
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import Request
from proxy.dialects.anthropic_messages.history import (
    Findings,
    blocks_of,
    parts_of,
    texts_of,
)
from proxy.dialects.foreign_history import sign, write_arguments, write_content
from proxy.dialects.raw_json import JsonText, Node
from proxy.errors import InvalidRequest
from proxy.facts import Omitted
from proxy.guardrails.history_repair.history import replay_thoughts
from proxy.guardrails.transcript import list_completed_calls, rounds_since_user
from tests.examples import examples
from tests.unit.dialects.anthropic_messages.conversations import (
    BILLING,
    MARK,
    PICTURE,
    TOOLS,
    body,
    decode_request,
    histories,
    rewritten,
    words,
)


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
        ({"type": "web_search_tool_result", "content": {"title": 5, "url": "u"}}, "u"),
        ({"type": "advisor_tool_result", "content": "done"}, "done"),
        ({"type": "advisor_tool_result", "content": [text("done"), 5]}, "done"),
        ({"type": "advisor_tool_result", "content": [[[["too deep"]]]]}, ""),
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


@pytest.mark.fault("F106")
def test_what_a_vendors_servers_returned_is_a_result() -> None:
    found: JsonObject = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [FOUND]}
    empty: JsonObject = {"type": "web_search_tool_result", "tool_use_id": "e", "content": []}
    blocks: JsonValue = [text("I look."), empty, found, text("Found.")]
    asked: JsonObject = {"role": "user", "content": "Hi"}
    history = [asked, {"role": "assistant", "content": blocks}, asked]
    said = decode_request(body(history)).request.messages[1:-1]
    assert [(one.role, one.text) for one in said] == [
        ("assistant", "I look."),
        ("tool", "T\nu"),
        ("assistant", "Found."),
    ]


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


MARKS = count()
HI: JsonObject = {"role": "user", "content": "Hi"}


def decoded(messages: list[JsonObject], **members: JsonValue) -> Request:
    return decode_request(body(messages, **members)).request


def converted(*messages: JsonObject, **members: JsonValue) -> list[JsonValue]:
    return [json.parse(one.source) for one in decoded([*messages], **members).messages]


def left_out(*messages: JsonObject) -> list[str]:
    facts = decode_request(body([*messages])).facts
    return [fact.what for fact in facts if isinstance(fact, Omitted)]


def said(role: str, *blocks: JsonValue) -> JsonObject:
    return {"role": role, "content": [*blocks]}


def result(call_id: str, **members: JsonValue) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call_id, **members}


class TestTheSameConversation:
    @settings(max_examples=examples(40))
    @given(histories(), words, st.data())
    def test_gives_the_same_bytes_however_it_is_written(
        self, messages: list[JsonObject], system: str, data: st.DataObject
    ) -> None:
        def choose() -> bool:
            return data.draw(st.booleans())

        plain = decoded(messages, system=system, tools=TOOLS)
        marked = [{**tool, "cache_control": MARK} for tool in TOOLS if isinstance(tool, dict)]
        other: JsonObject = {
            "system": [{**text(system), "cache_control": MARK}] if choose() else system,
            "tools": [*marked] if choose() else TOOLS,
        }
        if choose():
            other["cache_control"] = MARK
        again = decoded(rewritten(messages, choose), **other)
        assert again == plain
        assert again.fields == plain.fields

    @settings(max_examples=examples(25))
    @given(histories(), words)
    def test_gives_the_same_when_its_messages_were_read_before(
        self, messages: list[JsonObject], system: str
    ) -> None:
        never_read: list[JsonObject] = [{**one, "mark": next(MARKS)} for one in messages]
        asked: JsonObject = {"system": system, "tools": TOOLS}
        first = decode_request(body(never_read, **asked))
        again = decode_request(body(never_read, **asked))
        assert (again.request, again.facts) == (first.request, first.facts)

    @settings(max_examples=examples(40))
    @given(histories(), words)
    def test_begins_with_the_same_messages_when_it_has_gone_on(
        self, messages: list[JsonObject], system: str
    ) -> None:
        roles = [message["role"] for message in messages]
        requests = [place for place, role in enumerate(roles) if role == "assistant"]
        turns = [
            place + 1 for place, (one, next_) in enumerate(pairwise(roles)) if one == "assistant"
        ]
        whole = decoded(messages, system=system, tools=TOOLS)
        for cut in {*requests, *turns}:
            part = decoded(messages[:cut], system=system, tools=TOOLS)
            assert whole.messages[: len(part.messages)] == part.messages
            assert whole.tools[: len(part.tools)] == part.tools

    @pytest.mark.parametrize(
        "system",
        [
            [text(BILLING), text("Be kind.")],
            [text(f"{BILLING}\n"), text("Be kind.")],
            [text(f"{BILLING}\nBe kind.")],
            f"{BILLING}\nBe kind.",
            [text("Be kind."), text(BILLING)],
        ],
    )
    def test_has_no_line_that_tells_whom_to_bill(self, system: JsonValue) -> None:
        assert decoded([HI], system=system) == decoded([HI], system="Be kind.")

    @pytest.mark.parametrize(
        ("written", "rest"),
        [
            (rb'" a\"\\n\t\u0041\nBe \u00e4"', rb'"Be \u00e4"'),
            (rb'" a\u000ABe\n"', rb'"Be\n"'),
        ],
    )
    def test_keeps_the_bytes_behind_that_line(self, written: bytes, rest: bytes) -> None:
        line = b'"x-anthropic-billing-header:' + written[1:]
        request = b'{"max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"system":%b}'
        (system, _) = decode_request(request % line).request.messages
        assert system.source == b'{"role":"system","content":' + rest + b"}"
        assert system.text == json.parse(rest)

    def test_that_consists_of_that_line_has_no_system_message(self) -> None:
        assert converted(HI, system=BILLING) == converted(HI)


class TestWhatTheSystemSays:
    def test_is_one_message_at_the_start(self) -> None:
        first: JsonObject = {"role": "system", "content": "And brief."}
        system, user = converted(first, HI, system=[text("Be kind."), text(""), text("Be fair.")])
        assert system == {"role": "system", "content": "Be kind.\nBe fair.\nAnd brief."}
        assert user == HI

    def test_is_folded_into_the_message_before_it_later(self) -> None:
        note = said("system", text("One."), text("Two."))
        call: JsonObject = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
        reminder = "<system-reminder>\nOne.\nTwo.\n</system-reminder>"
        user, _, tool = converted(
            HI, note, said("assistant", call), said("user", result("c")), note
        )
        assert user == {"role": "user", "content": f"Hi\n{reminder}"}
        assert tool == {"role": "tool", "tool_call_id": "c", "content": reminder}

    def test_behind_the_assistant_is_said_by_the_user(self) -> None:
        _, _, last = converted(HI, said("assistant", text("Hi.")), said("system", text("Now.")))
        reminder = "<system-reminder>\nNow.\n</system-reminder>"
        assert last == {"role": "user", "content": reminder}

    def test_may_be_nothing_but_settings(self) -> None:
        assert converted(HI, {"role": "system", "output_config": {"effort": "low"}}) == [HI]

    def test_shows_no_pictures(self) -> None:
        assert converted(HI, said("system", PICTURE)) == [HI]
        assert left_out(HI, said("system", PICTURE)) == ["misplaced_block"]

    @settings(max_examples=examples(25))
    @given(histories())
    def test_behind_a_result_changes_nothing_that_guardrails_see(
        self, messages: list[JsonObject]
    ) -> None:
        def reminded(note: str) -> list[JsonObject]:
            found: list[JsonObject] = []
            for message in messages:
                if message["role"] != "system":
                    found.append(message)
                content = message["content"]
                if isinstance(content, list) and any(
                    isinstance(one, dict) and one["type"] == "tool_result" for one in content
                ):
                    found.append(said("system", text(f"{note} {len(found)}")))
            return found

        with_notes, without = decoded(reminded("Left:")), decoded(reminded(""))
        plain = decoded([message for message in messages if message["role"] != "system"])
        assert conversation_key(with_notes, {}) == conversation_key(plain, {})
        for noted in (with_notes, without):
            assert rounds_since_user(noted.messages) == rounds_since_user(plain.messages)
            assert _judged(noted.messages) == _judged(plain.messages)
            assert _thinking(noted.messages) == _thinking(plain.messages)


def _judged(messages: tuple[Message, ...]) -> list[tuple[str, bool, int]]:
    return [(call.name, call.has_failed, call.turn) for call in list_completed_calls(messages)]


def _thinking(messages: tuple[Message, ...]) -> list[bool]:
    return [b"reasoning" in one.source for one in replay_thoughts(messages, "last")]


class TestResults:
    def test_come_before_what_the_user_says(self) -> None:
        messages = converted(
            HI, said("user", text("And?"), result("a"), PICTURE, result("b", content="done"))
        )
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        assert messages[1:] == [
            {"role": "tool", "tool_call_id": "a", "content": ""},
            {"role": "tool", "tool_call_id": "b", "content": "done"},
            {"role": "user", "content": [text("And?"), picture]},
        ]

    def test_keep_their_pictures(self) -> None:
        (message,) = converted(said("user", result("a", content=[text("See:"), PICTURE])))
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        assert message == {"role": "tool", "tool_call_id": "a", "content": [text("See:"), picture]}

    @pytest.mark.parametrize(
        ("content", "written"),
        [
            ("<tool_use_error>no</tool_use_error>", "Error: <tool_use_error>no</tool_use_error>"),
            ("Error: gone", "Error: gone"),
            (None, "Error: "),
        ],
    )
    def test_of_failed_calls_say_so(self, content: JsonValue, written: str) -> None:
        (message,) = converted(said("user", result("a", content=content, is_error=True)))
        assert message == {"role": "tool", "tool_call_id": "a", "content": written}

    def test_without_an_id_are_left_to_be_paired(self) -> None:
        (message,) = decoded([said("user", {"type": "tool_result", "content": "x"})]).messages
        assert message == Message("tool", "x", b'{"role":"tool","content":"x"}')


class TestTheAssistant:
    def test_thinks_says_and_calls(self) -> None:
        thought = {"type": "thinking", "thinking": "Hm.", "signature": sign("Hm.")}
        request = (
            b'{"max_tokens":9,"messages":[{"role":"assistant","content":[%b,{"type":"text",'
            b'"text":"Well."},{"type":"tool_use","id":"c","name":"f","input":{ "a":1.0,'
            b'"b":"\\u00e4"}},{"type":"tool_use","name":"g"}]}]}' % json.dump({**thought})
        )
        (message,) = decode_request(request).request.messages
        assert message.source == (
            b'{"role":"assistant","content":"Well.","reasoning_content":"Hm.","tool_calls":['
            b'{"id":"c","type":"function","function":{"name":"f",'
            b'"arguments":"{ \\"a\\":1.0,\\"b\\":\\"\\\\u00e4\\"}"}},'
            b'{"type":"function","function":{"name":"g","arguments":"{}"}}]}'
        )
        assert [call.arguments for call in message.calls] == ['{ "a":1.0,"b":"\\u00e4"}', "{}"]

    def test_may_say_nothing(self) -> None:
        nothing = {"role": "assistant", "content": ""}
        assert converted(HI, said("assistant")) == [HI, nothing]
        assert converted(HI, said("assistant", {"type": "thinking"})) == [HI, nothing]

    def test_forgets_the_thoughts_of_another_model(self) -> None:
        foreign: JsonObject = {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCgIYAhIM"}
        redacted: JsonObject = {"type": "redacted_thinking", "data": "EqQBCgIYAhIM"}
        message = said("assistant", foreign, redacted, text("Hi."))
        assert converted(message) == [{"role": "assistant", "content": "Hi."}]
        assert left_out(message) == ["foreign_thinking", "redacted_thinking"]

    def test_shows_no_pictures(self) -> None:
        message = said("assistant", PICTURE)
        assert converted(message) == [{"role": "assistant", "content": ""}]
        assert left_out(message) == ["misplaced_block"]


class TestATurnOfTheUser:
    def test_may_be_empty(self) -> None:
        assert (
            converted({"role": "user"}, said("user"), said("user", text("")))
            == [{"role": "user", "content": ""}] * 3
        )

    def test_adds_nothing_behind_results_but_empty_text(self) -> None:
        assert len(converted(said("user", result("a"), text("")))) == 1


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_tool_that_is_found_is_offered_whoever_names_it(role: str) -> None:
    naming: JsonObject = {"type": "tool_reference", "tool_name": "later"}
    for _ in range(2):  # the second time it was read before
        request = decoded([HI, said(role, naming)], tools=TOOLS)
        assert [tool.name for tool in request.tools] == ["look", "go", "later"]
        assert "Tool later is available now." in request.messages[-1].text


@pytest.mark.parametrize(
    ("change", "tool"),
    [
        ("tool_addition", {"type": "mcp_toolset_reference", "server_name": "s"}),
        ("tool_removal", {"type": "tool_definition", "definition": {"name": "g"}}),
    ],
)
def test_a_change_of_tools_that_means_nothing_here_is_left_out(
    change: str, tool: JsonObject
) -> None:
    assert left_out(HI, said("system", {"type": change, "tool": tool})) == [change]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (said("user", {"type": "text"}), "messages.0.content.0.text: Field required"),
        (said("user", text("a"), {"type": "text", "text": 5}), "messages.0.content.1.text: Expec"),
        (said("user", result("a", content=5)), "messages.0.content.0.content: Expected an array"),
        (said("user", result("a", content=["b"])), "messages.0.content.0.content.0: Expected an o"),
        (said("user", result("a", content=[{}])), "messages.0.content.0.content.0.type: Field"),
        (said("assistant", {"type": "tool_use"}), "messages.0.content.0.name: Field required"),
        (said("system", {"type": "tool_addition"}), "messages.0.content.0.tool: Field required"),
    ],
)
def test_what_cannot_be_read_is_named(message: JsonObject, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decoded([message])
    assert str(refused.value).startswith(problem)


def test_calls_that_a_server_has_run_are_calls_with_their_results() -> None:
    use: JsonObject = {"type": "mcp_tool_use", "id": "mcptoolu_a", "name": "f", "input": {"a": 1}}
    result: JsonObject = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_a"}
    other = {**use, "id": "toolu_b"}
    failed: JsonObject = {**result, "tool_use_id": "toolu_b", "is_error": True, "content": "no"}
    said: list[JsonValue] = [use, other, {**result, "content": [text("found")]}, failed]
    mores: list[list[JsonObject]] = [[], [text("Done.")]]
    for more in mores:
        asked = body(
            [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [*said, *more]}]
        )
        _, call, found, no, *rest = decode_request(asked).request.messages
        assert [one.id for one in call.calls] == ["a", "toolu_b"]
        assert (found.tool_call_id, found.text) == ("a", "found")
        assert (no.tool_call_id, no.text, no.failed) == ("toolu_b", "Error: no", True)
        assert [one.text for one in rest] == [f"{one['text']}" for one in more]


@pytest.mark.parametrize(
    "more",
    [
        {"type": "tool_use", "id": "toolu_c", "name": "g", "input": {}},
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
    ],
    ids=["a call", "a thought"],
)
def test_what_the_model_says_behind_a_result_is_kept_without_any_text(more: JsonObject) -> None:
    use: JsonObject = {"type": "mcp_tool_use", "id": "mcptoolu_a", "name": "f", "input": {}}
    result: JsonObject = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_a"}
    *_, last = decode_request(body([HI, said("assistant", use, result, more)])).request.messages
    assert last.role == "assistant"
    assert bool(last.calls) is (more["type"] == "tool_use")


@pytest.mark.parametrize(("more", "count"), [(text("And now?"), 2), (PICTURE, 2), (text(""), 1)])
def test_what_the_user_says_beside_results_stands_behind_them(more: JsonObject, count: int) -> None:
    use: JsonObject = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    found: JsonObject = {"type": "tool_result", "tool_use_id": "a", "content": "found"}
    history: list[JsonObject] = [HI, said("assistant", use), said("user", more, found)]
    _, _, *rest = decode_request(body(history)).request.messages
    assert [one.role for one in rest] == ["tool", "user"][:count]
    assert rest[-1].text == ("found" if count == 1 else more.get("text", ""))


@pytest.mark.parametrize(
    "before", [text("Let me see."), {"type": "thinking", "thinking": "Hm.", "signature": ""}]
)
def test_what_the_model_said_before_a_foreign_result_is_kept(before: JsonObject) -> None:
    found: JsonObject = {"type": "mcp_tool_result", "tool_use_id": "b", "content": "found"}
    _, first, result = decode_request(body([HI, said("assistant", before, found)])).request.messages
    assert (first.role, result.role) == ("assistant", "tool")
    assert b"Let me see." in first.source or b"Hm." in first.source
