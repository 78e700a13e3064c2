"""Temper's recovery from rejections of engines, which a scripted engine sends verbatim.

Each row runs in one dialect, and in all dialects under `.ci/run`. The engine rejects the
first request; Temper corrects the request and sends it again. The next request of the client is
sent in the corrected form at once.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.capabilities import Capability
from proxy.backends.http_backend import HttpBackend
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama import Ollama
from proxy.backends.openai_compatible import AdaptiveEngine
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_object, member
from proxy.doctor.exchanges import list_refusals
from proxy.doctor.target import Target
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import Overrides, identify_model
from proxy.profiles.recognition import Evidence
from proxy.settings import Settings
from temper_evals.scenarios.worlds import objects_in
from tests.examples import PROFILE
from tests.fakes import sse
from tests.fakes.languages import EVERYWHERE, PATHS, Chat, LanguageReply, ask, post
from tests.fakes.running_proxy import RunningProxy, in_front_of, temper
from tests.fakes.scripted_backend import ReceivedRequest, Script, ScriptedBackend, refuses
from tests.fakes.scripts import run_on_call
from tests.fakes.sockets import listening

CITY: JsonObject = {"city": "Paris"}
WRITTEN = run_on_call(json.dump_text(CITY))


ENGINES: dict[str, type[HttpBackend]] = {
    "llama-server": LlamaServer,
    "openai": AdaptiveEngine,
    "ollama": Ollama,
}


@asynccontextmanager
async def run_temper(
    engine: str, *scripts: Script | bytes, documents: Mapping[str, JsonValue] | None = None
) -> AsyncGenerator[tuple[RunningProxy, HttpBackend], None]:
    """Run Temper in front of an engine that sends the replies in `scripts`."""
    backend = ScriptedBackend(*scripts)
    backend.properties = {"build_info": "b1", "model_path": "m.gguf"}
    backend.documents["/api/version"] = {"version": "1"}
    backend.documents["/api/show"] = {"capabilities": ["completion", "tools", "thinking", "vision"]}
    backend.documents["/api/ps"] = {"models": [{"name": "m:latest", "context_length": 4096}]}
    backend.documents |= documents or {}
    async with listening(backend) as upstream:
        adapter = ENGINES[engine](BackendClient(upstream.url))
        async with in_front_of(adapter, None, backend) as proxy:
            yield proxy, adapter


def lines(words: str) -> bytes:
    """Return a reply as the lines that Ollama streams."""
    line: JsonObject = {"message": {"role": "assistant", "content": words}, "done": False}
    end: JsonObject = {"message": {"role": "assistant", "content": ""}, "done_reason": "stop"}
    return json.dump(line) + b"\n" + json.dump({**end, "done": True}) + b"\n"


def ollama_error(words: str, *, after: bytes = b"") -> bytes:
    return after + json.dump({"error": words}) + b"\n"


def says(engine: str, words: str) -> bytes:
    return lines(words) if engine == "ollama" else sse.says(words)


def rejection(engine: str, status: int, message: str) -> Script:
    if engine == "ollama":
        return Script((ollama_error(message),), status, {"content-type": "application/json"})
    return refuses(status, {"code": status, "message": message, "type": "server_error"})


Check = Callable[[ReceivedRequest], bool]


@dataclass(frozen=True)
class Row:
    """A rejection: the request, the engine's error, and the check of the corrected request.

    If `mid_stream` is set, the engine sends these bytes. Otherwise it rejects the first request
    with `message`, and one further request with each text in `again`. Its final answer is `reply`,
    or a call written as text if the conversation has tools.
    """

    name: str
    engine: str
    chat: Chat
    status: int
    message: str
    is_mended: Check
    learned: str
    again: tuple[str, ...] = ()
    mid_stream: bytes | None = None
    languages: tuple[str, ...] = tuple(PATHS)
    reply: str = "Fine."

    @property
    def refusals(self) -> list[Script | bytes]:
        if self.mid_stream is not None:
            return [self.mid_stream]
        return [rejection(self.engine, self.status, text) for text in (self.message, *self.again)]

    @property
    def answer(self) -> bytes:
        return says(self.engine, WRITTEN if self.chat.has_tools else self.reply)


def roles(request: ReceivedRequest) -> list[JsonValue]:
    messages = request.fields["messages"]
    assert isinstance(messages, list)
    return [message["role"] for message in messages if isinstance(message, dict)]


def parameters(request: ReceivedRequest) -> str:
    return json.dump_text(request.fields["tools"]) if "tools" in request.fields else ""


def tools_in_prompt(request: ReceivedRequest) -> bool:
    """Return whether the tools are in the prompt and not in the field `tools`."""
    return "tools" not in request.fields and "get_weather" in request.body.decode()


def is_simple(request: ReceivedRequest) -> bool:
    schema = parameters(request)
    return "get_weather" in schema and "pattern" not in schema and "20000" not in schema


def has_effort(effort: str) -> Check:
    return lambda request: request.fields.get("reasoning_effort") == effort


def thinks_with(how: JsonValue) -> Check:
    return lambda request: request.fields.get("think") == how


def has_roles(*expected: str) -> Check:
    return lambda request: roles(request) == [*expected]


def has_no_thinking(request: ReceivedRequest) -> bool:
    variables = request.fields.get("chat_template_kwargs")
    return isinstance(variables, dict) and variables["enable_thinking"] is False


TOOLS = Chat(has_tools=True)
PLAIN = Chat(has_tools=True, parameters={"properties": {"city": {"type": "string"}}})
HUGE = Chat(
    has_tools=True,
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "description": "x" * 100_000}},
    },
)
HIGH = Chat(effort="high")
PREFILLED = Chat((("user", "Name three colors."), ("assistant", "Red,")))
LATE_SYSTEM = Chat((("system", "Be kind."), ("user", "Hi"), ("system", "Be brief.")))
SYSTEM = Chat((("system", "Be kind."), ("user", "Hi")))
TWICE = Chat((("user", "Hi"), ("user", "How is it?")))
FINE_THINKING = sse.START + sse.delta({"reasoning_content": "Hm."})
PEG = (
    "The model produced output that does not match the expected peg-native format. "
    "Please report a bug."
)
XML = "XML syntax error on line 127: element <parameter> closed by </function>"
GO = "invalid character 'p' after object key:value pair"
HARMONY = (
    "openai_harmony.HarmonyError: unexpected tokens remaining in message header: "
    'Some("to=functions.web-browsing")'
)
QWEN = "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low."
THINK = 'invalid think value: "high" (must be "xhigh", "medium", "low", true, or false)'
HY4 = "reasoning_effort must be one of: high, no_think (got 'medium')"
MISTRAL = "reasoning_effort 'medium' is not supported for this model. Supported values: none, high"
DEEPSEEK = "Invalid reasoning effort: medium. Expected low, high, max or a number from 1-100."
PREFILL = "Assistant response prefill is incompatible with enable_thinking."
GRAMMAR = "Failed to initialize samplers: failed to parse grammar"
PATTERN = "JSON schema conversion failed:\nPattern must start with '^' and end with '$'"
TEMPLATE = "Unable to generate parser for this template. Automatic parser generation failed"
BARE = f"{TEMPLATE}: JSON schema error at #/properties/note: schema must be an object"
ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."
ONLY = "Only user and assistant roles are supported!"
FIRST = "system message must be at the beginning"
JINJA = "tools param requires --jinja flag"
NO_TOOLS = "registry.ollama.ai/library/m:latest does not support tools"
NO_TOOL_USE = "No endpoints found that support tool use. Try disabling the tool."
MASK = "Invalid grammar specification: 'triggers'"
LITERAL = "Input should be 'low', 'medium' or 'xhigh'"
DIFF = 'Invalid diff: \'{"city": "Os\' not found at start of \'{"city": "Oslo\''
ARGUMENTS = "Failed to parse tool call arguments as JSON: parse error at line 1, column 9"
LAST_USER = "Expected last role User or Tool (or Assistant with prefix True) but got assistant"

MEDIUM = Chat(effort="medium")
CHAT_ONLY = ("chat",)  # the messages of other engines are not forwarded

ROWS = [
    Row("R1 grammar", "llama-server", TOOLS, 400, GRAMMAR, is_simple, "rich_schemas"),
    Row("R1 pattern", "llama-server", TOOLS, 400, PATTERN, is_simple, "rich_schemas"),
    Row("R1 twice", "llama-server", TOOLS, 400, GRAMMAR, tools_in_prompt, "tools", (GRAMMAR,)),
    Row("R1 template", "llama-server", PLAIN, 400, TEMPLATE, tools_in_prompt, "tools"),
    Row("R1 bare string", "llama-server", TOOLS, 400, BARE, is_simple, "rich_schemas"),
    Row("R1 huge", "llama-server", HUGE, 400, GRAMMAR, tools_in_prompt, "tools"),
    Row("R1 elsewhere", "openai", TOOLS, 400, GRAMMAR, is_simple, "rich_schemas"),
    Row("R2 Qwen3.8", "openai", HIGH, 400, QWEN, has_effort("xhigh"), "effort_words"),
    Row("R2 Qwen3.8, 500", "openai", HIGH, 500, QWEN, has_effort("xhigh"), "effort_words"),
    Row("R2 Hy4", "openai", MEDIUM, 400, HY4, has_effort("high"), "effort_words"),
    Row("R2 Mistral", "openai", MEDIUM, 400, MISTRAL, has_effort("high"), "effort_words"),
    Row("R2 DeepSeek", "openai", MEDIUM, 400, DEEPSEEK, has_effort("high"), "effort_words"),
    Row("R2 llama-server", "llama-server", HIGH, 500, QWEN, has_effort("xhigh"), "effort_words"),
    Row("R2 Ollama", "ollama", HIGH, 500, QWEN, thinks_with("xhigh"), "effort_words", (), None,
        ("chat",)),
    Row("R2 Ollama think", "ollama", HIGH, 400, THINK, thinks_with("xhigh"), "effort_words", (),
        None, ("chat",)),
    Row("R3 Ollama", "ollama", LATE_SYSTEM, 500, FIRST, has_roles("system", "user", "user"),
        "late_system", (), None, CHAT_ONLY),
    Row("R3 vLLM", "openai", LATE_SYSTEM, 400, "System message must be at the beginning.",
        has_roles("system", "user", "user"), "late_system", (), None, CHAT_ONLY),
    Row("R4 XML", "ollama", TOOLS, 200, XML, tools_in_prompt, "tools", (), ollama_error(XML)),
    Row("R4 Go", "ollama", TOOLS, 200, GO, tools_in_prompt, "tools", (), ollama_error(GO)),
    Row("R4 after thinking", "ollama", TOOLS, 200, XML, tools_in_prompt, "tools", (),
        ollama_error(XML, after=json.dump(
            {"message": {"role": "assistant", "content": "", "thinking": "Hm."}, "done": False}
        ) + b"\n")),
    Row("R5 LM Studio", "openai", TOOLS, 500, PEG, tools_in_prompt, "tools"),
    Row("R5 after thinking", "openai", TOOLS, 200, PEG, tools_in_prompt, "tools", (),
        FINE_THINKING + sse.event({"error": {"message": PEG}})),
    Row("R5 Ollama", "ollama", TOOLS, 500, PEG, tools_in_prompt, "tools"),
    Row("R5 llama-server", "llama-server", TOOLS, 500, PEG,
        lambda request: request.fields.get("tool_choice") == "none", "reply_parser"),
    Row("R6 gpt-oss", "openai", TOOLS, 500, HARMONY, tools_in_prompt, "tools"),
    Row("R6 after thinking", "openai", TOOLS, 200, HARMONY, tools_in_prompt, "tools", (),
        FINE_THINKING + sse.event({"error": {"message": HARMONY, "code": 500}})),
    Row("R10 no --jinja", "llama-server", TOOLS, 500, JINJA, tools_in_prompt, "tools"),
    Row("R10 OpenRouter", "openai", TOOLS, 404, NO_TOOL_USE, tools_in_prompt, "tools"),
    Row("R10 Ollama", "ollama", TOOLS, 400, NO_TOOLS, tools_in_prompt, "tools"),
    Row("R11 vLLM", "openai", TOOLS, 400, MASK, is_simple, "rich_schemas"),
    Row("R12 literals", "openai", HIGH, 400, LITERAL, has_effort("xhigh"), "effort_words"),
    Row("R13 diff", "openai", TOOLS, 500, DIFF, tools_in_prompt, "tools"),
    Row("R13 arguments", "llama-server", TOOLS, 500, ARGUMENTS,
        lambda request: request.fields.get("tool_choice") == "none", "reply_parser"),
    Row("R7", "llama-server", PREFILLED, 400, PREFILL, has_no_thinking, "thoughtful_prefill"),
    Row("R7 elsewhere", "openai", PREFILLED, 400, PREFILL, has_no_thinking, "thoughtful_prefill"),
    Row("R7 twice", "llama-server", PREFILLED, 400, PREFILL,
        has_roles("user", "assistant", "user"), "prefill", (PREFILL,)),
    Row("R7 Mistral", "openai", PREFILLED, 400, LAST_USER,
        has_roles("user", "assistant", "user"), "prefill"),
    Row("R9 alternate", "openai", TWICE, 400, ALTERNATE, has_roles("user"), "repeated_roles"),
    Row("R9 only user", "openai", SYSTEM, 500, ONLY, has_roles("user"), "system_role"),
    Row("R9 developer", "openai", Chat((("developer", "Be kind."), ("user", "Hi"))), 400,
        "Unexpected message role.", has_roles("system", "user"), "developer_role", (), None,
        ("chat",)),
]  # fmt: skip


def ways(number: int, row: Row) -> Sequence[tuple[str, bool]]:
    """Return the combinations of dialect and streaming to test: one, or all under `.ci/run`."""
    possible = [way for way in EVERYWHERE if way[0] in row.languages]
    return [possible[number % len(possible)]] if PROFILE == "quick" else possible


CASES = [
    pytest.param(row, language, stream, id=f"{row.name}-{language}-{'stream' * stream or 'whole'}")
    for number, row in enumerate(ROWS)
    for language, stream in ways(number, row)
]


@pytest.mark.parametrize(("row", "language", "stream"), CASES)
async def test_a_rejected_request_is_corrected_and_the_next_request_is_correct_at_once(
    row: Row, language: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scripts: list[Script | bytes] = [*row.refusals, row.answer, row.answer]
    with caplog.at_level(logging.WARNING, "proxy.backends"):
        async with run_temper(row.engine, *scripts) as (proxy, engine):
            proxy.backend.models = {"data": [{"id": "m"}]}
            proxy.backend.documents["/api/tags"] = {"models": [{"name": "m:latest"}]}
            name = "m:latest" if row.engine == "ollama" else "m"
            for _ in range(2):
                got = await ask(proxy, language, row.chat, stream=stream)
                assert (got.status, got.error) == (200, "")
                if row.chat.has_tools:
                    assert got.called == (("get_weather", CITY),)
                else:
                    assert got.text == row.reply
            described = await engine.describe("m")
            requests = proxy.backend.upstream_requests
            listed = (await proxy.client.get(f"/v1/models/{name}")).json()["engine"]
            known = identify_model(name, Evidence(), (), Overrides())
            target = Target(Settings(), name, known, proxy.client, proxy.client, "")
            finding = await list_refusals(target)
    assert len(requests) == len(scripts)
    assert not row.is_mended(requests[0])
    assert all(map(row.is_mended, requests[-2:]))
    assert row.learned in described.lacks
    assert row.learned in listed["lacks"]
    assert f"{row.learned}: {Capability[row.learned.upper()].value}" in finding.summary
    notice = f" does not support {row.learned} for model "
    notices = [message for message in caplog.messages if notice in message]
    assert len(notices) == 1


IMAGE: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}
OSLO = '{"city": "Oslo"}'
WEATHER: JsonObject = {"name": "get_weather", "parameters": {"type": "object"}}
HI: JsonObject = {"role": "user", "content": "Hi"}
DONE: JsonObject = {"role": "assistant", "content": "Done."}


def tool(**others: JsonValue) -> JsonObject:
    return {"type": "function", "function": {**WEATHER, **others}}


def after_call(
    *messages: JsonObject, result: JsonValue = "warm", **beside: JsonValue
) -> JsonObject:
    """Return a request whose history has a call and its result.

    `beside` are further members of the message with the call, `messages` follow the result.
    """
    function: JsonObject = {"name": "get_weather", "arguments": OSLO}
    calls: JsonValue = [{"id": "call_1234", "type": "function", "function": function}]
    called: JsonObject = {"role": "assistant", "content": "", "tool_calls": calls, **beside}
    answered: JsonObject = {"role": "tool", "tool_call_id": "call_1234", "content": result}
    return {"messages": [HI, called, answered, *messages], "tools": [tool()]}


def has(*path: str | int, value: JsonValue) -> Check:
    return lambda request: member(request.fields, *path) == value


ZOD = (
    '[{"code": "invalid_type", "path": [0, "function", "parameters", "properties"], '
    '"message": "Required"}]'
)
IDS = "Tool call id was call_1234 but must be a-z, A-Z, 0-9, with a length of 9."
BODIES: dict[str, tuple[JsonObject, int, str, Check, str]] = {
    "a user after a result": (
        after_call(HI), 400, "Unexpected role 'user' after role 'tool'",
        has_roles("user", "assistant", "tool", "assistant", "user"), "user_after_tool",
    ),
    "turns but for tools": (
        after_call(HI), 400, f"{ALTERNATE} except for tool calls and results.",
        has_roles("user", "assistant", "tool", "assistant", "user"), "user_after_tool",
    ),
    "ids": (
        after_call(), 500, IDS,
        lambda request: f"{member(request.fields, 'messages', 2, 'tool_call_id')}".isalnum(),
        "long_call_ids",
    ),
    "text beside thinking": (
        after_call(content="I look.", reasoning_content="Where?"), 500,
        "Cannot pass both content and thinking in an assistant message with tool calls!",
        has("messages", 1, "reasoning_content", value="Where?\n\nI look."), "text_beside_thinking",
    ),
    "calls without thinking": (
        after_call(), 400, "The reasoning_content in the thinking mode must be passed back.",
        has("messages", 1, "reasoning_content", value=" "), "calls_without_thinking",
    ),
    "an empty answer": (
        {"messages": [HI, {**DONE, "content": "", "reasoning_content": "Hm."}, HI]}, 400,
        "Assistant message must have either content or tool_calls, but not none.",
        has("messages", 1, "content", value="(no answer)"), "empty_answers",
    ),
    "an empty answer in other words": (
        {"messages": [HI, {**DONE, "content": ""}, HI]}, 400,
        "Assistant message must contain either 'content' or 'tool_calls'!",
        has("messages", 1, "content", value="(no answer)"), "empty_answers",
    ),
    "a tool without parameters, over several lines": (
        {"messages": [HI], "tools": [tool()]}, 400, ZOD.replace(",", ",\n "),
        has("tools", 0, "function", "parameters", "properties", value={}), "bare_schemas",
    ),
    "a tool without parameters": (
        {"messages": [HI], "tools": [tool()]}, 400, ZOD,
        has("tools", 0, "function", "parameters", "properties", value={}), "bare_schemas",
    ),
    "an image in a result": (
        after_call(result=[IMAGE]), 400, "Invalid 'messages' in payload. Check them.",
        has("messages", 3, "content", 1, value=IMAGE), "result_pictures",
    ),
    "an image in a result, in other words": (
        after_call(result=[IMAGE]), 400, "Only 'text' content is supported for 'tool' messages",
        has("messages", 3, "content", 1, value=IMAGE), "result_pictures",
    ),
    "an image in a result, said so": (
        after_call(result=[IMAGE]), 400, "image_url is not supported in tool messages",
        has("messages", 3, "content", 1, value=IMAGE), "result_pictures",
    ),
    "an image of an earlier turn": (
        {"messages": [{"role": "user", "content": [IMAGE]}, DONE, HI]}, 400,
        "At most 0 image(s) may be provided in one prompt.",
        has("messages", 0, "content", 0, "type", value="text"), "pictures",
    ),
    "required": (
        {"messages": [HI], "tools": [tool()], "tool_choice": "required"}, 400, MASK,
        has("tool_choice", value="auto"), "required_choice",
    ),
    "named": (
        {"messages": [HI], "tools": [tool()],
         "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}, 400, MASK,
        has("tool_choice", value="required"), "named_choice",
    ),
    "strict": (
        {"messages": [HI], "tools": [tool(strict=True)]}, 400, MASK,
        has("tools", 0, "function", value=WEATHER), "strict_field",
    ),
    "template variables of the client": (
        {"messages": [HI], "chat_template_kwargs": {"enable_thinking": False}}, 400,
        "Unrecognized request argument supplied: chat_template_kwargs",
        has("chat_template_kwargs", value=None), "template_variables",
    ),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BODIES)
async def test_a_rejected_history_or_tool_schema_is_sent_again_in_an_accepted_format(
    name: str, stream: bool
) -> None:
    body, status, message, is_mended, learned = BODIES[name]
    answer = sse.calls("get_weather", OSLO) if "tools" in body else says("openai", "Fine.")
    scripts = (rejection("openai", status, message), answer, answer)
    async with run_temper("openai", *scripts) as (proxy, engine):
        for _ in range(2):
            got = await post(
                proxy, "/v1/chat/completions", {"model": "m", "stream": stream, **body}
            )
            assert (got.status, got.error) == (200, "")
            assert got.called or "tools" not in body
        requests = proxy.backend.upstream_requests
        assert learned in engine.name_lacks("m", is_only=True)
    assert [is_mended(request) for request in requests] == [False, True, True]
    assert all("tools" in request.fields for request in requests if "tools" in body)


@pytest.mark.parametrize(
    ("most", "message", "sent"),
    [
        (16000, "This endpoint's maximum context length is 16384 tokens. However, you requested "
         "about 16500 tokens (300 of text input, 200 of tool input, 16000 in the output).", 15628),
        (16000, "This model's maximum context length is 16384 tokens. However, you requested 16000 "
         "output tokens and your prompt contains at least 385 input tokens", None),
        (9000, "max_tokens is too large: 9000. This model supports at most 8192 completion tokens",
         8192),
        (9000, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        (9000, "max_tokens (9000) exceeds the model's maximum output of 8192 tokens", 8192),
        (300, "This model's maximum context length is 1000 tokens. However, you requested 1210 "
         "tokens (910 in the messages, 300 in the completion).", 75),
    ],
)  # fmt: skip
async def test_max_tokens_beyond_the_window_is_reduced(
    most: int, message: str, sent: int | None
) -> None:
    body: JsonObject = {"model": "m", "messages": [HI], "max_tokens": most, "stream": False}
    async with run_temper("openai", rejection("openai", 400, message), says("openai", "Fine.")) as (
        proxy,
        _,
    ):
        answer = await proxy.client.post("/v1/chat/completions", json=body)
        limit = proxy.backend.upstream_requests[-1].fields["max_tokens"]
    assert answer.status_code == 200
    assert isinstance(limit, int)
    assert limit == (sent or limit) < most
    assert "limited" in answer.headers["x-temper-repairs"]


async def test_a_prompt_beyond_the_window_is_an_overflow_even_if_the_error_counts_max_tokens() -> (
    None
):
    message = (
        "This model's maximum context length is 1000 tokens. However, you requested 1210 tokens "
        "(1010 in the messages, 200 in the completion)."
    )
    body: JsonObject = {"model": "m", "messages": [HI], "max_tokens": 200}
    async with run_temper("openai", rejection("openai", 400, message)) as (proxy, _):
        got = await post(proxy, "/v1/chat/completions", body)
        assert len(proxy.backend.upstream_requests) == 1
    assert (got.status, "context_length_exceeded" in got.error) == (400, True)


GROQ: JsonObject = {
    "message": "Failed to call a function. See 'failed_generation' for more details.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": WRITTEN,
}
LITELLM: JsonObject = {
    "message": f"litellm.BadRequestError: GroqException - {json.dump_text({'error': GROQ})}"
}


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
@pytest.mark.parametrize("error", [GROQ, LITELLM], ids=["groq", "litellm"])
async def test_call_quoted_in_an_error_is_rescued(
    error: JsonObject, language: str, stream: bool
) -> None:
    async with run_temper("openai", refuses(400, error)) as (proxy, _):
        got = await ask(proxy, language, TOOLS, stream=stream)
        assert len(proxy.backend.upstream_requests) == 1
    assert (got.status, got.error, got.called) == (200, "", (("get_weather", CITY),))


@pytest.mark.parametrize("language", ["chat", "messages"])
async def test_a_parser_error_moves_tools_into_the_prompt_only_in_its_conversation(
    language: str,
) -> None:
    """After a parser error, only this conversation has its tools in the prompt."""
    first = Chat((("user", "a"),), has_tools=True)
    later = Chat((("user", "a"), ("assistant", "b"), ("user", "c")), has_tools=True)
    lost = Chat((("user", "d"),), has_tools=True)
    longer = Chat((("user", "d"), ("assistant", "e"), ("user", "f")), has_tools=True)
    fine = says("openai", WRITTEN)
    scripts = fine, rejection("openai", 500, PEG), fine, fine, fine
    async with run_temper("openai", *scripts) as (proxy, _):
        for chat in (first, lost, later, longer):
            assert (await ask(proxy, language, chat, stream=False)).called
        requests = proxy.backend.upstream_requests
    assert [tools_in_prompt(request) for request in requests] == [
        False,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
async def test_a_reply_lost_to_a_parser_error_counts_as_an_attempt(
    language: str, stream: bool
) -> None:
    """At most three replies: one that the engine lost, one parsed by Temper, one constrained."""
    chat = Chat(has_tools=True)
    texts = [says("openai", "<tool_call>{broken")]
    probed = says("openai", "Hello.")  # to a request that tries if the engine accepts a grammar
    last = says("openai", WRITTEN)
    scripts: list[Script | bytes] = [rejection("openai", 500, PEG), *texts, probed, last]
    async with run_temper("openai", *scripts) as (proxy, _):
        got = await ask(proxy, language, chat, stream=stream)
    assert got.called == (("get_weather", CITY),)


@pytest.mark.parametrize("language", PATHS)
@pytest.mark.parametrize("message", [PEG, HARMONY])
async def test_text_that_was_streamed_before_a_lost_reply_is_not_repeated(
    language: str, message: str
) -> None:
    """Streamed text cannot be withdrawn, so the call is sent after it."""
    prefix = sse.START + sse.text("Let me look.\n")
    lost = prefix + sse.event({"error": {"message": message, "code": 500}})
    whole = says("openai", f"Let me look.\n{WRITTEN}")
    async with run_temper("openai", lost, whole, whole) as (proxy, _):
        for _ in range(2):
            got = await ask(proxy, language, TOOLS, stream=True)
            assert (got.error, got.text.strip()) == ("", "Let me look.")
            assert got.called == (("get_weather", CITY),)
        assert [
            tools_in_prompt(upstream_request)
            for upstream_request in proxy.backend.upstream_requests
        ] == [False, True, True]


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
async def test_arguments_are_still_checked_against_the_clients_schema(
    language: str, stream: bool
) -> None:
    """The pattern is removed from the grammar, but not from the client's schema."""
    parameters: JsonObject = {"properties": {"city": {"type": "string", "pattern": "^[A-Z]+$"}}}
    chat = Chat(has_tools=True, parameters=parameters)
    wrong, right = (sse.calls("get_weather", f'{{"city": "{city}"}}') for city in ("paris", "OSLO"))
    async with run_temper(
        "llama-server", rejection("llama-server", 400, PATTERN), wrong, right
    ) as (
        proxy,
        _,
    ):
        got = await ask(proxy, language, chat, stream=stream)
        assert len(proxy.backend.upstream_requests) == 3
    assert got.called == (("get_weather", {"city": "OSLO"}),)


