"""Findings of axe-core, the common accessibility checker, on each view of the dashboard."""

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from proxy import facts
from proxy.observability.record import AttemptRecord
from tests.browser.conftest import Open, Stage
from tests.browser.test_page import RECORD, answered, show

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="needs the extra `browser`"
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

SEVERE = ("serious", "critical")


def problems(page: "Page") -> list[str]:
    """Return the severe problems with their elements."""
    report = axe.Axe().run(page).response
    assert len(report["passes"]) > 10  # axe-core has run its rules
    return [
        f"{violation['id']}: {violation['help']} at {node['target']}: {node['failureSummary']}"
        for violation in report["violations"]
        if violation["impact"] in SEVERE
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize(
    ("width", "scheme"), [(1440, "light"), (1440, "dark"), (360, "light"), (360, "dark")]
)
def test_no_view_of_the_dashboard_has_a_severe_accessibility_problem(
    *, width: int, scheme: str, stage: Stage, open_page: Open
) -> None:
    page = open_page(stage.url, width=width, scheme=scheme).page
    page.locator(".headline", has_text="No requests").wait_for()
    assert problems(page) == []
    show(stage, "what was written")
    answered(stage, RECORD)
    page.locator("tbody tr").nth(1).wait_for()
    page.locator(".model-card", has_text="ready").wait_for()
    assert problems(page) == []
    page.locator("tbody tr", has_text="what was written").click()
    page.locator(".said.got").wait_for()
    assert problems(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.locator(".keys").wait_for()
    assert problems(page) == []


def test_axe_reports_a_button_without_a_name(stage: Stage, open_page: Open) -> None:
    page = open_page(stage.url).page
    page.locator(".headline", has_text="No requests").wait_for()
    page.evaluate("document.querySelector('.switch').append(document.createElement('button'))")
    assert [problem.partition(":")[0] for problem in problems(page)] == ["button-name"]


@pytest.mark.parametrize("width", [1280, 360])
def test_a_row_answered_by_a_fallback_names_the_fallback_model(
    width: int, stage: Stage, open_page: Open
) -> None:
    attempts = (*RECORD.attempts, AttemptRecord("fallback", 0.9, 0.3, model="big"))
    record = replace(
        RECORD,
        attempts=attempts,
        facts=(facts.RejectedReply("prose"), facts.FellBack("big", "answered")),
        outcome=facts.ReplyOutcome.FALLBACK,
    )
    answered(stage, record)
    seen = open_page(stage.url, width=width)
    page = seen.page
    page.locator("main", has_text="1 other model").wait_for()
    page.locator("tbody tr").first.click()
    page.locator(".detail", has_text="Attempt 3").wait_for()
    assert "big" in page.locator(".detail").inner_text()
    seen.picture(f"fallback-{width}")
    assert problems(page) == []
