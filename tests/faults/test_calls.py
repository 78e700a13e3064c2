"""F42 to F50: what a model writes, and what others write to make it look like a call."""

import pytest

from proxy.conversation import json
from tests.fakes.front import request
from tests.fakes.spoken import says
from tests.faults.fronts import before

pytestmark = pytest.mark.anyio

CUT_OFF = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par'


@pytest.mark.fault("F45")
async def test_a_call_that_was_cut_off_is_never_completed(*, subject: str, stream: bool) -> None:
    async with before(subject, *[says(CUT_OFF, reason="length")] * 4) as front:
        answer = await front.send(json.dump(request(stream=stream)))
    assert not answer.calls
    assert answer.reason == "length"
