import asyncio
import logging
from dataclasses import dataclass

import pytest

from proxy.backends.client import Description
from proxy.guardrails.model_quirks import Quirks
from proxy.profiles.known_model import KnownModel, Overrides
from proxy.profiles.known_models import KnownModels
from proxy.profiles.profile import Matching, Profile
from proxy.profiles.tuned import Tuned, TunedSettings
from tests.fakes.backend import ScriptedBackend

FALCON = Profile(
    "falcon", "Falcon", Quirks(replay="none", syntaxes=("hermes",)), Matching(("falcon*",))
)
HERON = Profile("heron", "Heron", Quirks(convention="mistral"), Matching(("heron*",)))
PROFILES = (FALCON, HERON)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class Asked:
    """Known models of one backend, under a clock that only the test moves."""

    def __init__(self, overrides: Overrides | None = None) -> None:
        self.clock = Clock()
        self.backend = ScriptedBackend()
        self.models = KnownModels(
            self.backend, PROFILES, overrides or Overrides(), clock=self.clock
        )

    def profile(self, model: str = "m") -> str:
        return asyncio.run(self.models.look_up(model)).recognition.profile.name

    def serves(self, name: str, *, is_provisional: bool = False) -> None:
        self.backend.description = Description((name,), is_provisional=is_provisional)


def test_the_backend_is_asked_once_for_each_model() -> None:
    asked = Asked()
    assert [asked.profile("falcon-7b"), asked.profile("falcon-7b")] == ["falcon", "falcon"]
    assert asked.profile("heron-2") == "heron"
    assert asked.backend.described == ["falcon-7b", "heron-2"]


@pytest.mark.parametrize(("told", "known"), [(None, 2048), (4096, 4096)])
def test_a_window_that_the_backend_hides_is_that_of_the_settings(
    told: int | None, known: int
) -> None:
    """As transformers serve does, which reads on beyond it and writes nonsense."""
    backend = ScriptedBackend(description=Description(("m",), window=told))
    models = KnownModels(backend, PROFILES, window_tokens=2048)
    assert asyncio.run(models.look_up("m")).window == known


class SlowBackend(ScriptedBackend):
    """A backend that describes nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_describe = asyncio.Event()

    async def describe(self, model: str) -> Description:
        described = await super().describe(model)
        await self.may_describe.wait()
        return described


async def test_a_crowd_that_comes_first_asks_once_and_whoever_leaves_ends_it_for_nobody() -> None:
    backend = SlowBackend()
    models = KnownModels(backend, PROFILES)
    first, *others = (asyncio.create_task(models.look_up("falcon-7b")) for _ in range(20))
    other = asyncio.create_task(models.look_up("heron-2"))
    await asyncio.sleep(0)
    first.cancel()
    backend.may_describe.set()
    found = await asyncio.gather(*others, other)
    assert [one.recognition.profile.name for one in found] == ["falcon"] * 19 + ["heron"]
    assert backend.described == ["falcon-7b", "heron-2"]
    assert first.cancelled()


def test_what_a_backend_says_of_tools_reaches_the_quirks() -> None:
    asked = Asked()
    asked.backend.description = Description(("heron-2",), takes_tools=True)
    assert asyncio.run(asked.models.look_up("m")).quirks.convention == ""
    other = Asked()
    other.backend.description = Description(("falcon-7b",), takes_tools=False)
    assert asyncio.run(other.models.look_up("m")).quirks.convention == "hermes"


def test_a_server_that_was_started_with_another_model_is_noticed() -> None:
    asked = Asked()
    asked.serves("falcon-7b")
    assert asked.profile() == "falcon"
    asked.serves("heron-2")
    assert asked.profile() == "falcon"
    asked.clock.now += 61
    assert asked.profile() == "heron"


def test_what_a_loading_server_says_is_soon_asked_again() -> None:
    asked = Asked()
    asked.serves("m", is_provisional=True)
    assert asked.profile() == "generic"
    asked.serves("falcon-7b")
    asked.clock.now += 3
    assert asked.profile() == "falcon"


def test_a_server_that_cannot_be_asked_any_more_is_still_known() -> None:
    asked = Asked()
    asked.serves("falcon-7b")
    assert asked.profile() == "falcon"
    asked.serves("m", is_provisional=True)
    asked.clock.now += 61
    assert asked.profile() == "falcon"
    asked.serves("heron-2")
    asked.clock.now += 3
    assert asked.profile() == "heron"


def test_what_replies_have_shown_is_known_until_it_is_another_model() -> None:
    asked = Asked()

    def lasting() -> int:
        return asyncio.run(asked.models.look_up("m")).habit.lasting

    asked.serves("falcon-7b")
    asyncio.run(asked.models.look_up("m")).habit.note(is_shown=True)
    asked.backend.description = Description(("falcon-7b",), window=4096)
    asked.clock.now += 61
    assert lasting() == 3
    asked.serves("heron-2")
    asked.clock.now += 61
    assert lasting() == 0


@pytest.mark.deep
def test_clients_that_make_up_names_fill_no_memory() -> None:
    asked = Asked()
    for number in range(1000):
        asked.profile(f"falcon-{number}")
    asked.profile("falcon-999")
    assert len(asked.backend.described) == 1000
    asked.profile("falcon-1")
    assert len(asked.backend.described) == 1001


def test_what_was_recognised_is_logged_once_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.profiles.known_models")
    asked = Asked()
    asked.profile("falcon-7b")
    asked.profile("unheard-of")
    asked.clock.now += 61
    asked.profile("falcon-7b")
    assert [record.getMessage() for record in caplog.records] == [
        'model \'falcon-7b\': profile falcon (name "falcon-7b" matches "falcon*")',
        "model 'unheard-of': no known profile matches; generic profile (see 'temper models')",
    ]


async def test_nobody_goes_on_looking_once_it_is_closed() -> None:
    backend = SlowBackend()
    models = KnownModels(backend, PROFILES)
    await models.close()
    looking = asyncio.create_task(models.look_up("falcon-7b"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await models.close()
    with pytest.raises(asyncio.CancelledError):
        await looking


def test_what_a_model_has_earned_changes_how_it_is_asked() -> None:
    class Earned(TunedSettings):
        def of(self, known: KnownModel) -> Tuned:
            return {"profile": {"tools_in_prompt": "json", "effort": "low"}}

    backend = ScriptedBackend(description=Description(("falcon-7b",), window=4096))
    known = asyncio.run(KnownModels(backend, PROFILES, tuned=Earned()).look_up("m"))
    assert (known.quirks.convention, known.overrides.effort, known.window) == ("json", "low", 4096)
    assert known.tuned == Earned().of(known)
    early = ScriptedBackend(description=Description(("falcon-7b",), is_provisional=True))
    assert not asyncio.run(KnownModels(early, PROFILES, tuned=Earned()).look_up("m")).tuned
