"""The dashboard in a real browser, with a real llama-server and the demonstration's model."""

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from proxy.conversation.json import JsonObject
from temper_evals.demo import scenarios
from temper_evals.demo.scenarios import SCENARIOS, request_for
from temper_evals.demo.scripted_model import build_scripted_model
from tests.browser.conftest import FOREVER, Open
from tests.fakes.command import running_temper
from tests.fakes.downloading_server import downloading_server
from tests.timeouts import TIMEOUT_SECONDS

pytestmark = pytest.mark.browser

CHAT = "/v1/chat/completions"
LEAKED, FENCED, WRONG_TYPE, UNKNOWN, NOT_ALLOWED, NARRATED = (
    scenario.prompt for scenario in SCENARIOS
)


@pytest.fixture(scope="module")
def temper(llama_server: tuple[str, str]) -> Iterator[str]:
    """The URL of a Temper without keys that stores exchanges."""
    url, key = llama_server
    environment = {
        "TEMPER_BACKEND__API_KEY": key,
        "TEMPER_RECORDING__KEEP_BYTES": "50000000",
        "TEMPER_CONTEXT__WINDOW_TOKENS": "4096",
    }
    with running_temper("--backend-url", url, environment=environment) as temper:
        yield temper


def ask(url: str, body: JsonObject, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{url}{CHAT}", json=body, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False
    )


@contextlib.contextmanager
def stuck(url: str) -> Iterator[list[str]]:
    """Send a request that never ends, in a thread; yields a list that gets the response."""
    got: list[str] = []

    def read() -> None:
        body = {**request_for(FOREVER, stream=True), "max_tokens": 1_000_000}
        asking = httpx.stream("POST", f"{url}{CHAT}", json=body, timeout=None, trust_env=False)  # noqa: S113
        with contextlib.suppress(httpx.HTTPError), asking as response:
            got.append("".join(response.iter_text())[-500:])

    reading = threading.Thread(target=read)
    reading.start()
    try:
        yield got
    finally:
        reading.join(TIMEOUT_SECONDS)
        assert not reading.is_alive()


def test_a_rescued_call_is_shown_as_the_model_wrote_it_and_as_returned(
    temper: str, open_page: Open
) -> None:
    seen = open_page(temper)
    seen.page.wait_for_selector("text=No requests yet")
    seen.picture("empty")
    assert ask(temper, request_for(WRONG_TYPE)).status_code == 200
    row = seen.page.locator("tbody tr", has_text="repaired").first
    row.wait_for()
    assert "A call of get_weather written as text (hermes) was recognized." in row.inner_text()
    row.click()
    detail = seen.page.locator(".detail")
    detail.locator(".said.got mark").first.wait_for()
    text = detail.inner_text()
    assert "/days of get_weather was converted to the right type." in text
    assert '<tool_call>{"name": "get_weather"' in text
    assert 'get_weather({"city":"Cork","days":3})' in text.replace("\n", "")
    seen.page.locator(".facts").scroll_into_view_if_needed()
    with seen.page.expect_download() as download:
        seen.page.click("text=Download for temper replay")
    line = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert line["verdict"]["outcome"] == "repaired"


def test_retried_request_shows_the_nudge(temper: str, open_page: Open) -> None:
    assert ask(temper, request_for(NOT_ALLOWED)).status_code == 200
    seen = open_page(temper)
    seen.page.locator("tbody tr", has_text="retried").first.click()
    nudge = seen.page.locator(".said.nudge").first
    nudge.wait_for()
    assert "Invalid arguments" in nudge.inner_text()
    assert seen.page.locator(".timeline li", has_text="Attempt").count() == 2
    assert "grammar" not in seen.page.locator(".timeline").inner_text()


def test_canceling_a_stuck_request_on_the_page_frees_its_slot(temper: str, open_page: Open) -> None:
    seen = open_page(temper)
    with stuck(temper) as got:
        row = seen.page.locator("tbody tr.live")
        row.locator("text=generating").wait_for()
        busy = seen.page.locator(".slots i.busy")
        busy.first.wait_for()
        row.click()
        seen.page.click("text=Cancel this request")
        seen.page.click("text=Click again to cancel")
        seen.page.locator(".detail h2", has_text="disconnected").wait_for()
    assert "An operator of this server canceled the request." in "".join(got)
    busy.first.wait_for(state="detached")


def test_loading_model_is_shown_with_its_waiting_requests(tmp_path: Path, open_page: Open) -> None:
    closed = tmp_path / "closed"  # while this file exists, the model does not load
    closed.touch()
    source = tmp_path / "source.gguf"
    build_scripted_model(source, scenarios.SCRIPTS)
    program = downloading_server(tmp_path, source)
    environment = {"TEMPER_MODEL__SERVER": str(program)}
    with (
        running_temper("--hf", "somebody/tiny", environment=environment) as url,
        ThreadPoolExecutor() as clients,
    ):
        page = open_page(url).page
        page.locator(".model-card", has_text="loading").wait_for()
        answer = clients.submit(ask, url, request_for(LEAKED))
        row = page.locator("tbody tr")
        row.filter(has_text="waiting for the model to load").wait_for()
        closed.unlink()
        row.filter(has_text="repaired").wait_for()
        page.locator(".model-card", has_text="ready").wait_for()
        assert answer.result().status_code == 200


def test_a_compacted_conversation_is_shown(temper: str, open_page: Open) -> None:
    rounds: list[JsonObject] = []
    for number in range(16):
        call: JsonObject = {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Lyon"}'},
        }
        rounds += [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "rain, wind. " * 120},
        ]
    body = request_for(LEAKED)
    question: JsonObject = {"role": "user", "content": LEAKED}
    answer = ask(temper, {**body, "messages": [question, *rounds, question]})
    assert answer.status_code == 200, answer.text
    seen = open_page(temper)
    seen.page.locator("tbody tr").first.click()
    seen.page.locator(".detail", has_text="removed:").wait_for()
    seen.page.locator(".window-bar").scroll_into_view_if_needed()
    seen.picture("window")


