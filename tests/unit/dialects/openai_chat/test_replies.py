import json as lenient

import pytest

from proxy import bounds
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyFinished,
    ReplyInProgress,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.tools import WrittenCall
from proxy.dialects.lenient_json import as_list, as_object
from proxy.dialects.openai_chat.chunks import as_fragment
from proxy.dialects.openai_chat.replies import (
    CallsInProgress,
    ChunkDecoder,
    ReplyPart,
    StreamedError,
    decode_error,
)


def fragment(
    index: int | None = None,
    call_id: str | None = None,
    name: str | None = None,
    arguments: JsonValue = None,
) -> JsonObject:
    written: JsonObject = {} if index is None else {"index": index}
    if call_id is not None:
        written["id"] = call_id
    written["function"] = {"name": name, "arguments": arguments}
    return written


def read_calls(*chunks: list[JsonObject]) -> list[WrittenCall]:
    calls, reply = CallsInProgress(), ReplyInProgress()
    for fragments in chunks:
        for position, written in enumerate(fragments):
            for event in calls.add(position, as_fragment(written)):
                reply.add(event)
    for event in calls.finish():
        reply.add(event)
    return list(reply.finish("tool_calls").calls)


TWO = [WrittenCall("f", '{"a":1}', "c1"), WrittenCall("g", "{}", "c2")]


@pytest.mark.parametrize(
    "chunks",
    [
        [[fragment(0, "c1", "f", '{"a":1}'), fragment(1, "c2", "g", "{}")]],
        [[fragment(0, "c1", "f", '{"a"')], [fragment(0, None, None, ":1}")],
         [fragment(1, "c2", "g", "{}")]],
        [[fragment(0, "c1", "f")], [fragment(1, "c2", "g")],
         [fragment(0, None, None, '{"a":1}'), fragment(1, None, None, "{}")]],
        [[fragment(0, "c1", "f", '{"a"')], [fragment(0, "c1", "f", ":1}")],
         [fragment(1, "c2", "g", "{}")]],
        [[fragment(0, "c1", "f", '{"a"')], [fragment(0, "", "", ":1}")],
         [fragment(0, "c2", "g", "{")], [fragment(0, None, None, "}")]],
        [[fragment(0, "c1", "f", '{"a"')], [fragment(0, "c2", "g", "{}")],
         [fragment(0, "c1", None, ":1}")]],
        [[fragment(None, "c1", "f", '{"a":1}'), fragment(None, "c2", "g", "{}")]],
        [[fragment(None, "c1", "f", '{"a"')], [fragment(None, None, None, ":1}")],
         [fragment(None, "c2", "g", "{")], [fragment(None, "c2", None, "}")]],
        [[fragment(7, "c1", "f", {"a": 1})], [fragment(3, "c2", "g", {})]],
        # a new id for every fragment
        [[fragment(0, "c1", "f")], [fragment(0, "x", None, '{"a"')], [fragment(0, "y", "", ":1}")],
         [fragment(1, "c2", "g")], [fragment(1, "z", None, "{}")]],
        [[fragment(0, "c1", "f", "")], [fragment(0, "x", "f", '{"a"')],
         [fragment(0, "y", "f", ":1}")], [fragment(0, "c2", "g", "{}")]],
        [[fragment(None, "c1", "f")], [fragment(None, "x", None, '{"a":1}')],
         [fragment(None, "c2", "g", "{}")]],
        [[fragment(0, "c1", None, '{"a"')], [fragment(0, None, "f", ":1}")],
         [fragment(1, "c2", "g", "{}")]],
    ],
    ids=[
        "whole calls", "one after the other", "side by side", "the name again and again",
        "every index 0", "every index 0 and the first again", "no index, whole",
        "no index, in fragments", "odd indexes and objects", "a new id for every fragment",
        "and the name again", "and no index", "the name late",
    ],
)  # fmt: skip
def test_calls_are_told_apart(chunks: list[list[JsonObject]]) -> None:
    assert read_calls(*chunks) == TWO


@pytest.mark.parametrize("index", [0, None])
def test_without_ids_another_name_is_another_call(index: int | None) -> None:
    assert read_calls(
        [fragment(index, None, "f", "{}")],
        [fragment(index, None, "f", "")],
        [fragment(index, None, "g", "{}")],
    ) == [WrittenCall("f", "{}"), WrittenCall("g", "{}")]


AGAIN = [WrittenCall("f", '{"a":1}'), WrittenCall("f", '{"a":2}')]


