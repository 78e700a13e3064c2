"""The table of span attributes against the names that OpenTelemetry publishes."""

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes

from proxy.observability.span_names import ATTEMPT, REQUEST

PUBLISHED = {
    value
    for module in (gen_ai_attributes, error_attributes, http_attributes, server_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
CONTENT = ("messages", "instructions", "prompt", "completion", "arguments", "result", "definitions")


def test_every_name_is_published_or_our_own() -> None:
    names = {*REQUEST, *ATTEMPT}
    assert {name for name in names if not name.startswith("temper.")} <= PUBLISHED


def test_no_content_is_among_them() -> None:
    parts = {part for name in (*REQUEST, *ATTEMPT) for part in name.split(".")}
    assert parts.isdisjoint(CONTENT)
