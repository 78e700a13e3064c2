import pytest

from tests.fakes.ailing import Ailment, examined


async def test_a_server_that_loads_for_ever_is_not_examined_further() -> None:
    found = await examined(Ailment.LOADS_FOR_EVER)
    assert found["readiness"].status == "fail"
    assert "loading" in found["readiness"].summary
    assert "version" not in found


@pytest.mark.parametrize(
    ("ailment", "said"),
    [(Ailment.NONE, "has its model loaded"), (Ailment.SLEEPS, "loads its model on demand")],
)
async def test_a_server_that_sleeps_is_ready(ailment: Ailment, said: str) -> None:
    found = await examined(ailment)
    assert found["readiness"].status == "ok"
    assert said in found["readiness"].summary


async def test_a_web_page_is_no_server_for_models() -> None:
    found = await examined(Ailment.IS_A_WEB_PAGE)
    assert found["version"].status == "fail"
    assert "window" not in found


async def test_a_temper_is_known_for_one() -> None:
    found = await examined(Ailment.IS_TEMPER)
    assert found["version"].status == "warn"
    assert found["version"].summary == (
        "this is a Temper in front of llama.cpp, which is checked through it"
    )


async def test_a_small_window_is_told_before_an_agent_finds_out() -> None:
    found = await examined(Ailment.SMALL_WINDOW)
    assert found["window"].status == "warn"
    assert "4096" in found["window"].summary


async def test_a_window_below_the_wanted_one_is_a_failure() -> None:
    found = await examined(Ailment.NONE, {"context": {"window_tokens": 20000}})
    assert found["window"].status == "fail"
    assert "16384" in found["window"].summary
    assert "20000" in found["window"].summary


async def test_a_template_without_tools_is_noticed() -> None:
    found = await examined(Ailment.IGNORES_TOOLS)
    assert found["chat template"].status == "fail"
    told = await examined(Ailment.IGNORES_TOOLS, {"profile": {"tools_in_prompt": "hermes"}})
    assert told["chat template"].status == "warn"
    assert "hermes" in told["chat template"].summary


@pytest.mark.parametrize("ailment", [Ailment.OPEN_TO_PAGES, Ailment.OPEN_TO_NAMES])
async def test_a_server_that_web_pages_can_use_is_noticed(ailment: Ailment) -> None:
    found = await examined(ailment)
    assert found["web pages"].status == "warn"
    assert "--api-key" in found["web pages"].remedy


async def test_a_missing_key_is_named() -> None:
    """vLLM with --api-key says no more than that."""
    found = await examined(Ailment.WANTS_KEY)
    assert found["version"].summary == "the server requires a key: /v1/models returned Unauthorized"
    assert found["version"].remedy == "set backend.api_key"
    assert "window" not in found


async def test_remedies_name_the_options_of_the_engine_that_is_there() -> None:
    found = await examined(Ailment.IS_VLLM)
    assert "--max-model-len 8192" in found["window"].remedy
    assert "--enable-prompt-tokens-details" in found["prompt cache"].summary
    assert found["disconnect"].status == "ok"
    assert "-c 8192" in (await examined(Ailment.SMALL_WINDOW))["window"].remedy