@pytest.mark.parametrize("nothing", [None, "", " "])
@pytest.mark.parametrize("index", [0, None])
def test_without_ids_the_same_name_behind_whole_arguments_is_another_call(
    index: int | None, nothing: str | None
) -> None:
    """As in vercel/ai#18440: every call has the index 0."""
    one, two = '{"a":1}', '{"a":2}'
    first = [fragment(index, nothing, "f", one)], [fragment(index, nothing, "f", two)]
    assert read_calls(*first) == AGAIN
    named = (
        [fragment(index, nothing, "f", ""), fragment(0, nothing, None, one)],
        [fragment(index, nothing, "f", "")],
        [fragment(index, nothing, None, two[:4])],
        [fragment(index, nothing, None, two[4:])],
    )
    assert read_calls(*named) == AGAIN


def test_the_same_name_before_arguments_are_whole_is_no_other_call() -> None:
    pieces = ("", '{"a":{', "}", '"}"', "}", "")
    chunks = ([fragment(0, None, "f", piece)] for piece in pieces)
    assert read_calls(*chunks) == [WrittenCall("f", "".join(pieces))]


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_a_blank_id_is_none(blank: str) -> None:
    assert read_calls([fragment(0, "c1", "f", '{"a"')], [fragment(0, blank, None, ":1}")]) == [
        WrittenCall("f", '{"a":1}', "c1")
    ]
    assert read_calls([fragment(0, blank, "f", "{}")]) == [WrittenCall("f", "{}")]


def test_arguments_behind_a_name_that_came_again_take_a_closer_look() -> None:
    calls = CallsInProgress()
    calls.add(0, as_fragment(fragment(0, None, "f", "{}")))
    assert calls.go_on(0, [" "]) == [ToolCallArgumentsDelta(0, " ")]
    calls.add(0, as_fragment(fragment(0, None, "f", "")))
    assert calls.go_on(0, ["{"]) is None


def test_an_id_that_comes_late_belongs_to_the_call_at_its_index() -> None:
    assert read_calls([fragment(0, None, "f", "{")], [fragment(0, "c1", None, "}")]) == [
        WrittenCall("f", "{}")
    ]


def test_indexes_count_more_than_ids() -> None:
    assert read_calls([fragment(0, "c", "f", "{}")], [fragment(1, "c", "g", "{}")]) == [
        WrittenCall("f", "{}", "c"),
        WrittenCall("g", "{}", "c"),
    ]


def test_a_call_that_never_gets_a_name_is_still_a_call() -> None:
    assert read_calls([fragment(0, "c1", None, "{}")], [{"index": 1}]) == [
        WrittenCall("", "{}", "c1"),
        WrittenCall("", ""),
    ]


def test_a_function_that_is_no_object_is_nonsense() -> None:
    with pytest.raises(ValueError, match="no object"):
        read_calls([{"index": 0, "function": "f"}])


def test_a_call_goes_on_once_it_has_a_name() -> None:
    calls = CallsInProgress()
    calls.add(0, as_fragment({"index": 3, "id": "a", "function": {"arguments": "{"}}))
    assert calls.go_on(3, ["}"]) is None
    calls.add(0, as_fragment({"index": 3, "function": {"name": "look"}}))
    assert calls.go_on(3, ["", "}"]) == [ToolCallArgumentsDelta(0, "}")]
    assert calls.go_on(4, ["}"]) is None


STARTED = ReplyStarted("c1", 1700000000, "m", "fp")


def chunk(
    delta: JsonValue = None, reason: JsonValue = None, **members: JsonValue
) -> dict[str, JsonValue]:
    choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": reason}
    return {
        "id": "c1",
        "created": 1700000000,
        "model": "m",
        "system_fingerprint": "fp",
        "choices": [choice],
        **members,
    }


def read(*chunks: JsonValue, done: bool = True) -> list[ReplyPart]:
    decoder = ChunkDecoder()
    parts = [part for each in chunks for part in decoder.feed(json.dump_text(each))]
    return parts + (decoder.feed("[DONE]") if done else []) + decoder.finish()


END = chunk({}, "stop")
USAGE: JsonObject = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
TIMINGS: JsonObject = {"cache_n": 1}


