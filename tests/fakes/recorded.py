"""A recorded exchange in which a call written as text was rescued."""

from proxy.conversation.json import JsonObject
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.observability.recording import (
    Piece,
    RecordedAnswer,
    RecordedCall,
    RecordedExchange,
    RecordedModel,
    RecordedPolicy,
    RecordedVerdict,
)

TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
REQUEST: JsonObject = {
    "model": "m",
    "messages": [{"role": "user", "content": "How is the weather in Paris?"}],
    "tools": [TOOL],
}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
RESCUED = RecordedAnswer(
    calls=(RecordedCall(name="get_weather", arguments='{"city":"Paris"}'),),
    finish_reason="tool_calls",
)
CLEAN = RecordedVerdict(
    outcome="repaired", attempts=(("as_asked", None),), repairs="rescued=hermes"
)
POLICY = RecordedPolicy(
    mode=Mode.ON,
    text_policy=TextPolicy.RESPOND,
    attempts=3,
    is_strict=False,
    most_repeats=3,
    most_rounds=9,
)


def exchange(
    *generations: tuple[Piece, ...],
    answer: RecordedAnswer = RESCUED,
    verdict: RecordedVerdict = CLEAN,
    request: JsonObject = REQUEST,
    profile: str | None = None,
) -> RecordedExchange:
    return RecordedExchange(
        id="r",
        at=0.0,
        model=RecordedModel(names=("m",), architecture="", template="", profile=profile),
        policy=POLICY,
        request=request,
        generations=generations or ((["text", CALL], ["finished", "stop"]),),
        answer=answer,
        verdict=verdict,
    )
