"""The table of span attributes against the names that OpenTelemetry publishes."""

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import (
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
)

from proxy.observability.record import RequestRecord
from proxy.observability.span_names import ATTEMPT, REQUEST, TOOL, operation

PUBLISHED = {
    value
    for module in (
        gen_ai_attributes,
        error_attributes,
        http_attributes,
        network_attributes,
        server_attributes,
    )
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
CONTENT = ("messages", "instructions", "prompt", "completion", "arguments", "result", "definitions")


def test_every_name_is_published_or_our_own() -> None:
    names = {*REQUEST, *ATTEMPT, *TOOL}
    own = ("temper.", "mcp.")  # MCP's have no table yet: they are those of the conventions' text
    assert {name for name in names if not name.startswith(own)} <= PUBLISHED


def test_no_content_is_among_them() -> None:
    parts = {part for name in (*REQUEST, *ATTEMPT, *TOOL) for part in name.split(".")}
    assert parts.isdisjoint(CONTENT)


def test_every_operation_is_a_published_one() -> None:
    paths = ("/v1/chat/completions", "/chat/completions", "/v1/completions", "/v1/embeddings")
    named = [
        operation(RequestRecord(id="r", begun_at=0, seconds=0, status=200, path=path))
        for path in paths
    ]
    assert named == ["chat", "chat", "text_completion", "embeddings"]
    assert set(named) <= {value.value for value in gen_ai_attributes.GenAiOperationNameValues}