@pytest.mark.parametrize("done", [True, False])
class TestAReply:
    def test_as_llama_server_streams_it(self, done: bool) -> None:
        function: JsonObject = {"name": "f", "arguments": "{"}
        call: JsonObject = {"index": 0, "id": "k", "type": "function", "function": function}
        more: JsonObject = {"index": 0, "function": {"arguments": "}"}}

        assert read(
            chunk({"role": "assistant", "content": None}),
            chunk({"reasoning_content": "Hm"}),
            chunk({"content": "Wait."}),
            chunk({"tool_calls": [call]}),
            chunk({"tool_calls": [more]}),
            chunk({}, "tool_calls"),
            {**chunk(), "choices": [], "usage": USAGE, "timings": TIMINGS},
            done=done,
        ) == [
            STARTED,
            ReasoningDelta("Hm"),
            TextDelta("Wait."),
            ToolCallStarted(0, "k", "f"),
            ToolCallArgumentsDelta(0, "{"),
            ToolCallArgumentsDelta(0, "}"),
            UsageReported(USAGE, TIMINGS),
            ReplyFinished("tool_calls"),
        ]

    @pytest.mark.parametrize(
        ("reason", "meant"),
        [
            ("stop", "stop"),
            ("length", "length"),
            ("content_filter", "content_filter"),
            ("function_call", "tool_calls"),
            ("abort", "length"),
            ("new\x1b[2J\r\n", "length"),
        ],
    )
    def test_ends_for_the_reason_the_backend_gave(
        self, done: bool, reason: str, meant: str
    ) -> None:
        assert read(chunk({}, reason), done=done)[-1] == ReplyFinished(meant)

    def test_has_the_usage_that_was_reported_last(self, done: bool) -> None:
        first, last = chunk({}, usage={"total_tokens": 1}), chunk({}, "stop", usage=USAGE)

        assert read(first, last, done=done)[1:] == [UsageReported(USAGE), ReplyFinished("stop")]

    def test_may_be_whole(self, done: bool) -> None:
        call: JsonObject = {"id": "k", "function": {"name": "f", "arguments": {"a": 1}}}
        written: JsonObject = {"role": "assistant", "content": "Hi", "tool_calls": [call]}
        choice: JsonObject = {"index": 0, "message": written, "finish_reason": "tool_calls"}

        assert read({**chunk(), "choices": [choice], "usage": USAGE}, done=done) == [
            STARTED,
            TextDelta("Hi"),
            ToolCallStarted(0, "k", "f"),
            ToolCallArgumentsDelta(0, '{"a":1}'),
            UsageReported(USAGE),
            ReplyFinished("tool_calls"),
        ]

    def test_announces_calls_without_a_name_at_its_end(self, done: bool) -> None:
        call: JsonObject = {"index": 0, "id": "k"}

        assert read(chunk({"tool_calls": [call]}), END, done=done)[1:] == [
            ToolCallStarted(0, "k", ""),
            ReplyFinished("stop"),
        ]


def test_a_reply_cannot_end_without_a_reason_and_an_end_mark() -> None:
    with pytest.raises(ValueError, match="ended before finishing"):
        read(chunk({"content": "Hel"}), done=False)
    with pytest.raises(ValueError, match="ended before finishing"):
        read(chunk({"role": "assistant"}), done=True)


@pytest.mark.parametrize(
    ("delta", "reason"),
    [
        ({"content": "Hello"}, "stop"),
        ({"reasoning": "Hm."}, "stop"),
        ({"tool_calls": [fragment(0, "c", "f", '{"a":1}')]}, "tool_calls"),
        ({"tool_calls": [fragment(0, "c", "f")]}, "tool_calls"),
        ({"tool_calls": [fragment(0, "c", "f", '{"a":')]}, "length"),
    ],
)
def test_a_reply_gets_a_reason_if_its_end_mark_came_without_one(
    delta: JsonObject, reason: str
) -> None:
    assert read(chunk(delta), done=True)[-1] == ReplyFinished(reason)


THUMB = "\N{THUMBS UP SIGN}"
HIGH, LOW = "\ud83d", "\udc4d"


def halves(*deltas: JsonObject) -> list[ReplyPart]:
    """Read deltas whose strings may have one half of a pair, which only Python's JSON writes."""
    decoder = ChunkDecoder()
    chunks = [lenient.dumps(chunk(delta)) for delta in deltas]
    return [part for data in chunks for part in decoder.feed(data)][1:]