async def test_the_sixth_rejection_of_a_request_is_returned_to_the_client() -> None:
    chat = Chat(
        (("system", "a"), ("user", "b"), ("system", "c"), ("assistant", "d")), effort="high"
    )
    refusals = (QWEN, FIRST, PREFILL, PREFILL, ONLY, ALTERNATE)
    async with run_temper(
        "openai", *[rejection("openai", 400, refusal) for refusal in refusals]
    ) as (
        proxy,
        _,
    ):
        got = await ask(proxy, "chat", chat, stream=False)
        assert len(proxy.backend.upstream_requests) == 6
    assert got.status == 400
    assert "alternate" in got.error


async def test_learned_rejections_are_forgotten_after_a_new_engine_build() -> None:
    answer = says("llama-server", WRITTEN)
    script = rejection("llama-server", 400, GRAMMAR)
    async with run_temper("llama-server", script, answer, answer) as (proxy, engine):
        await engine.describe("m")
        await ask(proxy, "chat", TOOLS, stream=False)
        assert (await engine.describe("m")).lacks == ("rich_schemas",)
        proxy.backend.properties = {"build_info": "b2", "model_path": "m.gguf"}
        assert (await engine.describe("m")).lacks == ()
        await ask(proxy, "chat", TOOLS, stream=False)
        assert not is_simple(proxy.backend.upstream_requests[-1])


