import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyStarted, TextDelta
from proxy.conversation.requests import LoadOptions, ThinkingOptions
from proxy.conversation.tools import ToolCall
from proxy.dialects.dialect import Client, Decoded, Dialect, IdsAndClock, Problem
from proxy.dialects.lenient_json import as_object
from proxy.dialects.ollama_chat.downstream.dialect import OllamaDialect, read_duration
from proxy.errors import InvalidRequest
from proxy.facts import Omitted

STAMP = IdsAndClock(now=lambda: 1.0, token=lambda: "abc")
CHAT, GENERATE = OllamaDialect(STAMP), OllamaDialect(STAMP, is_text=True)
HI: JsonObject = {"role": "user", "content": "Hi"}


def decoded(dialect: OllamaDialect, **members: JsonValue) -> Decoded:
    asked: JsonObject = {"prompt": "Hi"} if dialect.is_text else {"messages": [HI]}
    return dialect.decode(json.dump({"model": "m:latest", **asked, **members}), Client())


@pytest.mark.parametrize(
    ("dialect", "title"), [(CHAT, "OllamaChatRequest"), (GENERATE, "OllamaGenerateRequest")]
)
def test_it_is_a_front_end(dialect: Dialect, title: str) -> None:
    assert (dialect.name, dialect.stream_type) == ("ollama", "application/x-ndjson")
    schemas = dialect.schemas()
    assert schemas.request["title"] == title
    assert schemas.error["title"] == "OllamaError"


@pytest.mark.parametrize(("dialect", "member"), [(CHAT, "message"), (GENERATE, "response")])
def test_it_answers_as_it_was_asked(dialect: OllamaDialect, member: str) -> None:
    answering = decoded(dialect).answering
    stream = answering.begin(None)
    assert b'"%b":' % member.encode() in stream.encode_all([ReplyStarted(), TextDelta("Hi")])
    builder = answering.builder(None)
    builder.add(TextDelta("Hi"))
    answer = as_object(json.parse(builder.build()))
    assert member in answer
    assert answer["model"] == "m:latest"
    assert answering.new_call_id() == "call_abc"


def test_a_stream_is_complete_with_its_last_line() -> None:
    stream = decoded(CHAT).answering.begin(None)
    text = stream.encode_all([TextDelta('"done":true')])
    assert not CHAT.is_complete(text)
    assert not CHAT.is_complete(stream.fail(Problem(502, "k", '"done":true')))
    assert CHAT.is_complete(stream.end())


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"messages": []}, "load"),
        ({"messages": [], "keep_alive": "10m"}, "load"),
        ({"messages": [], "keep_alive": 0}, "unload"),
        ({"messages": [], "keep_alive": "0s"}, "unload"),
        ({}, None),
    ],
)
def test_what_only_loads_is_answered_at_once(members: JsonObject, reason: str | None) -> None:
    loaded = decoded(CHAT, **members).load_status
    assert (as_object(json.parse(loaded)).get("done_reason") if loaded else None) == reason


def test_who_has_sent_pictures_hears_that_the_model_sees_none() -> None:
    picture: JsonObject = {**HI, "images": ["iVBORw0KGgo="]}
    assert decoded(CHAT).image_error == ""
    assert decoded(CHAT, messages=[picture]).image_error.startswith("This model takes no pictures.")


def test_errors_and_counts() -> None:
    reply = CHAT.error(Problem(400, "k", "No."), "req_1")
    assert (reply.status, reply.body) == (400, b'{"error":"No."}')
    body = json.dump({"model": "m", "messages": [HI]})
    assert CHAT.decode_count(body, Client()).request.model == "m"
    assert CHAT.encode_count(5) == b'{"prompt_eval_count":5}'


PNG = "iVBORw0KGgo="


def decode_chat(body: bytes) -> Decoded:
    return OllamaDialect(STAMP).decode(body, Client())


