import pytest

from proxy.backends.client import Backend, BackendWrapper, Description, Health, PassthroughRequest
from proxy.conversation.replies import ReplyFinished
from tests.fakes.backend import ScriptedBackend
from tests.fakes.questions import question


def test_a_request_that_is_passed_on_is_written_member_by_member_as_it_came() -> None:
    fields = {"model": b'"m"', "input": b'[ "a" ]', "x": b"1.50"}
    passage = PassthroughRequest("/v1/embeddings", "input", "m", fields)
    assert passage.body() == b'{"model":"m","input":[ "a" ],"x":1.50}'


pytestmark = pytest.mark.anyio


async def test_everything_is_done_by_the_other_backend() -> None:
    other = ScriptedBackend(
        [[ReplyFinished("stop")]], counts=[7], pieces=[b"x"], description=Description(("m",))
    )
    backend: Backend = BackendWrapper(other)
    asked = question()
    assert backend.name == other.name
    assert [batch async for batch in backend.ask(asked, {"a": "b"})]
    assert (other.questions, other.headers) == ([asked], [{"a": "b"}])
    assert [
        piece async for piece in backend.relay(PassthroughRequest("/p", "prompt", "m", {}), {})
    ] == [b"x"]
    assert await backend.count(asked, {}) == 7
    assert await backend.count_texts(["two words"], {}) == (2,)
    assert await backend.models() == await other.models()
    assert await backend.describe("m") == Description(("m",))
    assert await backend.health() is Health.READY
