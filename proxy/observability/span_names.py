"""What the attributes of our spans are called: one table each for requests, attempts, tools.

Names with `gen_ai.` are OpenTelemetry's for generative AI, whose registry still counts as under
development: whoever changes them there makes us change them here and nowhere else. Prompts,
answers, arguments and results are never among them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

from proxy.facts import context, repairs, tools
from proxy.observability.record import AttemptRecord, RequestRecord, ToolRecord

Attribute: TypeAlias = str | bool | int | float | Sequence[str]
Read: TypeAlias = Callable[[RequestRecord], Attribute | None]
ReadTool: TypeAlias = Callable[[ToolRecord], Attribute | None]
ReadAttempt: TypeAlias = Callable[[RequestRecord, AttemptRecord], Attribute | None]

_OPERATIONS = {"/v1/completions": "text_completion", "/v1/embeddings": "embeddings"}
_PROVIDER = "temper"

# of the spans of runs, see `run_spans`
OPERATION = "gen_ai.operation.name"
AGENT = "gen_ai.agent.name"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
ERROR = "error.type"
ROUND = "temper.round"
STOP = "temper.stop"
ROUNDS = "temper.rounds"
DEFECT = "temper.attempt.defect"


def operation(request: RequestRecord) -> str:
    """Name what was asked for, which was a chat unless it was passed on."""
    return _OPERATIONS.get(request.path, "chat")


REQUEST: Mapping[str, Read] = {
    "gen_ai.operation.name": operation,
    "gen_ai.provider.name": lambda _: _PROVIDER,
    "gen_ai.request.model": lambda request: request.model,
    "gen_ai.request.stream": lambda request: request.stream,
    "gen_ai.response.finish_reasons": lambda request: (
        [request.finish_reason] if request.finish_reason is not None else None
    ),
    "gen_ai.response.time_to_first_chunk": lambda request: request.first_token,
    "gen_ai.usage.input_tokens": lambda request: request.tokens.prompt,
    "gen_ai.usage.cache_read.input_tokens": lambda request: request.tokens.cached,
    "gen_ai.usage.output_tokens": lambda request: request.tokens.output,
    "http.request.method": lambda _: "POST",
    "http.response.status_code": lambda request: request.status,
    "error.type": lambda request: request.error,
    "temper.request.id": lambda request: request.id,
    "temper.dialect": lambda request: request.dialect,
    "temper.service": lambda request: request.service,
    "temper.outcome": lambda request: request.outcome.value if request.outcome else None,
    "temper.repairs": lambda request: repairs(request.facts) or None,
    "temper.context": lambda request: context(request.facts) or None,
    "temper.attempts": lambda request: len(request.attempts),
    "temper.queued_seconds": lambda request: request.queued,
    "temper.overhead_seconds": lambda request: request.overhead,
    "temper.tools": lambda request: tools(request.facts) or None,
    "temper.left": lambda request: request.left.value if request.left else None,
}

ATTEMPT: Mapping[str, ReadAttempt] = {
    "gen_ai.operation.name": lambda request, _: operation(request),
    "gen_ai.request.model": lambda request, _: request.model,
    "server.address": lambda request, _: urlsplit(request.backend or "").hostname,
    "server.port": lambda request, _: urlsplit(request.backend or "").port,
    "error.type": lambda _, attempt: attempt.error,
    "temper.attempt.reason": lambda _, attempt: attempt.kind,
    "temper.attempt.defect": lambda _, attempt: attempt.defect,
    ROUND: lambda _, attempt: attempt.round or None,
}

TOOL: Mapping[str, ReadTool] = {
    "gen_ai.operation.name": lambda _: "execute_tool",
    "gen_ai.tool.name": lambda tool: tool.name,
    "gen_ai.tool.call.id": lambda tool: tool.call_id,
    "gen_ai.tool.type": lambda _: "extension",
    "error.type": lambda tool: tool.error,
    "mcp.method.name": lambda _: "tools/call",
    "mcp.protocol.version": lambda tool: tool.protocol or None,
    "network.transport": lambda tool: tool.transport or None,
    ROUND: lambda tool: tool.round,
    "temper.tool.server": lambda tool: tool.server,
    "temper.tool.status": lambda tool: tool.status,
}
