"""The pages in a real browser, with the policy that the daemon sends: nothing is blocked, nothing runs over."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from agentbench_otel import app
from agentbench_otel.daemon.pages import render_problem, render_run, render_status
from agentbench_otel.daemon.view import DaemonView, TargetView
from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.ports import ChatClient, Clock
from agentbench_otel.providers.lively_mock import LivelyChatClient
from agentbench_otel.records.cycles import SeriesOverview
from agentbench_otel.records.results import RunFault, Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.runner import RunPlan
from tests.support.browser import Browser, Page, find_browser, measured, measuring, pages_served
from tests.support.history import NOW, a_run, a_writer
from tests.support.recorded_runs import Recorded, record_runs
from tests.support.results import a_result

pytestmark = pytest.mark.stack

NONCE = "cGFnZXM"
CSP = f"default-src 'none'; style-src 'nonce-{NONCE}'"
NARROW = 400
LONG = "x" * 400
_WRITING_S = 120.0  # 10,000 runs take half a minute on a busy machine
SERIES = [("local", case_id, mode) for case_id in CaseId for mode in Mode]
LAYOUT = {
    "shown_width": "page.documentElement.clientWidth",
    "needed_width": "page.documentElement.scrollWidth",
    "margin": "getComputedStyle(page.body).marginLeft",  # 8px without our style
}


@pytest.fixture(scope="module")
def browser() -> Browser:
    browser = find_browser()
    if browser is not None:
        return browser
    reason = "no Chromium is installed"
    if os.environ.get("AGENTBENCH_REQUIRE_STACK") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def parallel() -> Recorded:
    """A run whose handlers overlapped, with the delays of a real endpoint."""
    config = app.mock_config()
    plan = RunPlan(
        target=config.targets[0], case_id=CaseId.PARALLEL_VOLUME_SCHEDULE, mode=Mode.DUAL_AGENT, iteration=1
    )

    def make_client(plan: RunPlan, clock: Clock) -> ChatClient:
        return LivelyChatClient(app.make_mock_client(plan, clock), clock, Random(7))

    (recorded,) = record_runs(config, [plan], make_client)
    return recorded


def a_view() -> DaemonView:
    target = TargetView(
        name="local",
        model=LONG,
        next_cycle_at=NOW + timedelta(minutes=3),
        interval_s=300.0,
        is_running=True,
        stretch=4,
        is_budget_exhausted=True,
    )
    return DaemonView(
        version="0.9.1",
        started_at=NOW,
        is_mock=True,
        config_file=f"/etc/{LONG}.yaml",
        last_reload_problem=LONG,
        targets=[target],
        series=SERIES,
    )


def overview_after(run_count: int, file: Path) -> Sequence[SeriesOverview]:
    """What a real history says after so many runs; every 50th failed."""
    error = RunFault(kind="connect_error", message=LONG)
    runs = []
    for number in range(run_count):
        _, case_id, mode = SERIES[number % len(SERIES)]
        ended = (
            {"status": Status.FAILED, "error": error} if number % 50 == 49 else {"visible_ttft_ms": 100.0 + number}
        )
        runs.append(a_run(number - run_count, case_id=case_id, mode=mode, **ended))
    with a_writer(file) as writer:
        for run in runs:
            writer.accept(run, ())
        assert writer.wait_until_written(_WRITING_S)  # closing it would give up the rest without a word
    return HistoryReader(file).overview(since=NOW - timedelta(days=1), points=100)


@pytest.mark.parametrize("run_count", [0, 1, 10_000])
def test_the_status_page_holds_any_number_of_runs(browser: Browser, tmp_path: Path, run_count: int) -> None:
    overview = overview_after(run_count, tmp_path / "history.db")
    html = render_status(a_view(), overview, NOW, NONCE)
    counts = {**LAYOUT, "rows": "page.querySelectorAll('.series tbody tr').length", "text": "page.body.innerText"}
    told = shown(browser, html, width=NARROW, expressions=counts)
    assert told["rows"] == len(SERIES)
    heading = {0: "No run yet", 1: "1 of 1 series passed", 10_000: "11 of 12 series passed"}[run_count]
    assert heading in str(told["text"])


def test_the_run_page_draws_the_overlap(browser: Browser, parallel: Recorded) -> None:
    html = render_run(parallel.result, parallel.spans, datetime.now(UTC), NONCE)
    for width in (NARROW, 1280):
        told = shown(
            browser,
            html,
            width=width,
            expressions={
                **LAYOUT,
                "text": "page.body.innerText",
                "shades": "[...page.querySelectorAll('.shade')].map(one => one.getBoundingClientRect().width)",
                "bars": "[...page.querySelectorAll('.bar')].map(one => one.getBoundingClientRect().width)",
            },
        )
        assert parallel.result.overlap_ms
        assert f"{parallel.result.overlap_ms:.3f} ms" in str(told["text"])
        shades, bars = told["shades"], told["bars"]
        assert isinstance(shades, list)
        assert max(shades) > 5  # pixels: to be seen, not only there
        assert isinstance(bars, list)
        assert all(bar > 0 for bar in bars)


def test_texts_without_a_place_to_break_do_not_widen_any_page(browser: Browser) -> None:
    failed = a_result(
        status=Status.FAILED,
        target=LONG,
        model=LONG,
        error=RunFault(kind="connect_error", message=LONG),
        warnings=(LONG,),
        event_names=(LONG, LONG),
        model_calls=a_result().model_calls * 9,
    )
    for html in (render_run(failed, None, NOW, NONCE), render_problem(LONG, LONG, NONCE)):
        shown(browser, html, width=NARROW, expressions=LAYOUT)


def test_what_scrolls_sideways_can_be_reached_with_the_keyboard(browser: Browser) -> None:
    html = render_run(a_result(model_calls=a_result().model_calls * 9), None, NOW, NONCE)
    scrolling = (
        "[...page.querySelectorAll('*')].filter(one => one.scrollWidth > one.clientWidth + 1"
        " && getComputedStyle(one).overflowX === 'auto').map(one => one.tabIndex)"
    )
    told = shown(browser, html, width=NARROW, expressions={**LAYOUT, "tab_indexes": scrolling})
    assert told["tab_indexes"] == [0]


def test_the_browser_does_complain_when_the_policy_forbids_something(browser: Browser) -> None:
    html = render_problem("title", "words", "another-nonce")
    with pages_served({"/": Page(html=html, csp=CSP)}) as url:
        (complaint,) = browser.visit(url).console
    assert "Content Security Policy" in complaint


def test_the_measure_does_see_a_page_that_runs_over(browser: Browser) -> None:
    html = render_problem("title", "words", NONCE).replace("<h1>", '<svg width="700" height="9"></svg><h1>')
    with pytest.raises(AssertionError, match="needs 7"):
        shown(browser, html, width=NARROW, expressions=LAYOUT)


def shown(browser: Browser, html: str, *, width: int, expressions: dict[str, str]) -> dict[str, object]:
    """Open the page alone and ``width`` wide. It must not complain, and not be wider than that."""
    pages = {
        "/": Page(html=html, csp=CSP),
        "/measure": measuring("/", width=width, expressions=expressions),
    }
    with pages_served(pages) as url:
        alone, around = browser.visit(f"{url}/", width=width), browser.visit(f"{url}/measure")
    assert alone.console == around.console == ()
    told = measured(around)
    assert told["margin"] == "0px"
    assert told["needed_width"] <= told["shown_width"] <= width, f"the page needs {told['needed_width']} px"
    return told