@pytest.mark.parametrize(
    ("name", "width", "height", "scheme"),
    [("wide", 1440, 900, "light"), ("dark", 1440, 900, "dark"), ("narrow", 360, 740, "light")],
)
def test_every_view_fits_its_screen(
    *, name: str, width: int, height: int, scheme: str, temper: str, open_page: Open
) -> None:
    for prompt in (LEAKED, FENCED, UNKNOWN, NARRATED, "Hello."):
        ask(temper, request_for(prompt))
    seen = open_page(temper, width=width, height=height, scheme=scheme)
    with stuck(temper):
        seen.page.locator("tr.live", has_text="generating").wait_for()
        seen.page.wait_for_selector("canvas")
        seen.page.locator(".model-card", has_text="ready").wait_for()
        fits = "document.documentElement.scrollWidth <= innerWidth"
        assert seen.page.evaluate(fits)
        seen.picture(name)
        seen.page.locator("tbody tr", has_text="retried").first.click()
        seen.page.locator(".said.got").wait_for()
        assert seen.page.evaluate(fits)
        seen.picture(f"{name}-request")
        seen.page.keyboard.press("Escape")
        seen.page.locator("tr.live").click()
        seen.page.click("text=Cancel this request")
        seen.page.click("text=Click again to cancel")
        seen.page.locator(".detail h2", has_text="disconnected").wait_for()


def test_the_page_asks_for_the_api_key_once_and_rejects_a_wrong_key(
    llama_server: tuple[str, str], open_page: Open, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("anna annas-key\nbob bobs-key\n", encoding="utf-8")
    url, key = llama_server
    environment = {
        "TEMPER_BACKEND__API_KEY": key,
        "TEMPER_SERVER__API_KEY": "operators-key",
        "TEMPER_SERVER__API_KEYS_FILE": str(keys),
        "TEMPER_UI__OWNERS": '["anna"]',
    }
    with running_temper("--backend-url", url, environment=environment) as temper:
        ask(temper, request_for(LEAKED), authorization="Bearer bobs-key")
        seen = open_page(temper)
        for wrong, problem in (("wrong", "API key"), ("bobs-key", "key of bob may not open")):
            seen.page.fill("#key", wrong)
            seen.page.keyboard.press("Enter")
            seen.page.locator(".problem", has_text=problem).wait_for()
        seen.picture("key")
        seen.page.fill("#key", "annas-key")
        seen.page.keyboard.press("Enter")
        row = seen.page.locator("tbody tr", has_text="repaired")
        row.wait_for()
        assert row.locator("td.client").inner_text() == "bob"
        seen.page.reload()
        row.wait_for()
        # the browser stores the key only for this tab
        assert seen.page.evaluate("localStorage.length + document.cookie.length") == 0


def test_page_reconnects_to_a_restarted_server(
    llama_server: tuple[str, str], open_page: Open
) -> None:
    url, key = llama_server
    # an open page must not use up the grace period
    environment = {"TEMPER_BACKEND__API_KEY": key, "TEMPER_SERVER__GRACE_SECONDS": "600"}
    with running_temper("--backend-url", url, environment=environment) as temper:
        ask(temper, request_for(LEAKED))
        seen = open_page(temper)
        seen.page.locator("tbody tr", has_text="repaired").wait_for()
    seen.page.locator(".link.lost").wait_for()
    command = ("--backend-url", url, "--port", temper.rpartition(":")[2])
    with running_temper(*command, environment=environment):
        seen.page.locator(".link.live").wait_for()
        seen.page.wait_for_selector("text=No requests yet")


def test_low_priority_requests_are_shown_last_in_the_queue(
    llama_server: tuple[str, str], open_page: Open
) -> None:
    url, key = llama_server
    environment = {"TEMPER_BACKEND__API_KEY": key, "TEMPER_BACKEND__PARALLEL_REQUESTS": "1"}
    with (
        running_temper("--backend-url", url, environment=environment) as temper,
        ThreadPoolExecutor() as clients,
    ):
        seen = open_page(temper)
        rows = seen.page.locator("tbody tr")
        with stuck(temper):
            rows.filter(has_text="generating").wait_for()
            answers = []
            for priority, status in (
                ("low", "Position 1 of 1 in the queue, low priority."),
                ("low", "Position 2 of 2 in the queue, low priority."),
                ("normal", "Position 1 of 3 in the queue."),
                (
                    "high",
                    "Position 2 of 4 in the queue.",
                ),  # treated as normal: no setting permits high
            ):
                headers = {"x-temper-priority": priority}
                answers.append(clients.submit(ask, temper, request_for(LEAKED), **headers))
                rows.first.filter(has_text=status).wait_for()
            assert rows.locator("td.news").all_inner_texts() == [
                "Position 2 of 4 in the queue.",
                "Position 1 of 4 in the queue.",
                "Position 4 of 4 in the queue, low priority.",
                "Position 3 of 4 in the queue, low priority.",
                "",
            ]
            seen.picture("queue")
            rows.nth(2).click()
            seen.page.locator(".detail p", has_text="Position 4 of 4 in the queue").wait_for()
            seen.page.keyboard.press("Escape")
            seen.page.locator("tr.live", has_text="generating").click()
            seen.page.click("text=Cancel this request")
            seen.page.click("text=Click again to cancel")
        assert [answer.result().status_code for answer in answers] == [200] * 4
        seen.page.locator("tr.live").first.wait_for(state="detached")