@pytest.mark.parametrize("others", [(), ("other",)])
async def test_model_list_reports_learned_rejections(others: tuple[str, ...]) -> None:
    scripts = rejection("llama-server", 400, GRAMMAR), says("llama-server", WRITTEN)
    async with run_temper("llama-server", *scripts) as (proxy, _):
        proxy.backend.models = {"data": [{"id": name} for name in ("m", *others)]}
        before = (await proxy.client.get("/v1/models/m")).json()["engine"]
        await ask(proxy, "chat", TOOLS, stream=False)
        after = (await proxy.client.get("/v1/models/m")).json()["engine"]
        (listed, *_) = (await proxy.client.get("/v1/models")).json()["data"]
    assert before == {"name": "llama.cpp", "lacks": []}
    assert after == {"name": "llama.cpp", "lacks": ["rich_schemas"]}
    assert others or listed["engine"] == after


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
async def test_r8_prompt_truncated_by_ollama_is_compacted(language: str, stream: bool) -> None:
    """Ollama cuts a prompt to 4,096 tokens, and fails if the user's question is cut off."""
    words = " ".join(f"word{number}" for number in range(250))
    turns = [(role, words) for _ in range(3) for role in ("user", "assistant")]
    chat = Chat((*turns, ("user", "And?")))
    message = "HTTP 500: no user query found in messages"
    scripts: list[Script | bytes] = [rejection("ollama", 500, message), lines("Fine.")]
    async with run_temper("ollama", *scripts) as (proxy, _):
        got = await ask(proxy, language, chat, stream=stream)
        assert (got.error, got.text) == ("", "Fine.")
        first, second = proxy.backend.upstream_requests
    assert len(second.body) < len(first.body)


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
async def test_r8_after_a_truncated_prompt_the_model_is_reloaded_with_a_larger_window(
    language: str, stream: bool
) -> None:
    chat = Chat((("user", "word " * 4000),))
    message = "HTTP 500: no user query found in messages"
    scripts: list[Script | bytes] = [rejection("ollama", 500, message), *[lines("Fine.")] * 2]
    trained: JsonObject = {"general.architecture": "a", "a.context_length": 32768}
    documents: dict[str, JsonValue] = {
        "/api/show": {"capabilities": ["completion"], "model_info": trained},
        "/api/ps": {"models": []},
    }
    async with run_temper("ollama", *scripts, documents=documents) as (proxy, _):
        for _ in range(2):
            got = await ask(proxy, language, chat, stream=stream)
            assert (got.error, got.text) == ("", "Fine.")
        first, *others = proxy.backend.upstream_requests
    assert "num_ctx" not in first.body.decode()
    for other in others:
        assert other.fields["messages"] == first.fields["messages"]
        assert as_object(other.fields["options"])["num_ctx"] == 8192


