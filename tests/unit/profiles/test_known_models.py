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


class QueriedModels:
    """A `KnownModels` with a scripted backend and a clock that the test sets."""

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


def test_the_backend_is_queried_once_per_model() -> None:
    backend = QueriedModels()
    assert [backend.profile("falcon-7b"), backend.profile("falcon-7b")] == ["falcon", "falcon"]
    assert backend.profile("heron-2") == "heron"
    assert backend.backend.described == ["falcon-7b", "heron-2"]


@pytest.mark.parametrize(("reported", "known"), [(None, 2048), (4096, 4096)])
def test_the_configured_window_is_used_if_the_backend_reports_no_window(
    reported: int | None, known: int
) -> None:
    """`transformers serve` reports no window, and generates nonsense after the last position."""
    backend = ScriptedBackend(description=Description(("m",), window=reported))
    models = KnownModels(backend, PROFILES, window_tokens=2048)
    assert asyncio.run(models.look_up("m")).window == known


class SlowBackend(ScriptedBackend):
    """A backend that delays its description until an event."""

    def __init__(self) -> None:
        super().__init__()
        self.may_describe = asyncio.Event()

    async def describe(self, model: str) -> Description:
        described = await super().describe(model)
        await self.may_describe.wait()
        return described


async def test_canceling_one_of_several_requests_does_not_cancel_their_shared_lookup() -> None:
    backend = SlowBackend()
    models = KnownModels(backend, PROFILES)
    first, *others = (asyncio.create_task(models.look_up("falcon-7b")) for _ in range(20))
    other = asyncio.create_task(models.look_up("heron-2"))
    await asyncio.sleep(0)
    first.cancel()
    backend.may_describe.set()
    known_models = await asyncio.gather(*others, other)
    assert [model.recognition.profile.name for model in known_models] == ["falcon"] * 19 + ["heron"]
    assert backend.described == ["falcon-7b", "heron-2"]
    assert first.cancelled()


def test_a_convention_is_used_if_the_backend_reports_that_it_takes_no_tools() -> None:
    backend = QueriedModels()
    backend.backend.description = Description(("heron-2",), takes_tools=True)
    assert asyncio.run(backend.models.look_up("m")).quirks.convention == ""
    other = QueriedModels()
    other.backend.description = Description(("falcon-7b",), takes_tools=False)
    assert asyncio.run(other.models.look_up("m")).quirks.convention == "hermes"


def test_after_a_minute_the_backend_is_queried_again_and_another_model_is_recognized() -> None:
    backend = QueriedModels()
    backend.serves("falcon-7b")
    assert backend.profile() == "falcon"
    backend.serves("heron-2")
    assert backend.profile() == "falcon"
    backend.clock.now += 61
    assert backend.profile() == "heron"


def test_after_a_provisional_description_the_backend_is_queried_again_within_seconds() -> None:
    backend = QueriedModels()
    backend.serves("m", is_provisional=True)
    assert backend.profile() == "generic"
    backend.serves("falcon-7b")
    backend.clock.now += 3
    assert backend.profile() == "falcon"


def test_the_profile_does_not_change_while_the_description_is_provisional() -> None:
    backend = QueriedModels()
    backend.serves("falcon-7b")
    assert backend.profile() == "falcon"
    backend.serves("m", is_provisional=True)
    backend.clock.now += 61
    assert backend.profile() == "falcon"
    backend.serves("heron-2")
    backend.clock.now += 3
    assert backend.profile() == "heron"


def test_the_observed_reasoning_habit_is_reset_only_if_the_model_changes() -> None:
    backend = QueriedModels()

    def expected_replies() -> int:
        return asyncio.run(backend.models.look_up("m")).habit.expected_replies

    backend.serves("falcon-7b")
    asyncio.run(backend.models.look_up("m")).habit.note(is_shown=True)
    backend.backend.description = Description(("falcon-7b",), window=4096)
    backend.clock.now += 61
    assert expected_replies() == 3
    backend.serves("heron-2")
    backend.clock.now += 61
    assert expected_replies() == 0


@pytest.mark.deep
def test_an_early_model_is_queried_again_after_a_thousand_models() -> None:
    backend = QueriedModels()
    for number in range(1000):
        backend.profile(f"falcon-{number}")
    backend.profile("falcon-999")
    assert len(backend.backend.described) == 1000
    backend.profile("falcon-1")
    assert len(backend.backend.described) == 1001


def test_the_profile_of_a_model_is_logged_once_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxy.profiles.known_models")
    backend = QueriedModels()
    backend.profile("falcon-7b")
    backend.profile("unheard-of")
    backend.clock.now += 61
    backend.profile("falcon-7b")
    assert [record.getMessage() for record in caplog.records] == [
        'model \'falcon-7b\': profile falcon (name "falcon-7b" matches "falcon*")',
        "model 'unheard-of': no known profile matches; generic profile (see 'temper models')",
    ]


async def test_calling_close_cancels_running_lookups() -> None:
    backend = SlowBackend()
    models = KnownModels(backend, PROFILES)
    await models.close()
    lookup = asyncio.create_task(models.look_up("falcon-7b"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await models.close()
    with pytest.raises(asyncio.CancelledError):
        await lookup


def test_tuned_settings_apply_unless_the_description_of_the_model_is_provisional() -> None:
    class TunedStub(TunedSettings):
        def of(self, known: KnownModel) -> Tuned:
            return {"profile": {"tools_in_prompt": "json", "effort": "low"}}

    backend = ScriptedBackend(description=Description(("falcon-7b",), window=4096))
    known = asyncio.run(KnownModels(backend, PROFILES, tuned=TunedStub()).look_up("m"))
    assert (known.quirks.convention, known.overrides.effort, known.window) == ("json", "low", 4096)
    assert known.tuned == TunedStub().of(known)
    provisional = ScriptedBackend(description=Description(("falcon-7b",), is_provisional=True))
    assert not asyncio.run(KnownModels(provisional, PROFILES, tuned=TunedStub()).look_up("m")).tuned
