"""When the daemon hands telemetry over and renders its page, and what it says of a collector in trouble."""

import gc
from collections.abc import Sequence

import pytest

from agentbench_otel.daemon.chores import CollectGarbage, HandOverSpans, PushMetrics, RenderPage
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.telemetry.export import WAITING_LIMIT
from tests.support.results import a_result


class Export:
    """Stands for both exports: what a hand-over meets, and how much waits."""

    def __init__(self) -> None:
        self.waiting_count = 0
        self.problem: str | None = None
        self.deadlines_s: list[float] = []

    def hand_over(self, deadline_s: float) -> None:
        self.deadlines_s.append(deadline_s)
        self.waiting_count = 0


class Page:
    def __init__(self) -> None:
        self.count = 0

    def refresh(self) -> None:
        self.count += 1


def spans_chore(export: Export) -> HandOverSpans:
    return HandOverSpans(export, deadline_s=3.5)  # type: ignore[arg-type]


def test_spans_are_due_as_soon_as_some_wait() -> None:
    export = Export()
    chore = spans_chore(export)
    assert not chore.is_due(0)
    export.waiting_count = 1
    assert chore.is_due(0)
    chore.do(0)
    assert export.deadlines_s == [3.5]
    assert not chore.is_due(1)


def test_spans_are_overdue_after_a_minute_or_when_too_many_wait() -> None:
    export = Export()
    chore = spans_chore(export)
    export.waiting_count = 1
    assert not chore.is_overdue(100)
    assert not chore.is_overdue(160)
    assert chore.is_overdue(161)
    chore.do(161)
    export.waiting_count = WAITING_LIMIT + 1
    assert chore.is_overdue(162)


def test_after_a_failure_the_next_try_waits_longer_each_time_and_a_success_ends_that() -> None:
    export = Export()
    chore = spans_chore(export)
    export.problem = "HTTP 503"
    now_s, waits_s = 0.0, []
    for _ in range(7):
        export.waiting_count = 1
        chore.do(now_s)
        export.waiting_count = 1
        waited_s = next(second for second in range(1000) if chore.is_due(now_s + second))
        waits_s.append(waited_s)
        now_s += waited_s
    assert waits_s == [30, 60, 120, 240, 480, 480, 480]
    export.problem = None
    chore.do(now_s)
    export.waiting_count = 1
    assert chore.is_due(now_s)


def test_too_many_spans_do_not_wait_for_the_next_try() -> None:
    export = Export()
    chore = spans_chore(export)
    export.problem = "HTTP 503"
    chore.do(0)
    export.waiting_count = WAITING_LIMIT + 1
    assert chore.is_due(1)


def test_a_collector_in_trouble_is_told_once_and_again_on_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    export = Export()
    chore = spans_chore(export)
    for problem in ("HTTP 503", "HTTP 503", "HTTP 400", None, None):
        export.problem = problem
        chore.do(0)
    assert [record.getMessage() for record in caplog.records] == [
        "the collector does not take spans: HTTP 503",
        "the collector does not take spans: HTTP 400",
        "the collector takes spans again",
    ]


def test_metrics_are_pushed_at_once_and_then_every_interval() -> None:
    export = Export()
    chore = PushMetrics(export, interval_s=60, deadline_s=3.5)  # type: ignore[arg-type]
    assert chore.is_due(5)
    chore.do(5)
    assert not chore.is_due(64.9)
    assert chore.is_due(65)
    assert not chore.is_overdue(125)
    assert chore.is_overdue(125.1)


def test_a_push_that_failed_is_not_tried_again_at_once() -> None:
    export = Export()
    chore = PushMetrics(export, interval_s=10, deadline_s=3.5)  # type: ignore[arg-type]
    export.problem = "refused"
    chore.do(0)
    assert not chore.is_due(29)
    assert chore.is_due(30)


def accept(chore: RenderPage, result: RunResult | None = None, spans: Sequence[SpanRecord] = ()) -> None:
    chore.accept(result or a_result(), spans)


def test_the_page_is_rendered_first_after_runs_and_at_least_each_minute() -> None:
    page = Page()
    chore = RenderPage(page)  # type: ignore[arg-type]
    assert chore.is_due(0)
    assert chore.is_overdue(0)  # nobody gets an empty page
    chore.do(0)
    assert page.count == 1
    assert not chore.is_due(59)
    assert chore.is_due(60)  # gauges may have vanished
    accept(chore)
    assert not chore.is_due(4)
    assert chore.is_due(5)
    assert not chore.is_overdue(120)
    assert chore.is_overdue(121)
    chore.do(5)
    assert not chore.is_due(10)


@pytest.mark.usefixtures("collector")
def test_full_collections_are_made_in_quiet_moments_only() -> None:
    chore = CollectGarbage()
    chore.take_over()
    young, middle, old = gc.get_threshold()
    assert gc.isenabled()
    assert old > 100_000
    assert young > 0
    assert middle > 0
    assert chore.is_due(0)
    assert not chore.is_overdue(0)
    before = gc.get_stats()[2]["collections"]
    chore.do(0)
    assert gc.get_stats()[2]["collections"] == before + 1
    assert not chore.is_due(29)
    assert chore.is_due(30)
    assert not chore.is_overdue(599)
    assert chore.is_overdue(600)
