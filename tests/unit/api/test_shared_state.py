import importlib.util
import sys

import pytest

from proxy.api.fronts import CHAT
from proxy.api.shared_answers import SharedAnswers
from proxy.api.shared_state import examine_state, open_fronts
from proxy.errors import InvalidConfiguration
from proxy.observability.observers import Observers
from proxy.settings import Settings, load_settings
from proxy.state.memory_responses import MemoryStore
from proxy.state.responses_file import ResponsesFile
from proxy.state.shared_responses import SharedResponses

pytestmark = pytest.mark.anyio

NOWHERE = "redis://127.0.0.1:1"
CLIENT = "proxy.state.valkey"

with_client = pytest.mark.skipif(
    importlib.util.find_spec("valkey") is None, reason="needs the extra `state`"
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def settings_of(url: str = NOWHERE, **sections: dict[str, object]) -> Settings:
    backend = {"url": "http://127.0.0.1:1"}
    return load_settings(None, {"backend": backend, "state": {"url": url}, **sections})


async def test_without_an_address_nothing_is_shared_and_nothing_imported() -> None:
    before = {*sys.modules}
    settings = settings_of("")
    examine_state(settings)
    async with open_fronts(settings, Observers()) as fronts:
        assert isinstance(fronts.store, MemoryStore)
        assert fronts.sharing(CHAT, 1.0) is None
        assert all(route.is_shared is None for route in fronts)
    assert CLIENT not in {*sys.modules} - before


async def test_without_the_client_an_address_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proxy.state.valkey", None)
    with pytest.raises(InvalidConfiguration, match=r"state\.url: .*temper-proxy\[state\]"):
        examine_state(settings_of())
    with pytest.raises(InvalidConfiguration, match=r"temper-proxy\[state\]"):
        async with open_fronts(settings_of(), Observers()):
            pytest.fail("it was opened")


@with_client
async def test_with_an_address_answers_and_responses_are_shared() -> None:
    examine_state(settings_of())
    async with open_fronts(settings_of(server={"workers": 2}), Observers()) as fronts:
        assert isinstance(fronts.store, SharedResponses)
        assert isinstance(fronts.sharing(CHAT, 1.0), SharedAnswers)
        assert [route.is_shared is not None for route in fronts] == [False, False, True]


@with_client
@pytest.mark.parametrize(
    ("responses", "kind"), [({"store": "off"}, type(None)), ({"path": "FILE"}, ResponsesFile)]
)
async def test_responses_may_be_kept_elsewhere(
    responses: dict[str, object], kind: type, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("kept") / "kept.sqlite"
    wished = {name: str(file) if one == "FILE" else one for name, one in responses.items()}
    async with open_fronts(settings_of(responses=wished), Observers()) as fronts:
        assert isinstance(fronts.store, kind)
        assert all(route.is_shared is None for route in fronts)
        assert fronts.sharing(CHAT, 1.0) is not None