def decode_generate(body: bytes) -> Decoded:
    return OllamaDialect(STAMP, is_text=True).decode(body, Client())


def chat(*messages: JsonValue, **members: JsonValue) -> Decoded:
    return decode_chat(json.dump({"model": "m", "messages": [*(messages or (HI,))], **members}))


def generate(**members: JsonValue) -> Decoded:
    return decode_generate(json.dump({"model": "m", "prompt": "Hi", **members}))


def fields(decoded: Decoded) -> JsonObject:
    return {name: json.parse(raw) for name, raw in decoded.request.fields.items()}


def sources(decoded: Decoded) -> list[JsonValue]:
    return [json.parse(message.source) for message in decoded.request.messages]


def call(name: str, arguments: JsonValue, **more: JsonValue) -> JsonObject:
    return {**more, "function": {"name": name, "arguments": arguments}}


def test_a_plain_message_goes_on_as_it_was_written() -> None:
    body = b'{"model":"m:latest","messages":[{ "content":"Hi", "role":"user"}]}'
    read = decode_chat(body)
    assert read.request.messages[0].source == b'{ "content":"Hi", "role":"user"}'
    assert read.request.model == "m"
    assert list(read.request.fields) == ["model", "messages", "stream"]
    assert read.request.stream


def test_an_answer_is_streamed_unless_it_is_not_wanted(*, stream: bool) -> None:
    assert chat(stream=stream).request.stream is stream
    assert ("stream" in chat(stream=stream).request.fields) is stream


def test_calls_and_results_without_ids_find_each_other() -> None:
    made: list[JsonValue] = [call("a", {"x": 1}), call("b", {}), call("b", {"y": 2})]
    read = chat(
        HI,
        {"role": "assistant", "tool_calls": made},
        {"role": "tool", "tool_name": "b", "content": "first b"},
        {"role": "tool", "content": "a"},
        {"role": "tool", "tool_name": "b", "content": "second b"},
        {"role": "tool", "tool_name": "nobody", "content": "lost"},
        {"role": "tool", "content": "lost as well"},
    )
    _, assistant, *results = read.request.messages
    assert assistant.calls == (
        ToolCall("call_1", "a", '{"x":1}'),
        ToolCall("call_2", "b", "{}"),
        ToolCall("call_3", "b", '{"y":2}'),
    )
    ids = [message.tool_call_id for message in results]
    assert ids == ["call_2", "call_1", "call_3", "call_4", "call_5"]
    assert sources(read)[1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": one.id,
                "type": "function",
                "function": {"name": one.name, "arguments": one.arguments},
            }
            for one in assistant.calls
        ],
    }


def test_a_longer_history_begins_with_the_bytes_of_a_shorter_one() -> None:
    before: list[JsonValue] = [
        HI,
        {"role": "assistant", "thinking": "Hm.", "tool_calls": [call("a", {})]},
        {"role": "tool", "tool_name": "a", "content": "1"},
    ]
    after: list[JsonValue] = [{"role": "assistant", "tool_calls": [call("a", {})]}, {**HI}]
    short, long = chat(*before), chat(*before, *after)
    assert long.request.messages[:3] == short.request.messages


def test_ids_of_the_client_are_kept() -> None:
    read = chat(
        {"role": "assistant", "content": "See:", "tool_calls": [call("a", '{"x": 1}', id="c9")]},
        {"role": "tool", "content": "1", "tool_call_id": "c9"},
        {"role": "tool", "content": "1", "tool_call_id": "c10"},
    )
    assistant, result, lost = read.request.messages
    assert assistant.calls == (ToolCall("c9", "a", '{"x": 1}'),)
    assert (result.tool_call_id, lost.tool_call_id) == ("c9", "c10")
    assert assistant.text == "See:"


