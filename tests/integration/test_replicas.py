"""If two Tempers alternate in a session, they respond exactly as one Temper would.

No state between requests affects a response, so replicas need no shared memory.
"""

import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes import sse
from tests.fakes.answers import Answer
from tests.fakes.running_proxy import request, temper_at
from tests.fakes.scripted_backend import Script, ScriptedBackend, refuses
from tests.fakes.sockets import listening

WINDOW = 4096
_FRESH_ID = re.compile(rb"call_[0-9a-f]{24}")
# as if the server had been restarted with a smaller window
OVERFLOW = refuses(400, {"message": "too long", "type": "exceed_context_size_error", "n_ctx": 3072})
GOOD = sse.calls("get_weather", '{"city": "Graz"}')
ANSWER = sse.says("It is warm in Graz.")
SYSTEM: JsonObject = {"role": "system", "content": "Answer in one sentence."}
QUESTION: JsonObject = {"role": "user", "content": "Which city is warm?"}

ORDER: JsonObject = {"tool": "get_weather", "needs": "get_time"}


def steps(number: int, *, city: str = "") -> list[JsonValue]:
    """Return messages with calls and their results; each result has some hundred tokens."""
    made: list[JsonValue] = []
    for index in range(number):
        arguments = json.dump_text({"city": city or f"City {index}"})
        function: JsonObject = {"name": "get_weather", "arguments": arguments}
        call: JsonObject = {"id": f"call_{index}", "type": "function", "function": function}
        lines = "\n".join(f"hour {hour}: sunny and {hour} degrees" for hour in range(40))
        made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        made.append({"role": "tool", "tool_call_id": f"call_{index}", "content": lines})
    return made


def body_of(number: int, **others: JsonValue) -> JsonObject:
    return request(messages=[SYSTEM, QUESTION, *steps(number)], **others)


# A session of an agent, with the server's replies to each turn.
SESSION: Sequence[tuple[JsonObject, Sequence[Script | bytes]]] = (
    (body_of(0), [GOOD]),
    (body_of(1), [sse.says("I'll check the weather now."), ANSWER]),
    (body_of(2), [sse.calls("get_wether", '{"town": 5}'), GOOD]),
    (
        body_of(3),
        [sse.says('<tool_call>\n{"name": "get_weather"}\n</tool_call>')] * 2 + [GOOD],
    ),
    (body_of(8), [ANSWER]),
    (body_of(14), [GOOD]),
    (body_of(16), [ANSWER]),
    (request(messages=[SYSTEM, QUESTION, *steps(4, city="Graz")]), [GOOD, ANSWER]),
    (
        body_of(0, temper={"workflow": {"prerequisites": [ORDER]}}),
        [GOOD, sse.calls("get_time", "{}")],
    ),
    # last, because Temper learns the window and the size of prompts from a rejection
    (body_of(15), [OVERFLOW, ANSWER]),
)


def without_usage(script: Script | bytes) -> Script | bytes:
    """Remove the usage events: their token counts do not match the prompt.

    Temper would learn the sizes of messages from them.
    """
    if isinstance(script, Script):
        return script
    events = script.split(b"\n\n")
    return b"\n\n".join(event for event in events if b'"usage"' not in event)


@dataclass(frozen=True)
class Session:
    """The responses of a session, and the upstream bodies `sent`, both without generated ids."""

    answers: list[Answer]
    sent: list[bytes]


async def play_session(replicas: int, *, stream: bool) -> Session:
    """Play the session; its turns go to the replicas alternately."""
    server = ScriptedBackend(
        *[without_usage(script) for _, scripts in SESSION for script in scripts]
    )
    server.properties = {
        "model_alias": "m",
        "total_slots": 1,
        "default_generation_settings": {"n_ctx": WINDOW},
    }
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(listening(server))
        proxies = [
            await stack.enter_async_context(temper_at(upstream.url)) for _ in range(replicas)
        ]
        answers = [
            await proxies[number % replicas].ask(turn, stream=stream)
            for number, (turn, _) in enumerate(SESSION)
        ]
    return Session(
        answers,
        [
            _FRESH_ID.sub(b"call_x", upstream_request.body)
            for upstream_request in server.upstream_requests
        ],
    )


def visible_parts(answer: Answer) -> tuple[object, ...]:
    """Return what a client receives, without generated ids."""
    prefix = answer.headers["x-temper-prefix"]
    return answer.status, answer.text, answer.called, answer.reason, answer.report, prefix


async def test_a_session_over_two_replicas_has_the_requests_and_responses_of_one_replica(
    *, stream: bool
) -> None:
    alone = await play_session(1, stream=stream)
    shared = await play_session(2, stream=stream)
    assert len(alone.sent) == sum(len(scripts) for _, scripts in SESSION)
    assert shared.sent == alone.sent
    assert list(map(visible_parts, shared.answers)) == list(map(visible_parts, alone.answers))


async def test_the_session_of_these_tests_contains_retries_and_compaction_tiers_2_and_3() -> None:
    reports = [answer.report for answer in (await play_session(2, stream=False)).answers]
    assert {report["outcome"] for report in reports} == {"clean", "retried"}
    assert {"tier=0", "tier=2", "tier=3"} <= {
        part for report in reports for part in report["context"].split("; ")
    }
