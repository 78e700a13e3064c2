"""Replies of models as observed, verbatim, and the response to clients in every dialect.

A scripted engine sends the replies over HTTP; one application serves the whole module.
`tests/corpus/test_field_failures.py` has the variants of each text, in every chunking.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest

from proxy.api.app import ServerOptions
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_object
from proxy.profiles.files import load_profiles
from temper_evals.scenarios.worlds import objects_in
from tests.corpus.cases import STRING
from tests.fakes import sse
from tests.fakes.languages import EVERYWHERE, PATHS, Chat, ask, post
from tests.fakes.running_proxy import RunningProxy, temper


@pytest.fixture(scope="module")
async def proxy() -> AsyncGenerator[RunningProxy, None]:
    async with temper() as shared:
        yield shared


def function(name: str, required: str, **properties: JsonValue) -> JsonObject:
    parameters: JsonObject = {
        "type": "object",
        "properties": {**properties},
        "required": [required],
    }
    return {"name": name, "description": f"Do {name}.", "parameters": parameters}


INTEGER: JsonObject = {"type": "integer"}
CHAT = Chat(
    functions=(
        function("calculate_final_speed", "time", time=INTEGER),
        function("read", "filepath", filepath=STRING),
        function("Bash", "command", command=STRING),
        function("tool_search", "query", query=STRING),
        function("get_weather", "location", location=STRING, unit=STRING),
        function("ha_config_set_script", "script", script=STRING),
        function("edit", "newString", newString=STRING),
        function("todo", "items", items={"type": "array", "items": STRING}),
    )
)
Call = tuple[str, JsonObject]
READ: Call = ("read", {"filepath": "/home/abc/ck/tests/test_ck.py"})
A: Call = ("read", {"filepath": "/a"})
LS: Call = ("Bash", {"command": "ls"})
SEARCH: Call = ("tool_search", {"query": "x"})
PARIS: Call = ("get_weather", {"location": "Paris"})
BEIJING: Call = ("get_weather", {"location": "Beijing"})
SUN: Call = ("get_weather", {"location": "San Francisco", "unit": "celsius"})
CSS = ".coin-flip-container {\n  color: red;\n}"
CODE = "<tool_call>\n<function=read>\n<parameter=filepath>\n"
INVOKED = (
    '<atem:function_calls>\n<atem:invoke name="ha_config_set_script">\n'
    '<atem:parameter name="script">x</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
)
SOLAR = (
    "<|tool_call:start|>get_weather\n<|tool_arg:start|>location<|tool_arg:value|>Beijing"
    "<|tool_arg:end|>\n<|tool_call:end|>"
)
PARIS_IN_MARKUP = (
    '<tool_call>\n{"arguments": {"location": "Paris"}, "name": "get_weather"}\n</tool_call>\n'
)
DECLINED = '<function_call> {"name": "no_function", "arguments": {}}'


def named(name: str, arguments: str, index: int = 0, call_id: str | None = "call_a") -> JsonObject:
    """Return a delta of a structured call."""
    head: JsonObject = {"name": name, "arguments": arguments}
    piece: JsonObject = {"index": index, "type": "function", "function": head}
    return piece if call_id is None else {**piece, "id": call_id}


def structured(*pieces: JsonObject) -> bytes:
    data = b"".join(sse.delta({"tool_calls": [piece]}) for piece in pieces)
    return sse.START + data + sse.end("tool_calls")


def call_of(call: Call) -> bytes:
    name, arguments = call
    return structured(named(name, json.dump_text(arguments)))


@dataclass(frozen=True)
class Row:
    """The replies of a model in order, and the expected response.

    Text is sent a few characters at a time. Several `replies` mean retries: Temper must request
    every reply.
    """

    name: str
    replies: tuple[str | bytes, ...]
    calls: tuple[Call, ...] = ()
    text: str = ""

    @property
    def scripts(self) -> list[bytes]:
        return [
            sse.says(*(reply[at : at + 9] for at in range(0, len(reply), 9)))
            if isinstance(reply, str)
            else reply
            for reply in self.replies
        ]


ROWS = [
    Row(
        "S1 llama-swap#856",
        (
            "<tool_call>\n<function=read>\n<parameter=filepath>\n/home/abc/ck/tests/test_ck.py\n"
            "</parameter>\n</parameter>\n</function>\n</tool_call>",
        ),
        (READ,),
    ),
    Row(
        "S2 Qwen3.8#178",
        (f"{CODE}/a\n</parameter>\n</function>\n</function>\n</function_invocation>",),
        (A,),
    ),
    Row(
        "S3 llama.cpp#24658",
        (
            "<|tool_call_begin|>functions_Bash_2<|tool_call_argument_begin|>"
            '{"command": "ls"}<|tool_call_end|>',
        ),
        (LS,),
    ),
    Row(
        "S4 omlx#1830",
        ('<|tool_call>call:google:mcp:read{filepath:<|"|>/a<|"|>}<tool_call|>',),
        (A,),
    ),
    Row(
        "S5 hermes-agent#8993",
        (structured(named("tool_search<|channel|>json", '{"query": "x"}')),),
        (SEARCH,),
    ),
    Row(
        "S6 llama.cpp#29240",
        (f" to=ha_config_set_script<|message|>{INVOKED}",),
        (("ha_config_set_script", {"script": "x"}),),
    ),
    Row("S6 Muse Glimmer, words", (" to=user<|message|>Hello there.",), (), "Hello there."),
    Row(
        "S8 vllm#43116",
        ('get_weather(location="San Francisco", unit="celsius")',),
        (SUN,),
    ),
    Row(
        "S8 vllm#43116, two",
        (
            'get_weather(location="San Francisco", unit="celsius")\n'
            'get_weather(location="Paris")',
        ),
        (SUN, PARIS),
    ),
    Row("S9 ollama#15315", (f"call:edit{{newString:`{CSS}`}}",), (("edit", {"newString": CSS}),)),
    Row(
        "S11 vercel/ai#18440, one index",
        (
            structured(
                named("read", '{"filepath": "/a"}', call_id=None),
                named("read", '{"filepath": "/b"}', call_id=None),
            ),
        ),
        (A, ("read", {"filepath": "/b"})),
    ),
    Row(
        "S11 vercel/ai#18440, a blank id",
        (
            structured(
                named("read", '{"filepath": '),
                {"index": 0, "id": " ", "function": {"arguments": '"/a"}'}},
            ),
        ),
        (A,),
    ),
    Row(
        "S12 Mixtral",
        (r"[calculate\_final\_speed(time=5)]",),
        (("calculate_final_speed", {"time": 5}),),
    ),
    Row("S14 Granite", (DECLINED,), (), "None of the tools fits this request."),
    Row("S15 Hermes 2 Pro", ("".join([PARIS_IN_MARKUP] * 20),), (PARIS,)),
    Row("S17 GLM-5.3-Flash", ('<tool_call>get_weather>{"location":"Beijing"}',), (BEIJING,)),
    Row(
        "S17 GLM-5.3-Flash, pairs",
        ("<tool_call>get_weather<arg_key>location=Beijing</arg_value>",),
        (BEIJING,),
    ),
    Row("S18 Solar Open 2", (SOLAR,), (BEIJING,)),
    Row(
        "S7 ollama#15573",
        ("<command_Bash>\n cat TASKS.md</command_Bash>", call_of(("Bash", {"command": "ls"}))),
        (LS,),
    ),
    Row("Qwen3.8#216, nothing said", ("", call_of(PARIS)), (PARIS,)),
    Row("Qwen3.8#150, announced", ("I'll check the weather now.", call_of(PARIS)), (PARIS,),
        "I'll check the weather now."),
    Row(
        "opencode#37841, blank id and name",
        (
            structured(
                named("read", "", call_id="call_a"),
                named("", '{"filepath": ', call_id=""),
                named("", '"/a"}', call_id=""),
            ),
        ),
        (A,),
    ),
    Row(
        "llama.cpp#20198, arguments as an object",
        (
            structured(
                {
                    "index": 0,
                    "id": "call_a",
                    "type": "function",
                    "function": {"name": "read", "arguments": {"filepath": "/a"}},
                }
            ),
        ),
        (A,),
    ),
    Row(
        "ollama#16686, #18530, pi-hashline-readmap#145, an array as a string",
        (structured(named("todo", '{"items": "[\\"a\\", \\"b\\"]"}')),),
        (("todo", {"items": ["a", "b"]}),),
    ),
    Row(
        "pi#6158, identical calls in a row",
        (
            structured(
                named("read", '{"filepath": "/a"}', 0, "call_a"),
                named("read", '{"filepath": "/a"}', 1, "call_b"),
            ),
        ),
        (A, A),
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_an_observed_reply_gives_the_expected_calls_and_text_in_every_dialect(
    row: Row, proxy: RunningProxy
) -> None:
    for language, stream in EVERYWHERE:
        proxy.backend.play(*row.scripts)
        got = await ask(proxy, language, CHAT, stream=stream)
        assert (got.status, got.error) == (200, "")
        assert (got.called, got.text.strip()) == (row.calls, row.text), (language, stream)
        assert len(proxy.backend.upstream_requests) == len(row.replies)


SPEED = "[calculate_final_speed(time=5)]"
CALL_NEXT_TO_WORDS = {
    "a fence, then an explanation": (
        f"```python\n        {SPEED}\n        ```\n\n            This line of code uses the "
        "`calculate_final_speed` function to calculate the final speed after 5 seconds."
    ),
    "a line, then an explanation": f"{SPEED}\n\nThis will return the final speed after 5 seconds.",
    "a line, then code": (
        f' {SPEED}\n\n            """\n\n#tests/test_functions.py\nimport pytest\n'
        "from speed import calculate_final_speed\n\ndef test_speed():\n"
        "    assert calculate_final_speed(5) == 49\n"
    ),
    "a line, then a chat that it makes up": (
        f"{SPEED}\n\nUser: Thank you. And after 10 seconds?\nAssistant: It is twice as fast then."
    ),
}