@pytest.mark.parametrize(
    ("deltas", "parts"),
    [
        ([{"content": f"a{HIGH}"}, {"content": f"{LOW}b"}],
         [TextDelta("a"), TextDelta(f"{THUMB}b")]),
        ([{"content": f"a{HIGH}"}, {"content": "b"}], [TextDelta("a"), TextDelta("\ufffdb")]),
        ([{"content": f"{LOW}a"}, {"content": HIGH}], [TextDelta("\ufffda")]),
        ([{"reasoning": HIGH}, {"content": "a"}, {"reasoning": LOW}],
         [TextDelta("a"), ReasoningDelta(THUMB)]),
        ([{"tool_calls": [fragment(0, "c", "f", f'"{HIGH}')]},
          {"tool_calls": [fragment(0, None, None, f'{LOW}"')]}],
         [ToolCallStarted(0, "c", "f"), ToolCallArgumentsDelta(0, '"'),
          ToolCallArgumentsDelta(0, f'{THUMB}"')]),
    ],
)  # fmt: skip
def test_a_character_that_was_split_over_two_deltas_is_joined(
    deltas: list[JsonObject], parts: list[ReplyPart]
) -> None:
    assert halves(*deltas) == parts


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab", ""),
        (["a", {"text": "b"}], "ab", ""),
        ({"type": "text", "text": "a"}, "a", ""),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}], "", "Hm."),
        ([{"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "a"}], "a", "Hm."),
        ([{"type": "image_url", "image_url": {"url": "u"}}, {"type": "refusal", "refusal": "No."}],
         "No.", ""),
    ],
)  # fmt: skip
def test_a_content_may_have_parts(content: JsonValue, text: str, reasoning: str) -> None:
    parts = read(chunk({"content": content}), END)
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == text
    assert "".join(part.text for part in parts if isinstance(part, ReasoningDelta)) == reasoning


@pytest.mark.parametrize("written", ['{"x":%s}', '{"choices":[],"x":%s}', '{"choices":%s}'])
def test_nesting_without_a_limit_is_garbage(written: str) -> None:
    deep = written % ("[" * 100_000 + "]" * 100_000)
    for document in (deep, deep.replace('"x"', '"\\ud83d"')):
        with pytest.raises(ValueError, match=r".+"):
            ChunkDecoder().feed(document)


def test_calls_beyond_the_bound_end_the_reply() -> None:
    calls = [fragment(at, f"c{at}", "f", "{}") for at in range(bounds.CALLS + 9)]
    parts = read(*[chunk({"tool_calls": [call]}) for call in calls], END)
    # one more than the bound, so that the review reports it
    assert sum(isinstance(part, ToolCallStarted) for part in parts) == bounds.CALLS + 1
    assert parts[-1] == ReplyFinished("tool_calls")


class TestAChunk:
    @pytest.mark.parametrize(
        "first",
        [
            {"id": "", "model": "", "choices": [], "prompt_filter_results": []},
            {"choices": None},
            {"timings": TIMINGS},
        ],
    )
    def test_may_come_before_the_reply_starts(self, first: JsonObject) -> None:
        assert read(first, END) == [STARTED, ReplyFinished("stop")]

    def test_may_say_nothing_of_who_is_speaking(self) -> None:
        assert read({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}) == [
            ReplyStarted(),
            TextDelta("x"),
            ReplyFinished("stop"),
        ]

    @pytest.mark.parametrize(
        ("created", "known"), [(5, 5), (5.0, 5), (5.5, None), ("5", None), (None, None)]
    )
    def test_has_a_time_in_seconds(self, created: JsonValue, known: int | None) -> None:
        assert read(chunk({}, "stop", created=created))[0] == ReplyStarted("c1", known, "m", "fp")

    def test_survives_a_number_that_is_no_number(self) -> None:
        decoder = ChunkDecoder()

        assert decoder.feed('{"choices":[{}],"created":1e999}') == [ReplyStarted()]

    def test_reports_progress(self) -> None:
        progress: JsonObject = {"total": 9, "cache": 3, "processed": 5, "time_ms": 1}

        assert read({"prompt_progress": progress}, END) == [
            ReplyStarted(),
            PromptProgress(9, 3, 5),
            ReplyFinished("stop"),
        ]

    def test_keeps_the_logprobs_of_its_text(self) -> None:
        logprobs: JsonObject = {"content": [{"token": "x", "logprob": -0.1}]}
        choice: JsonObject = {"delta": {"content": "x"}, "logprobs": logprobs}

        assert read({**chunk(), "choices": [choice]}, END)[1] == TextDelta("x", logprobs)

    def test_may_call_reasoning_by_its_other_name(self) -> None:
        assert read(chunk({"reasoning": "Hm"}), END)[1] == ReasoningDelta("Hm")

    def test_may_carry_reasoning_details_that_are_no_text(self) -> None:
        assert read(chunk({"reasoning": {"effort": "low"}}), END)[1:] == [ReplyFinished("stop")]

    def test_counts_for_the_first_choice_only(self) -> None:
        other: JsonObject = {"index": 1, "delta": {"content": "x"}, "finish_reason": "length"}

        assert read({**chunk(), "choices": [other]}, END)[1:] == [ReplyFinished("stop")]

    @pytest.mark.parametrize("data", ["", " ", "\n"])
    def test_may_be_empty(self, data: str) -> None:
        assert ChunkDecoder().feed(data) == []

    @pytest.mark.parametrize(
        "data",
        [
            "{",
            "[]",
            "5",
            "{}",
            '{"id":"x"}',
            '{"choices":5}',
            '{"choices":[5]}',
            '{"choices":[{"delta":5}]}',
            '{"choices":[{"message":5}]}',
            '{"choices":[{"delta":{"content":[1]}}]}',
            '{"choices":[{"delta":{"tool_calls":5}}]}',
            '{"choices":[{"delta":{"tool_calls":[5]}}]}',
            '{"choices":[{"delta":{"tool_calls":[{"function":5}]}}]}',
            '{"message":{}}',
            "<html>",
            "[DONE] really",
        ],
    )
    def test_that_is_garbage_is_refused(self, data: str) -> None:
        with pytest.raises(ValueError, match=r".+"):
            ChunkDecoder().feed(data)

    @pytest.mark.parametrize("late", ["{garbage", "[DONE]", json.dump_text(END)])
    def test_behind_the_end_is_not_read(self, late: str) -> None:
        decoder = ChunkDecoder()
        decoder.feed(json.dump_text(END))

        assert decoder.feed(" [DONE]\n") == [ReplyFinished("stop")]
        assert decoder.feed(late) == []
        assert decoder.finish() == []


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (
            {"error": {"code": 500, "message": "no", "type": "server_error"}},
            {"code": 500, "message": "no", "type": "server_error"},
        ),
        ({"error": "no"}, {"error": "no", "message": "no"}),
        ({"code": 500, "message": "no"}, {"code": 500, "message": "no"}),
        ({"choices": [], "error": {"message": "no"}}, {"message": "no"}),
    ],
)
def test_an_error_in_the_stream_is_its_end(sent: JsonObject, error: JsonObject) -> None:
    assert read(chunk({"content": "x"}), sent, END)[1:] == [TextDelta("x"), StreamedError(error)]


