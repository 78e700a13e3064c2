import pytest

from proxy.doctor.finding import Status
from tests.fakes.ailing import Ailment, examined

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("ailment", "title", "status", "words"),
    [
        (Ailment.NEVER_CALLS, "forced call", Status.FAIL, "no valid call"),
        (Ailment.CALLS_LATE, "forced call", Status.WARN, "2 attempts"),
        (Ailment.BREAKS_OFF, "forced call", Status.FAIL, "broke off"),
        (Ailment.NEVER_LETS_GO, "hanging up", Status.FAIL, "keeps its slot busy"),
        (Ailment.CACHES_NOTHING, "prompt cache", Status.WARN, "had 0 of"),
        (Ailment.MISCOUNTS, "token count", Status.WARN, "counted as"),
        (Ailment.CUTS_IN_SILENCE, "overflow", Status.FAIL, "cut off in silence"),
        (Ailment.FAILS_ODDLY, "overflow", Status.WARN, "too much for me"),
    ],
)
async def test_each_ailment_is_found_by_its_check_and_has_a_remedy(
    ailment: Ailment, title: str, status: Status, words: str
) -> None:
    found = (await examined(ailment))[title]
    assert found.status is status
    assert words in found.said
    assert found.remedy


async def test_an_unanswered_prompt_tells_nothing_of_cache_and_count() -> None:
    found = await examined(Ailment.BREAKS_OFF)
    assert found["prompt cache"].status is Status.SKIPPED
    assert found["token count"].status is Status.SKIPPED