@pytest.mark.parametrize("content", CALL_NEXT_TO_WORDS.values(), ids=CALL_NEXT_TO_WORDS)
async def test_s13_text_next_to_a_valid_call_is_retried_without_quoting_the_text(
    content: str, proxy: RunningProxy
) -> None:
    """deepseek-coder and gemma-7b write such replies."""
    call: Call = ("calculate_final_speed", {"time": 5})
    for language, stream in EVERYWHERE:
        proxy.backend.play(*Row("", (content, call_of(call))).scripts)
        got = await ask(proxy, language, CHAT, stream=stream)
        assert (got.status, got.error, got.called, got.text) == (200, "", (call,), "")
        _, question = proxy.backend.upstream_requests
        assert SPEED not in json.dump_text(question.fields["messages"])


NEEDS = "To answer this question, I would need more specific information{} and the season."
ASKING = {
    "a question, then a call": NEEDS.format(" such as the name of the league")
    + " Could you tell me which one you mean?\n{}",
    "what it needs, then a call": NEEDS.format(" such as the name of the league") + "\n{}",
    "a call amid the question": NEEDS.format("") + " The function {}\nrequires them to work.",
}
EMPTY = (
    '<tool_call>\n{"arguments": {"location": "", "unit": ""}, "name": "get_weather"}\n</tool_call>'
)


