"""If Temper itself fails, the client gets an error, and the log contains the reason."""

import logging
from collections.abc import Sequence

import pytest

from proxy.backends.client import ReplyEvents
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import EventSink, TextDelta
from proxy.conversation.requests import UpstreamRequest
from tests.fakes import scripted_backend
from tests.fakes.backend import ScriptedBackend
from tests.fakes.running_proxy import in_front_of, request, temper
from tests.fakes.sse import calls, says

PLAIN = request(tools=None)
PRICES: JsonObject = {
    "type": "object",
    "properties": {
        "prices": {
            "type": "object",
            "propertyNames": {"enum": ["small", "large"]},
            "additionalProperties": {"type": "integer"},
        }
    },
}
NODE: JsonObject = {"$ref": "#/$defs/node"}
SUM: JsonObject = {"properties": {"left": NODE, "right": NODE}, "required": ["left", "right"]}
TREE: JsonObject = {
    "properties": {"tree": NODE},
    "$defs": {
        "node": {
            "anyOf": [
                {"type": "number"},
                {"type": "object", **SUM},
                {
                    "type": "object",
                    "properties": {"left": NODE, "args": NODE},
                    "required": ["args"],
                },
            ]
        }
    },
}
LEAF = '{"left":"x","right":"x"}'
BRANCH = f'{{"left":{LEAF},"right":{LEAF}}}'


class BuggyBackend(ScriptedBackend):
    """Fails in the middle of a reply with an unexpected exception."""

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        del upstream_request, headers
        yield [TextDelta("It is")]
        raise RuntimeError("a bug of our own")


def tracebacks(records: Sequence[logging.LogRecord]) -> list[str]:
    return [str(record.exc_info[1]) for record in records if record.exc_info]


async def test_an_exception_in_temper_during_a_stream_is_an_error_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unused = scripted_backend.ScriptedBackend()
    async with in_front_of(BuggyBackend(), None, unused) as proxy:
        answer = await proxy.ask(PLAIN, stream=True)
    assert (answer.status, answer.text) == (200, "It is")
    assert answer.error is not None
    assert answer.error["message"] == "Internal error; see the server's log."
    assert "a bug of our own" in tracebacks(caplog.records)


async def test_an_exception_in_temper_before_the_response_is_a_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unused = scripted_backend.ScriptedBackend()
    async with in_front_of(BuggyBackend(), None, unused) as proxy:
        answer = await proxy.ask(PLAIN)
    assert answer.status == 500
    assert "a bug of our own" in tracebacks(caplog.records)


@pytest.mark.parametrize(
    ("schema", "wrong", "right"),
    [
        (PRICES, '{"prices":{"medium":3}}', '{"prices":{"small":3}}'),
        (TREE, f'{{"tree":{{"left":{BRANCH},"right":{LEAF}}}}}', '{"tree":{"left":1,"right":2}}'),
    ],
    ids=["names", "a tree"],
)
async def test_a_call_whose_arguments_violate_the_schema_is_retried(
    *, schema: JsonObject, wrong: str, right: str, stream: bool
) -> None:
    function: JsonObject = {"name": "f", "parameters": schema}
    body = request(tools=[{"type": "function", "function": function}])
    async with temper(calls("f", wrong), calls("f", right)) as proxy:
        answer = await proxy.ask(body, stream=stream)
        assert len(proxy.backend.upstream_requests) == 2
    assert answer.status == 200
    assert answer.called == [("f", json.parse(right))]


@pytest.mark.parametrize("mode", ["on", "observe"])
async def test_an_answer_that_violates_its_response_format_is_retried_only_if_guardrails_are_on(
    *, mode: str, stream: bool
) -> None:
    wrong, right = '{"prices":{"medium":3}}', '{"prices":{"small":3}}'
    form: JsonObject = {"type": "json_schema", "json_schema": {"name": "p", "schema": PRICES}}
    body = request(response_format=form)
    async with temper(says(wrong), says(right)) as proxy:
        answer = await proxy.ask(body, stream=stream, headers={"x-temper-guardrails": mode})
    assert (answer.status, answer.text) == (200, right if mode == "on" else wrong)