def test_thoughts_are_replayed_in_the_words_of_backends() -> None:
    read = chat({"role": "assistant", "content": "4", "thinking": "2 + 2"})
    assert sources(read) == [{"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}]
    empty = chat({"role": "assistant", "content": "4", "thinking": ""})
    assert sources(empty) == [{"role": "assistant", "content": "4"}]


@pytest.mark.parametrize(
    ("sent", "url"),
    [
        (PNG, f"data:image/png;base64,{PNG}"),
        ("/9j/4AAQ", "data:image/jpeg;base64,/9j/4AAQ"),
        ("R0lGODlh", "data:image/gif;base64,R0lGODlh"),
        ("UklGRg==", "data:image/webp;base64,UklGRg=="),
        ("AAAA", "data:image/png;base64,AAAA"),
        (f"data:image/bmp;base64,{PNG}", f"data:image/bmp;base64,{PNG}"),
    ],
)
def test_pictures_get_their_type(sent: str, url: str) -> None:
    read = chat({"role": "user", "content": "See", "images": [sent]})
    assert read.image_error
    assert sources(read) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": url}},
            ],
        }
    ]
    assert generate(prompt="", images=[sent]).image_error
    assert not chat().image_error


@pytest.mark.parametrize("sent", ["", "no base64", "x,AAAA", "AAAA,", "é"])
def test_what_is_no_picture_is_refused_by_its_place(sent: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat(HI, {"role": "user", "content": "See", "images": [sent]})
    assert refused.value.param == "messages.1.images.0"


def test_options_get_the_names_of_chat_completions() -> None:
    options: JsonObject = {
        "temperature": 0.5,
        "top_p": 0.9,
        "min_p": 0.1,
        "typical_p": 0.7,
        "top_k": 40,
        "seed": 7,
        "repeat_penalty": 1.1,
        "repeat_last_n": 64,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "num_predict": 9,
        "stop": ["END"],
    }
    read = chat(options=options, logprobs=True, top_logprobs=2)
    known = fields(read)
    assert known["max_tokens"] == read.request.max_tokens == 9
    assert (known["stop"], read.request.stop_strings) == (["END"], True)
    for name in options.keys() - {"num_predict", "stop"}:
        assert known[name] == options[name]
    assert (known["logprobs"], known["top_logprobs"]) == (True, 2)
    assert (read.facts, read.request.load) == ((), LoadOptions())


@pytest.mark.parametrize("limit", [0, -1, -2])
def test_no_limit_is_no_limit(limit: int) -> None:
    assert chat(options={"num_predict": limit}).request.max_tokens is None


def test_what_is_about_loading_is_kept_apart() -> None:
    read = chat(options={"num_ctx": 8192, "num_gpu": 0, "use_mmap": False}, keep_alive="5m")
    load = read.request.load
    assert load.options == {"num_ctx": 8192, "num_gpu": 0, "use_mmap": False}
    assert (load.keep_alive, load.seconds) == ("5m", 300.0)
    assert not {"num_ctx", "options", "keep_alive"} & read.request.fields.keys()
    assert chat(keep_alive=-1).request.load.seconds == -1
    (window,) = chat(options={"num_ctx": 8192.0}).request.load.options.values()
    assert isinstance(window, int)  # Home Assistant writes it so


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", None),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("-1m", -60.0),
        ("+2s", 2.0),
        ("0", 0.0),
        ("-1", -1.0),
    ],
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float | None) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["soon", "5 m", "5min", "m", "--1s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match='keep_alive: Expected a duration like "5m"'):
        chat(keep_alive=text)


def test_what_means_nothing_here_is_noted() -> None:
    read = chat(options={"mirostat": 2, "tfs_z": 1.0, "brand_new": 1})
    assert read.facts == (Omitted("ollama_option"),)
    read = generate(template="{{ .Prompt }}", context=[1, 2], raw=False)
    assert read.facts == (Omitted("template"), Omitted("context"))


@pytest.mark.parametrize(
    ("said", "options"),
    [
        (None, ThinkingOptions()),
        (True, ThinkingOptions(is_on=True)),
        (False, ThinkingOptions(is_on=False)),
        ("high", ThinkingOptions(is_on=True, effort="high")),
    ],
)
def test_thinking_is_a_wish(said: JsonValue, options: ThinkingOptions) -> None:
    assert chat(think=said).request.thinking == options


def test_the_form_of_the_answer() -> None:
    schema: JsonObject = {"type": "object", "properties": {"a": {"type": "integer"}}}
    read = chat(format=schema)
    assert read.request.answer_schema == schema
    assert fields(read)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema},
    }
    assert fields(chat(format="json"))["response_format"] == {"type": "json_object"}
    assert chat(format="json").request.answer_schema == {"type": "object"}
    assert "response_format" not in chat(format="").request.fields