@pytest.mark.parametrize("content", ASKING.values(), ids=ASKING)
async def test_s16_if_a_call_lacks_its_arguments_only_the_question_next_to_it_is_returned(
    content: str, proxy: RunningProxy
) -> None:
    """Hermes 2 Pro asks for missing values with an empty call next to a question."""
    for language, stream in EVERYWHERE:
        proxy.backend.play(*Row("", (content.format(EMPTY),)).scripts)
        got = await ask(proxy, language, CHAT, stream=stream)
        assert (got.status, got.error, got.called) == (200, "", ())
        assert got.text.split() == content.format("").split()
        assert len(proxy.backend.upstream_requests) == 1


CUT = '<tool_call>{"name": "get_weather", "arguments": {"loc'
WRONG = '<tool_call>{"name": "get_weather", "arguments": {"town": "Paris"}}</tool_call>'
UNKNOWN = 'tool get_weather json{"location": "Paris"}'
HEAD = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
NEVER_USABLE = [
    ((WRONG, WRONG, CUT[11:]), "get_weather: "),
    ((CUT, CUT, CUT[11:]), "broken arguments (get_weather)"),
    (("", ""), "an empty reply"),
    ((UNKNOWN, UNKNOWN), "an unknown syntax (get_weather)"),
    ((UNKNOWN, ""), "an unknown syntax (get_weather)"),
    ((HEAD, HEAD, HEAD), "broken arguments (get_weather)"),
]


@pytest.mark.parametrize(("replies", "objection"), NEVER_USABLE)
async def test_if_no_attempt_is_usable_the_text_has_the_number_of_attempts_and_the_reason(
    replies: tuple[str | bytes, ...], objection: str, proxy: RunningProxy
) -> None:
    row = Row("", replies)
    for language, stream in EVERYWHERE:
        proxy.backend.play(*row.scripts)
        got = await ask(proxy, language, CHAT, stream=stream)
        assert (got.status, got.error, got.called) == (200, "", ())
        assert got.text.startswith(f"The model gave no usable reply in {len(replies)} attempts: ")
        assert objection in got.text
        assert "<" not in got.text
        assert "{" not in got.text
        assert len(proxy.backend.upstream_requests) == len(replies)