def test_an_error_of_null_is_none() -> None:
    assert read(chunk({"content": "x"}, error=None), END)[1] == TextDelta("x")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            b'{"error":{"code":400,"message":"long","type":"t","n_ctx":5}}',
            {"code": 400, "message": "long", "type": "t", "n_ctx": 5},
        ),
        (b'{"error":{"type":"t"}}', {"type": "t", "message": '{"type":"t"}'}),
        (b'{"error":"no"}', {"error": "no", "message": "no"}),
        (b'{"message":"no","type":"t"}', {"message": "no", "type": "t"}),
        (b'{"detail":"no"}', {"detail": "no", "message": "no"}),
        (b'{"detail":[{"loc":1}]}', {"detail": [{"loc": 1}], "message": '[{"loc":1}]'}),
        (b'{"error":7}', {"error": 7, "message": '{"error":7}'}),
        (b"Not \xff Found\n", {"message": "Not \ufffd Found"}),
        (b'"no"', {"message": "no"}),
        (b"[1]", {"message": "[1]"}),
        (b"", {"message": ""}),
    ],
)
def test_the_error_is_found_in_the_body_of_a_failure(body: bytes, error: JsonObject) -> None:
    assert decode_error(body) == error


def test_a_fragment_without_arguments_takes_the_long_way_and_says_nothing() -> None:
    function: JsonObject = {"name": "f", "arguments": ""}
    call: JsonObject = {"index": 0, "id": "k", "type": "function", "function": function}
    nothing: JsonObject = {"index": 0, "function": {"arguments": ""}}
    more: JsonObject = {"index": 0, "function": {"arguments": "{}"}}
    told = [chunk({"tool_calls": [one]}) for one in (call, nothing, more)]
    assert read(*told, END) == read(told[0], told[2], END)


def test_progress_is_told_beside_choices_as_well() -> None:
    told: JsonObject = {"total": 3, "cache": 1, "processed": 2}
    parts = ChunkDecoder().feed(json.dump_text({"choices": [], "prompt_progress": told}))
    assert parts == [ReplyStarted(), PromptProgress(3, 1, 2)]