def test_tools_go_on_as_they_were_written() -> None:
    plain = b'{"type": "function", "function": {"name": "a", "parameters": {"type":"object"}}}'
    body = b'{"model":"m","messages":[],"tools":[%b,{"function":{"name":"b","description":"B"}}]}'
    read = decode_chat(body % plain)
    first, second = read.request.tools
    assert first.source == plain
    assert json.parse(second.source) == {
        "type": "function",
        "function": {
            "name": "b",
            "description": "B",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    assert read.request.fields["tools"] == json.join_array([first.source, second.source])


def test_rules_of_order_are_read() -> None:
    tools: JsonValue = [{"function": {"name": "a"}}]
    rules: JsonValue = {"workflow": {"required_steps": ["a"]}}
    read = chat(tools=tools, temper=rules)
    assert read.request.workflow.required_steps == ("a",)
    assert "temper" in read.request.fields


def test_a_prompt_becomes_a_conversation() -> None:
    read = generate(system="Be brief.", images=[PNG])
    system, user = sources(read)
    assert system == {"role": "system", "content": "Be brief."}
    assert isinstance(user, dict)
    assert user["role"] == "user"
    assert sources(generate()) == [HI]


@pytest.mark.parametrize(
    "read", [chat(keep_alive=0), decode_chat(b'{"model":"m"}'), generate(prompt="", system="x")]
)
def test_without_a_prompt_the_model_is_loaded(read: Decoded) -> None:
    assert bool(read.load_status) is (read.request.messages == ())


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"model": ""}, "model is required"),
        ({"model": None}, "model is required"),
        ({"model": 5}, "model: Expected a string, got the number 5."),
        ({"messages": {}}, "messages: Expected an array, got an object."),
        ({"messages": [{"role": "pirate"}]}, "messages.0.role: Expected "),
        ({"messages": [{"role": "user", "content": []}]}, "messages.0.content: Expected a string"),
        ({"options": {"seed": "x"}}, "options.seed: Expected a whole number"),
        ({"options": []}, "options: Expected an object"),
        ({"think": 5}, "think: Expected true, false"),
        ({"think": "hard"}, "think: Expected 'low'"),
        ({"format": "xml"}, "format: Expected ''"),
        ({"format": 1}, 'format: Expected "json" or a JSON schema'),
        ({"keep_alive": []}, "keep_alive: Expected a duration"),
        ({"tools": [{"function": {"name": " "}}]}, "tools.0.function.name: Expected the name"),
        ({"tools": [{"function": {}}]}, "tools.0.function.name: This member is required"),
        ({"tools": [{"function": {"name": "a"}}] * 2}, "tools.1.function.name: Two tools"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]},
            "messages.0.tool_calls.0.function.name: Expected a string",
        ),
    ],
)
def test_the_first_thing_that_is_wrong_is_named(members: JsonObject, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat(**members) if "messages" not in members else decode_chat(
            json.dump({"model": "m", **members})
        )
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("name", ["suffix", "width", "height", "steps"])
def test_what_cannot_be_done_is_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        generate(**{name: "1" if name == "suffix" else 1})
    assert refused.value.param == name
    with pytest.raises(InvalidRequest, match="raw: Prompts without a template"):
        generate(raw=True)