AMBIGUOUS = f"{PARIS_IN_MARKUP.strip()} is how I look at it."


@pytest.mark.parametrize("again", [AMBIGUOUS, ""])
async def test_if_an_ambiguous_call_and_its_retry_fail_the_text_around_the_call_is_returned(
    again: str, proxy: RunningProxy
) -> None:
    for language, stream in EVERYWHERE:
        proxy.backend.play(*Row("", (AMBIGUOUS, again)).scripts)
        got = await ask(proxy, language, CHAT, stream=stream)
        assert (got.status, got.error, got.called) == (200, "", ()), (language, stream)
        *_, words, reason = got.text.split("\n\n")
        assert words.splitlines()[-1] == "is how I look at it."
        assert reason.startswith("The model gave no usable reply in 2 attempts: a call that may ")
        assert "<" not in got.text
        assert "{" not in got.text


async def test_a_call_of_a_tool_in_a_namespace_is_returned_with_its_namespace(
    stream: bool, proxy: RunningProxy
) -> None:
    """Codex sends tools with namespaces (ollama#17618)."""
    member: JsonObject = {"type": "function", **CHAT.functions[1]}
    space: JsonObject = {"type": "namespace", "name": "files", "tools": [member]}
    proxy.backend.play(structured(named("files__read", '{"filepath": "/a"}')))
    body: JsonObject = {"model": "m", "input": "Read /a.", "tools": [space], "store": False}
    answer = await proxy.client.post("/v1/responses", json={**body, "stream": stream})
    assert answer.status_code == 200
    if stream:
        completed = answer.text.split("event: response.completed\ndata: ")[1].splitlines()[0]
        whole = as_object(as_object(json.parse(completed.encode()))["response"])
    else:
        whole = answer.json()
    (call,) = objects_in(whole["output"])
    assert (call["name"], call["namespace"], call["arguments"]) == (
        "read",
        "files",
        '{"filepath": "/a"}',
    )


UNOPENED = "The user greets me.\nI greet back.\n</think>\n\nHello there."
SPLIT = "Hello there."


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
async def test_s10_after_one_reply_without_an_opening_tag_reasoning_is_not_returned_as_text(
    language: str, stream: bool
) -> None:
    """The first reply determines how later replies are parsed (opencode#27540)."""
    async with temper() as proxy:
        shown = []
        for reply in (UNOPENED, UNOPENED, f"I look.\n</think>{PARIS_IN_MARKUP}", SPLIT):
            proxy.backend.play(*Row("", (reply,)).scripts)
            shown.append(await ask(proxy, language, CHAT, stream=stream))
    assert [answer.text.strip() for answer in shown] == [UNOPENED, SPLIT, "", SPLIT]
    assert [answer.called for answer in shown] == [(), (), (PARIS,), ()]


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
async def test_s10_reasoning_whose_opening_tag_is_in_the_prompt_is_never_returned_as_text(
    language: str, stream: bool
) -> None:
    path, write = PATHS[language]
    body: JsonObject = {"model": "deepseek-r1-distill-qwen-7b", "stream": stream, **write(CHAT)}
    async with temper(serving=ServerOptions(profiles=load_profiles())) as proxy:
        proxy.backend.play(*Row("", (UNOPENED,)).scripts)
        assert (await post(proxy, path, body)).text == SPLIT


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
async def test_s10_text_after_reasoning_from_the_engine_is_returned_completely(
    language: str, stream: bool
) -> None:
    native = sse.START + sse.delta({"reasoning_content": "I greet back."})
    async with temper() as proxy:
        proxy.backend.play(sse.says(UNOPENED), native + sse.text(SPLIT) + sse.end())
        await ask(proxy, language, CHAT, stream=stream)
        assert (await ask(proxy, language, CHAT, stream=stream)).text == SPLIT


async def test_s10_with_reasoning_disabled_text_before_a_closing_tag_is_returned() -> None:
    body: JsonObject = {"model": "m", **CHAT.chat()}
    async with temper() as proxy:
        proxy.backend.play(sse.says(UNOPENED), sse.says(UNOPENED))
        await post(proxy, PATHS["chat"][0], body)
        got = await post(proxy, PATHS["chat"][0], {**body, "reasoning_effort": "none"})
    assert got.text == UNOPENED