FORM: JsonObject = {
    "type": "json_schema",
    "json_schema": {
        "name": "place",
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string", "pattern": "^[A-Z]+$"}},
            "required": ["city"],
        },
    },
}


async def test_r1_a_rejected_response_format_is_simplified_if_temper_validates_the_reply(
    stream: bool,
) -> None:
    replies = [says("llama-server", f'{{"city": "{city}"}}') for city in ("paris", "PARIS")]
    refusal = rejection("llama-server", 400, PATTERN)
    scripts: list[Script | bytes] = [says("llama-server", "Paris."), refusal, *replies]
    async with run_temper("llama-server", *scripts) as (proxy, _):
        body: JsonObject = {"model": "m", "stream": stream, "response_format": FORM, **TOOLS.chat()}
        got = await post(proxy, "/v1/chat/completions", body)
        requests = proxy.backend.upstream_requests
    assert (got.error, got.text) == ("", '{"city": "PARIS"}')
    forms = [json.dump_text(request.fields.get("response_format", "")) for request in requests]
    assert [("pattern" in form, "city" in form) for form in forms] == [
        (False, False),
        (True, True),
        (False, True),
        (False, True),
    ]


async def test_r1_without_validation_the_rejection_of_a_response_format_is_returned() -> None:
    async with run_temper("llama-server", rejection("llama-server", 400, PATTERN)) as (proxy, _):
        body: JsonObject = {"model": "m", "response_format": FORM, **SYSTEM.chat()}
        got = await post(proxy, "/v1/chat/completions", body)
    assert got.status == 400
    assert "Pattern must start" in got.error


