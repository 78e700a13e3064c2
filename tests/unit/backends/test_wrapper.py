import pytest

from proxy.backends.client import Backend, Description, Health, PassthroughRequest
from proxy.backends.wrapper import BackendWrapper
from proxy.conversation.replies import ReplyFinished
from tests.fakes.backend import ScriptedBackend
from tests.fakes.questions import question

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
