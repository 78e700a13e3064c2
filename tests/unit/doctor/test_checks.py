from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy.doctor.checks import CHECKS, MACHINE, examine
from proxy.doctor.finding import Examined, Status
from proxy.doctor.target import Target
from proxy.errors import InvalidConfiguration
from proxy.settings import Settings
from tests.fakes.ailing import AilingServer, Ailment, examined
from tests.fakes.loopback import own_address
from tests.fakes.sockets import listening

pytestmark = pytest.mark.anyio


async def test_a_healthy_server_passes_every_check_in_their_order() -> None:
    found = await examined(Ailment.NONE)
    assert list(found) == [*MACHINE, *(check.title for check in CHECKS)]
    of_the_server = [one.status for title, one in found.items() if title not in MACHINE]
    assert of_the_server == [Status.OK] * len(CHECKS), found


async def test_a_server_that_is_not_there_is_one_finding() -> None:
    url = f"http://{own_address()}:9"
    settings = Settings.model_validate({"backend": {"url": url}})
    found = [one async for one in examine(settings)]
    assert found[-1].title == "readiness"
    assert found[-1].finding.status is Status.FAIL
    assert url in found[-1].finding.said


async def test_without_a_server_or_a_model_there_is_nothing_to_examine() -> None:
    with pytest.raises(InvalidConfiguration, match="nothing to serve"):
        _ = [one async for one in examine(Settings())]


async def test_a_key_for_temper_itself_does_not_lock_the_doctor_out() -> None:
    found = await examined(Ailment.NONE, {"server": {"api_key": "secret"}})
    assert found["forced call"].status is Status.OK


async def test_several_models_are_examined_one_after_the_other(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    async with listening(AilingServer(Ailment.NONE).app) as server:
        models = {"good": {"url": server.url}, "bad": {"path": str(broken)}}
        settings = Settings.model_validate({"models": models})
        found = [one async for one in examine(settings)]
    good = [one.finding.status for one in found if one.model == "good"]
    assert good == [Status.OK] * len(CHECKS)
    (bad,) = (one for one in found if one.model == "bad")
    assert (bad.title, bad.finding.status) == ("start", Status.FAIL)
    assert "not a GGUF file" in bad.finding.said


async def test_a_key_out_of_a_file_does_not_lock_the_doctor_out_either(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice sk-1", encoding="utf-8")
    found = await examined(Ailment.NONE, {"server": {"api_keys_file": str(keys)}})
    assert found["forced call"].status is Status.OK


async def test_what_was_found_of_a_model_can_be_kept() -> None:
    kept: list[tuple[str, list[str]]] = []

    def keep(target: Target, found: Sequence[Examined]) -> None:
        kept.append((target.model, [one.title for one in found]))

    for ailment in (Ailment.SMALL_WINDOW, Ailment.LOADS_FOR_EVER):
        async with listening(AilingServer(ailment).app) as server:
            settings = Settings.model_validate({"backend": {"url": server.url}})
            _ = [one async for one in examine(settings, keep=keep)]
    assert kept == [("tiny", [check.title for check in CHECKS])]