async def test_the_limit_of_rejections_covers_all_attempts_of_a_turn() -> None:
    chat = Chat((("system", "a"), ("user", "b"), ("system", "c")), True, effort="high")
    first = [rejection("openai", 400, refusal) for refusal in (QWEN, FIRST)]
    again = [rejection("openai", 400, refusal) for refusal in (GRAMMAR, GRAMMAR, ONLY, ALTERNATE)]
    wrong = says("openai", "<tool_call>{broken")
    async with run_temper("openai", *first, wrong, *again) as (proxy, _):
        await ask(proxy, "chat", chat, stream=False)
        assert len(proxy.backend.upstream_requests) == 7


@pytest.mark.parametrize(("language", "stream"), EVERYWHERE)
@pytest.mark.parametrize("engine", ["openai", "llama-server"])
async def test_r9_the_error_for_a_rejected_image_names_the_message(
    engine: str, language: str, stream: bool
) -> None:
    script = rejection(engine, 500, "image_url is not supported")
    async with run_temper(engine, script) as (proxy, _):
        got = await ask(proxy, language, Chat(has_picture=True), stream=stream)
        assert len(proxy.backend.upstream_requests) == 1
    assert got.status == 400
    assert "image_url is not supported" in got.error
    assert "messages.1" in got.error or "input" in got.error