def test_a_chunk_of_an_odd_form_is_read_like_any_other() -> None:
    first: JsonObject = {"index": 0, "message": {"reasoning_content": "Hm"}}
    second: JsonObject = {"index": 1, "message": {"content": "no"}}
    parts = ChunkDecoder().feed(json.dump_text({"choices": [second, first]}))
    assert parts == [ReplyStarted(), ReasoningDelta("Hm")]


# Chunks of vLLM 0.32.0 with `logprobs`, as they came (2026-11-25; a lot was between them).
VLLM_CALL = (
    '{"id":"chatcmpl-aece4076ea9bed65","object":"chat.completion.chunk","created":1795645144,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}',
    '{"id":"chatcmpl-aece4076ea9bed65","object":"chat.completion.chunk","created":1795645144,"model":"tiny","choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":"<tool_call>","logprob":-0.4082542061805725,"bytes":[60,116,111,111,108,95,99,97,108,108,62],"top_logprobs":[]}]},"finish_reason":null,"token_ids":null}]}',
    '{"id":"chatcmpl-aece4076ea9bed65","object":"chat.completion.chunk","created":1795645144,"model":"tiny","choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"id":"chatcmpl-tool-af5dff5a42a32e6b","type":"function","index":0,"function":{"name":"get_weather"}}]},"logprobs":{"content":[{"token":"\\",","logprob":-0.000049470632802695036,"bytes":[34,44],"top_logprobs":[]}]},"finish_reason":null,"token_ids":null}]}',
    '{"id":"chatcmpl-aece4076ea9bed65","object":"chat.completion.chunk","created":1795645144,"model":"tiny","choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":"<|im_end|>","logprob":-7.867782187531702e-6,"bytes":[60,124,105,109,95,101,110,100,124,62],"top_logprobs":[]}]},"finish_reason":"tool_calls","stop_reason":null,"token_ids":null}]}',
    '{"id":"chatcmpl-aece4076ea9bed65","object":"chat.completion.chunk","created":1795645144,"model":"tiny","choices":[],"usage":{"prompt_tokens":31,"total_tokens":54,"completion_tokens":23},"system_fingerprint":"vllm-0.32.0-e3d15501"}',
)


def test_what_vllm_tells_beside_an_empty_delta_and_at_the_end_is_not_lost() -> None:
    decoder = ChunkDecoder()
    parts = [part for each in VLLM_CALL for part in decoder.feed(each)] + decoder.finish()
    tokens = [
        as_object(as_list(as_object(part.logprobs)["content"])[0])["token"]
        for part in parts
        if isinstance(part, TextDelta)
    ]
    assert tokens == ["<tool_call>", '",', "<|im_end|>"]
    usage: JsonObject = {"prompt_tokens": 31, "total_tokens": 54, "completion_tokens": 23}
    assert parts[-2:] == [
        UsageReported(usage, system_fingerprint="vllm-0.32.0-e3d15501"),
        ReplyFinished("tool_calls"),
    ]


@pytest.mark.parametrize(
    ("told", "stop"),
    [
        ({"stop_reason": "###"}, "###"),
        ({"stop_reason": 2}, ""),
        ({"matched_stop": "###"}, "###"),
        ({"matched_stop": 151645}, ""),
        ({"stop_reason": ["odd"]}, ""),
        ({"stop_reason": "###", "delta": None}, "###"),
        ({}, ""),
    ],
)
def test_the_string_that_ended_a_reply_is_told_with_what_it_cost(
    told: JsonObject, stop: str
) -> None:
    decoder = ChunkDecoder()
    choice: JsonObject = {"index": 0, "delta": {}, "finish_reason": "stop", **told}
    decoder.feed(json.dump_text({"choices": [choice], "usage": {"total_tokens": 1}}))
    assert decoder.finish()[0] == UsageReported({"total_tokens": 1}, stop=stop)


def test_a_llama_server_tells_it_where_it_is_verbose() -> None:
    decoder = ChunkDecoder()
    for more in ({}, {"stopping_word": "###", "stop_type": "word"}):
        chunk: JsonObject = {"choices": [{"index": 0, "delta": {}}], "__verbose": {**more}}
        decoder.feed(json.dump_text(chunk))
    end: JsonObject = {"index": 0, "delta": {}, "finish_reason": "stop"}
    decoder.feed(json.dump_text({"choices": [end], "usage": {}}))
    assert decoder.finish()[0] == UsageReported({}, stop="###")
