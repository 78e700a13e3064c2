import pytest

from proxy.doctor.target import Severity
from tests.fakes.ailing import Ailment, examined


@pytest.mark.parametrize(
    ("ailment", "title", "status", "summary"),
    [
        (Ailment.NEVER_CALLS, "forced call", "fail", "no valid call"),
        (Ailment.CALLS_LATE, "forced call", "warn", "2 attempts"),
        (Ailment.BREAKS_OFF, "forced call", "fail", "closed the connection"),
        (Ailment.NEVER_LETS_GO, "disconnect", "fail", "keeps generating"),
        (Ailment.CACHES_NOTHING, "prompt cache", "warn", "0 of"),
        (Ailment.MISCOUNTS, "token count", "warn", "server reported"),
        (Ailment.CUTS_IN_SILENCE, "overflow", "fail", "truncated silently"),
        (Ailment.FAILS_ODDLY, "overflow", "warn", "too much for me"),
    ],
)
async def test_each_defect_of_a_server_is_found_by_a_check_whose_remedy_says_what_to_do(
    ailment: Ailment, title: str, status: Severity, summary: str
) -> None:
    result = (await examined(ailment))[title]
    assert result.status is status
    assert summary in result.summary
    assert result.remedy


async def test_the_checks_of_prompt_cache_and_token_count_are_skipped_if_no_reply_is_complete() -> (
    None
):
    results = await examined(Ailment.BREAKS_OFF)
    assert results["prompt cache"].status == "skipped"
    assert results["token count"].status == "skipped"


async def test_the_checks_of_a_healthy_model_return_measured_values() -> None:
    results = await examined(Ailment.TELLS_TIMES)
    assert results["forced call"].measured == {"calls": "at once", "engine_parses_calls": True}
    assert results["prompt cache"].measured == {"caches_prompts": True}
    assert results["token count"].measured == {"counts_exactly": True}
    assert results["speed"].summary == "prompt: 900 tokens/s, generation: 35 tokens/s"
    assert results["speed"].measured == {"reads_per_second": 900.4, "writes_per_second": 35.3}


async def test_the_checks_of_a_defective_model_also_return_measured_values() -> None:
    measured = (await examined(Ailment.CALLS_LATE))["forced call"].measured
    assert measured == {"calls": "attempt 2", "engine_parses_calls": True}
    assert (await examined(Ailment.NEVER_CALLS))["forced call"].measured == {"calls": "never"}
    cached = (await examined(Ailment.CACHES_NOTHING))["prompt cache"].measured
    assert cached == {"caches_prompts": False}


async def test_only_the_generation_speed_is_measured_for_a_server_that_reports_no_timings() -> None:
    measured = (await examined(Ailment.NONE))["speed"].measured
    assert measured.keys() == {"writes_per_second"}


async def test_the_generation_speed_of_a_short_reply_is_not_measured() -> None:
    assert (await examined(Ailment.SAYS_LITTLE))["speed"].status == "skipped"
    result = (await examined(Ailment.SAYS_LITTLE_AND_TELLS_TIMES))["speed"]
    assert result.summary == "prompt: 900 tokens/s; the reply was too short to measure"
    assert result.measured == {"reads_per_second": 900.4}


async def test_constraints_that_a_server_ignores_are_listed_in_a_warning() -> None:
    well = (await examined(Ailment.NONE))["constraints"]
    assert well.status == "ok"
    assert well.measured["engine_honours"] == [
        "schema_beside_tools",
        "schema",
        "white_space",
        "usage",
    ]
    result = (await examined(Ailment.BINDS_NOTHING))["constraints"]
    assert result.status == "warn"
    assert result.summary.startswith("enforced: usage; ignored: required, named,")
    assert result.measured["engine_honours"] == ["usage"]