@pytest.mark.parametrize("language", ["chat", "responses"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("broken", ["{city: Paris", '{"city": "Paris"', "Paris"])
async def test_r10_broken_calls_in_the_history_are_repaired(
    engine: str, language: str, stream: bool, broken: str
) -> None:
    async with run_temper(engine, says(engine, "Fine.")) as (proxy, _):
        got = await _ask_on(proxy, language, broken, stream=stream)
        (request,) = proxy.backend.upstream_requests
    assert got.text == "Fine."
    messages = objects_in(request.fields["messages"])
    (call,) = [call for message in messages for call in objects_in(message.get("tool_calls"))]
    arguments = as_object(call["function"])["arguments"]
    parsed = arguments if engine == "ollama" else json.parse(f"{arguments}".encode())
    assert isinstance(parsed, dict)


async def _ask_on(
    proxy: RunningProxy, language: str, broken: str, *, stream: bool
) -> LanguageReply:
    """Send a request with a broken call in its history."""
    function: JsonObject = {"name": "get_weather", "arguments": broken}
    body: JsonObject
    if language == "chat":
        call: JsonObject = {"id": "a", "type": "function", "function": function}
        body = {
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "a", "content": "broken"},
            ]
        }
    else:
        body = {
            "store": False,
            "input": [
                {"role": "user", "content": "Hi"},
                {"type": "function_call", "call_id": "a", **function},
                {"type": "function_call_output", "call_id": "a", "output": "broken"},
            ],
        }
    return await post(proxy, PATHS[language][0], {"model": "m", "stream": stream, **body})


EFFORTS = [
    ("qwen3.8-27b", "high", "reasoning_effort", "xhigh"),
    ("qwen3.8-27b", "low", "reasoning_effort", "low"),
    ("hy4", "medium", "reasoning_effort", "high"),
    ("muse-glimmer-30b", "max", "reasoning_strength", "xhigh"),
]


@pytest.mark.parametrize(("model", "effort", "name", "sent"), EFFORTS)
async def test_r2_an_effort_that_the_template_rejects_is_replaced_by_one_of_the_profile(
    model: str, effort: str, name: str, sent: str
) -> None:
    async with temper(serving=ServerOptions(profiles=load_profiles())) as proxy:
        for language, stream in EVERYWHERE:
            proxy.backend.play(sse.says("Hello."))
            path, write = PATHS[language]
            body: JsonObject = {"model": model, "stream": stream, **write(Chat(effort=effort))}
            assert (await post(proxy, path, body)).text == "Hello."
            (question,) = proxy.backend.upstream_requests
            options = as_object(question.fields.get("chat_template_kwargs")) | question.fields
            assert options[name] == sent, language
