import pytest

from tests.fakes.ailing import Ailment, examined


async def test_readiness_fails_and_no_more_checks_run_while_the_server_is_loading() -> None:
    results = await examined(Ailment.LOADS_FOR_EVER)
    assert results["readiness"].status == "fail"
    assert "loading" in results["readiness"].summary
    assert "version" not in results


@pytest.mark.parametrize(
    ("ailment", "detail"),
    [(Ailment.NONE, "has its model loaded"), (Ailment.SLEEPS, "loads its model on demand")],
)
async def test_a_server_whose_model_is_loaded_or_asleep_is_ready(
    ailment: Ailment, detail: str
) -> None:
    results = await examined(ailment)
    assert results["readiness"].status == "ok"
    assert detail in results["readiness"].summary


async def test_an_address_that_returns_a_web_page_fails_the_version_check() -> None:
    results = await examined(Ailment.IS_A_WEB_PAGE)
    assert results["version"].status == "fail"
    assert "window" not in results


async def test_another_temper_as_backend_is_a_warning() -> None:
    results = await examined(Ailment.IS_TEMPER)
    assert results["version"].status == "warn"
    assert results["version"].summary == (
        "this is a Temper in front of llama.cpp, which is checked through it"
    )


async def test_a_window_of_4096_tokens_is_a_warning() -> None:
    results = await examined(Ailment.SMALL_WINDOW)
    assert results["window"].status == "warn"
    assert "4096" in results["window"].summary


async def test_a_window_below_the_configured_window_is_a_failure() -> None:
    results = await examined(Ailment.NONE, {"context": {"window_tokens": 20000}})
    assert results["window"].status == "fail"
    assert "16384" in results["window"].summary
    assert "20000" in results["window"].summary


async def test_a_template_without_tools_is_a_failure_unless_the_prompt_describes_tools() -> None:
    results = await examined(Ailment.IGNORES_TOOLS)
    assert results["chat template"].status == "fail"
    described = await examined(Ailment.IGNORES_TOOLS, {"profile": {"tools_in_prompt": "hermes"}})
    assert described["chat template"].status == "warn"
    assert "hermes" in described["chat template"].summary


@pytest.mark.parametrize("ailment", [Ailment.OPEN_TO_PAGES, Ailment.OPEN_TO_NAMES])
async def test_a_server_that_web_pages_can_use_without_a_key_is_a_warning(ailment: Ailment) -> None:
    results = await examined(ailment)
    assert results["web pages"].status == "warn"
    assert "--api-key" in results["web pages"].remedy


async def test_the_remedy_is_to_set_backend_api_key_if_the_server_requires_a_key() -> None:
    """vLLM with --api-key sends only the message `Unauthorized` to a client without a key."""
    results = await examined(Ailment.WANTS_KEY)
    assert (
        results["version"].summary == "the server requires a key: /v1/models returned Unauthorized"
    )
    assert results["version"].remedy == "set backend.api_key"
    assert "window" not in results


async def test_remedies_name_the_options_of_the_detected_engine() -> None:
    results = await examined(Ailment.IS_VLLM)
    assert "--max-model-len 8192" in results["window"].remedy
    assert "--enable-prompt-tokens-details" in results["prompt cache"].summary
    assert results["disconnect"].status == "ok"
    assert "-c 8192" in (await examined(Ailment.SMALL_WINDOW))["window"].remedy
