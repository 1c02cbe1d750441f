"""The pages for people: what they say, what they draw, and that nobody else's text becomes markup."""

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentbench_otel import app, names
from agentbench_otel.daemon.pages import render_problem, render_run, render_status
from agentbench_otel.daemon.pages.numbers import call_rows, number_groups
from agentbench_otel.daemon.pages.sparkline import HEIGHT, WIDTH, draw_sparkline
from agentbench_otel.daemon.pages.waterfall import BANDS_DRAWN, bands, draw_handlers, draw_turn, round_step
from agentbench_otel.daemon.pages.words import lasting, relative, share, stamp
from agentbench_otel.daemon.view import DaemonView, TargetView
from agentbench_otel.measurement.intervals import Interval, merge
from agentbench_otel.measurement.tree import read_run
from agentbench_otel.records.cycles import SeriesOverview
from agentbench_otel.records.results import (
    FailureKind,
    ModelCallResult,
    RunFault,
    RunResult,
    SemanticFailure,
    Status,
)
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import SpanEvent, SpanRecord
from agentbench_otel.runner import RunPlan
from tests.support.clock import MS, T0_NS
from tests.support.recorded_runs import Recorded, record_runs
from tests.support.results import FAULT, a_result
from tests.support.spans import RunSpans, item

NOW = datetime(2026, 12, 1, 10, 40, 22, tzinfo=UTC)
NONCE = "bm9uY2U"
SERIES = ("local", CaseId.ORDINARY_CHAT, Mode.DUAL_AGENT)


def a_target(**changes: Any) -> TargetView:
    fields: dict[str, Any] = {
        "name": "local",
        "model": "tiny",
        "next_cycle_at": NOW + timedelta(seconds=90),
        "interval_s": 300.0,
        "is_running": False,
        "stretch": 1,
        "is_budget_exhausted": False,
    }
    return TargetView(**{**fields, **changes})


def a_view(**changes: Any) -> DaemonView:
    fields: dict[str, Any] = {
        "version": "0.9.1",
        "started_at": NOW - timedelta(hours=30),
        "is_mock": False,
        "config_file": "agentbench.yaml",
        "last_reload_problem": None,
        "targets": [a_target()],
        "series": [SERIES],
    }
    return DaemonView(**{**fields, **changes})


def an_overview(**changes: Any) -> SeriesOverview:
    fields: dict[str, Any] = {
        "target": SERIES[0],
        "case_id": SERIES[1],
        "mode": SERIES[2],
        "last": a_result(visible_ttft_ms=10.0, started_at=NOW - timedelta(minutes=2)),
        "visible_ttft_ms": (11.0, None, 10.0),
        "counted": 3,
        "passed": 2,
        "last_failure": None,
    }
    return SeriesOverview(**{**fields, **changes})


def status_text(view: DaemonView, *overview: SeriesOverview) -> str:
    return text_of(render_status(view, overview, NOW, NONCE))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.texts.append(data)

    def close(self) -> None:
        super().close()
        assert not self._open


def read(page: str) -> _Reader:
    """Fails when an element is not closed, or by another's tag."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader


def text_of(page: str) -> str:
    return " ".join(" ".join(read(page).texts).split())


def links_of(page: str) -> list[str]:
    return [str(attributes["href"]) for tag, attributes in read(page).tags if tag == "a"]


def tags_of(page: str, tag: str) -> list[dict[str, str | None]]:
    return [attributes for name, attributes in read(page).tags if name == tag]


# --- every page --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parallel() -> Recorded:
    """A run of the mock whose two handlers overlapped."""
    config = app.mock_config()
    plan = RunPlan(
        target=config.targets[0], case_id=CaseId.PARALLEL_VOLUME_SCHEDULE, mode=Mode.DUAL_AGENT, iteration=1
    )
    (recorded,) = record_runs(config, [plan])
    return recorded


@pytest.fixture(scope="module")
def all_pages(parallel: Recorded) -> list[str]:
    failed = a_result(status=Status.FAILED, error=FAULT)
    return [
        render_status(a_view(), [], NOW, NONCE),
        render_status(a_view(is_mock=True), [an_overview(last_failure=failed)], NOW, NONCE),
        render_run(parallel.result, parallel.spans, NOW, NONCE),
        render_run(failed, None, NOW, NONCE),
        render_problem("No such run", "It is not in the history.", NONCE),
    ]


def test_no_page_has_a_script_an_inline_style_or_anything_from_elsewhere(all_pages: Sequence[str]) -> None:
    for page in all_pages:
        tags = read(page).tags
        assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in tags}
        for _, attributes in tags:
            assert not [name for name in attributes if name == "style" or name.startswith("on") or name == "src"]
        assert [attributes for tag, attributes in tags if tag == "style"] == [{"nonce": NONCE}]
        assert "url(" not in page
        assert "@import" not in page


def test_every_page_can_be_walked_with_a_keyboard(all_pages: Sequence[str]) -> None:
    for page in all_pages:
        assert links_of(page)[0] == "#main"
        assert [attributes["id"] for attributes in tags_of(page, "main")] == ["main"]
        assert len(tags_of(page, "h1")) == 1
        assert all("scope" in attributes for attributes in tags_of(page, "th"))
        ids = [attributes["id"] for _, attributes in read(page).tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        named = {
            attributes["aria-labelledby"] for _, attributes in read(page).tags if "aria-labelledby" in attributes
        }
        assert named <= set(ids)


def test_every_page_leads_to_the_metrics_and_the_runs(all_pages: Sequence[str]) -> None:
    for page in all_pages:
        assert {"/", "/metrics", "/api/v1/runs"} <= set(links_of(page))


@pytest.mark.parametrize(
    "evil", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a\x1b[31m\u202eb"]
)
def test_other_peoples_texts_stay_texts(evil: str) -> None:
    failed = a_result(
        status=Status.FAILED,
        model=evil,
        target=evil,
        run_id=evil,
        error=RunFault(kind="connect_error", message=evil),
        semantic_failures=(SemanticFailure(kind=FailureKind.ANSWER_COUNT, message=evil),),
        warnings=(evil,),
    )
    view = a_view(targets=[a_target(model=evil)], last_reload_problem=evil, config_file="agentbench.yaml")
    past = an_overview(last=failed, last_failure=failed)
    pages = [
        render_run(failed, None, NOW, NONCE),
        render_status(view, [past, an_overview(target=evil, last=failed)], NOW, NONCE),
        render_problem(evil, evil, NONCE),
    ]
    for page in pages:
        assert not {"script", "img"} & {tag for tag, _ in read(page).tags}
        assert not re.search("[\x1b\u202e]", page)
        assert "alert(1)" in page or "\\x1b[31m\\u202eb" in page


# --- the status page ---------------------------------------------------------------------------------------


def test_before_the_first_run_the_page_says_what_will_come_and_when() -> None:
    text = status_text(a_view())
    assert "No run yet" in text
    assert "its next cycle starts in 1 min 30 s 2026-12-01 10:41:52 UTC" in text
    assert "has not run yet" in text


def test_without_a_target_the_page_says_so() -> None:
    assert "No target is configured in agentbench.yaml" in status_text(a_view(targets=[], series=[]))


def test_a_series_shows_its_last_run_its_rate_and_its_line() -> None:
    page = render_status(a_view(), [an_overview()], NOW, NONCE)
    text = text_of(page)
    assert "1 of 1 series passed their last run" in text
    assert "✓ passed 2 min ago 2026-12-01 10:38:22 UTC" in text
    assert "10.00 ms" in text
    assert "2/3 66 %" in text
    (drawing,) = tags_of(page, "svg")
    assert drawing["role"] == "img"
    assert drawing["aria-label"] == (
        "visible TTFT of the newest 3 runs, 1 of them without a value: lowest 10.00 ms, highest 11.00 ms,"
        " last 10.00 ms"
    )
    assert f"/runs/{an_overview().last.run_id}" in links_of(page)


def test_a_failed_series_shows_why_and_leads_to_the_run() -> None:
    failures = tuple(SemanticFailure(kind=FailureKind.ANSWER_COUNT, message=f"reason {n}") for n in range(4))
    failed = a_result(
        run_id="the-failed", status=Status.FAILED, error=FAULT, semantic_failures=failures, started_at=NOW
    )
    page = render_status(a_view(), [an_overview(last=failed, last_failure=failed)], NOW, NONCE)
    text = text_of(page)
    assert "0 of 1 series passed their last run" in text
    assert "✗ failed" in text
    assert "connect_error: local can't be reached answer_count: reason 0 answer_count: reason 1 and 2 more" in text
    assert links_of(page).count("/runs/the-failed") == 2


def test_a_long_reason_is_cut_on_the_status_page_and_whole_on_the_runs() -> None:
    failed = a_result(status=Status.FAILED, error=RunFault(kind="connect_error", message="x" * 1000))
    assert "x" * 200 not in status_text(a_view(), an_overview(last_failure=failed))
    assert "x" * 1000 in text_of(render_run(failed, None, NOW, NONCE))


def test_what_was_not_measured_is_never_0() -> None:
    last = a_result(visible_ttft_ms=None, total_tokens=None, started_at=NOW)
    text = status_text(a_view(), an_overview(last=last, visible_ttft_ms=(None,), counted=0, passed=0))
    assert "n/a" in text
    assert "no run" in text
    assert "0.00" not in text
    assert "0/0" not in text


def test_a_series_that_left_the_config_stands_apart() -> None:
    text = status_text(a_view(), an_overview(target="gone"))
    assert "No run yet" in text
    assert "No longer in the config" in text
    assert "gone · ordinary_chat" in text


def test_the_state_of_a_target_is_told_in_words() -> None:
    usual = status_text(a_view())
    told: dict[str, dict[str, Any]] = {
        "● running": {"is_running": True},
        "only one of 4 cycles runs": {"stretch": 4},
        "The day's budget is used up": {"is_budget_exhausted": True},
        "no cycle is planned": {"next_cycle_at": None},
        "every 1 h 30 min": {"interval_s": 5400.0},
    }
    for words, changes in told.items():
        assert words not in usual
        assert words in status_text(a_view(targets=[a_target(**changes)]))


def test_the_state_of_the_daemon_is_told_in_words() -> None:
    usual = render_status(a_view(), [], NOW, NONCE)
    assert "agentbench-otel 0.9.1 · started 1 d 6 h ago, 2026-11-30 04:40:22 UTC" in text_of(usual)
    assert tags_of(usual, "meta")[-1] == {"http-equiv": "refresh", "content": "30"}
    other = render_status(a_view(is_mock=True, last_reload_problem="agentbench.yaml:3: no"), [], NOW, NONCE)
    for words in ("mock", "The last reload was refused; the config before is in force agentbench.yaml:3: no"):
        assert words not in text_of(usual)
        assert words in text_of(other)


# --- the line ----------------------------------------------------------------------------------------------


def test_a_line_has_gaps_where_a_run_had_no_value() -> None:
    line = draw_sparkline((1.0, 2.0, None, None, 3.0, None))
    assert line is not None
    assert [len(piece) for piece in line.lines] == [2, 1]
    assert line.last is None


def test_a_line_without_a_value_is_none() -> None:
    assert draw_sparkline(()) is None
    assert draw_sparkline((None, None)) is None


def test_a_line_is_of_the_newest_runs() -> None:
    line = draw_sparkline([float(n) for n in range(10_000)])
    assert line is not None
    assert (line.lowest_ms, line.highest_ms) == (9_880, 9_999)
    assert [len(piece) for piece in line.lines] == [120]


@given(st.lists(st.none() | st.floats(min_value=0, max_value=1e9), min_size=1, max_size=100))
def test_every_point_of_a_line_lies_inside_it(values: list[float | None]) -> None:
    line = draw_sparkline(values)
    points = [] if line is None else [point for piece in line.lines for point in piece]
    assert len(points) == sum(value is not None for value in values)
    assert all(0 <= point.x <= WIDTH and 0 <= point.y <= HEIGHT for point in points)


# --- the waterfall -----------------------------------------------------------------------------------------


def a_turn(*, handlers: Sequence[tuple[int, int]] = (), awaits: int = 2) -> list[SpanRecord]:
    """A turn of 100 ms: a call of 80 ms with its phases, the first visible message at 30 ms."""
    run = RunSpans()
    run.run(T0_NS, T0_NS + 110 * MS)
    visible = SpanEvent(name=names.FIRST_VISIBLE_MESSAGE_EVENT, time_ns=T0_NS + 30 * MS)
    run.turn(T0_NS, T0_NS + 100 * MS, events=[visible])
    step_ns = 80 * MS // awaits
    run.call(
        T0_NS,
        T0_NS + 80 * MS,
        [item(T0_NS + n * step_ns, T0_NS + n * step_ns + step_ns // 2) for n in range(awaits)],
        phases={"connect": (T0_NS + MS, T0_NS + 3 * MS), "first_byte": (T0_NS + 4 * MS, T0_NS + 20 * MS)},
    )
    for start_ms, end_ms in handlers:
        run.handler(T0_NS + start_ms * MS, T0_NS + end_ms * MS)
    return run.spans


def test_bars_stand_where_their_spans_were() -> None:
    waterfall = draw_turn(read_run(a_turn(handlers=[(80, 95)])))
    assert waterfall is not None
    assert [(row.name, row.from_ms, row.took_ms) for row in waterfall.rows] == [
        ("invoke_agent agentbench", 0, 100),
        ("chat tiny", 0, 80),
        ("connect", 1, 2),
        ("first_byte", 4, 16),
        ("provider awaits", 0, 40),
        ("execute_tool tool", 80, 15),
    ]
    assert [[(bar.x, bar.width) for bar in row.bars] for row in waterfall.rows] == [
        [(0, 100)],
        [(0, 80)],
        [(1, 2)],
        [(4, 16)],
        [(0, 20), (40, 20)],
        [(80, 15)],
    ]
    assert waterfall.first_visible is not None
    assert (waterfall.first_visible.x, waterfall.first_visible.at_ms) == (30, 30)
    assert [(tick.x, tick.words) for tick in waterfall.ticks] == [(n, str(n)) for n in (0, 20, 40, 60, 80, 100)]


def test_the_overlap_is_where_both_handlers_ran() -> None:
    waterfall = draw_turn(read_run(a_turn(handlers=[(80, 90), (85, 99)])))
    assert waterfall is not None
    assert [(bar.x, bar.width) for bar in waterfall.overlaps] == [(85, 5)]
    assert waterfall.overlap_ms == 5
    text = text_of(render_run(a_result(), a_turn(handlers=[(80, 90), (85, 99)]), NOW, NONCE))
    assert "overlap of the handlers 5.000 ms" in text


def test_handlers_one_after_the_other_do_not_overlap() -> None:
    page = render_run(a_result(), a_turn(handlers=[(80, 90), (90, 99)]), NOW, NONCE)
    assert "the handlers did not overlap 0.000 ms" in text_of(page)
    assert "shade" not in {attributes.get("class") for attributes in tags_of(page, "rect")}


def test_one_handler_has_no_overlap_to_tell_of() -> None:
    text = text_of(render_run(a_result(), a_turn(handlers=[(80, 90)]), NOW, NONCE))
    assert "overlap of" not in text
    assert "did not overlap" not in text


def test_handlers_that_are_short_beside_the_turn_are_drawn_again_enlarged() -> None:
    enlarged = draw_handlers(read_run(a_turn(handlers=[(90, 91), (90, 91)])))
    assert enlarged is not None
    assert [round(row.bars[0].width) for row in enlarged.rows] == [91, 91]
    assert enlarged.first_visible is None
    assert draw_handlers(read_run(a_turn(handlers=[(60, 91)]))) is None
    assert draw_handlers(read_run(a_turn())) is None


def test_the_enlarged_drawing_keeps_the_clock_of_the_turn() -> None:
    enlarged = draw_handlers(read_run(a_turn(handlers=[(90, 91), (90, 92)])))
    assert enlarged is not None
    assert [row.from_ms for row in enlarged.rows] == [90, 90]
    assert [tick.words for tick in enlarged.ticks] == ["90.0", "90.5", "91.0", "91.5", "92.0"]


def test_a_real_run_shows_the_overlap_that_its_result_reports(parallel: Recorded) -> None:
    assert parallel.result.overlap_ms
    page = render_run(parallel.result, parallel.spans, NOW, NONCE)
    assert f"overlap of the handlers {parallel.result.overlap_ms:.3f} ms" in text_of(page)
    assert f"overlap_ms {parallel.result.overlap_ms:.3f} ms" in text_of(page).replace(
        "overlap_ms", "overlap_ms "
    ).replace("  ", " ")
    assert "shade" in {attributes.get("class") for attributes in tags_of(page, "rect")}
    assert f"/api/v1/runs/{parallel.result.run_id}/spans" in links_of(page)
    assert parallel.result.trace_id in page


def test_a_stream_of_100_000_awaits_is_a_few_hundred_shapes() -> None:
    spans = a_turn(awaits=100_000)
    start_s = time.process_time()
    page = render_run(a_result(), spans, NOW, NONCE)
    assert time.process_time() - start_s < 10  # a quadratic way would take minutes
    assert "100000 awaits in" in page
    assert len(tags_of(page, "rect")) <= BANDS_DRAWN + 20
    assert len(page) < 200_000


def test_closed_gaps_between_awaits_are_told() -> None:
    assert "120 awaits in 1 band, gaps under 0.417 ms closed" in text_of(
        render_run(a_result(), a_turn(awaits=120), NOW, NONCE)
    )
    assert "closed" not in text_of(render_run(a_result(), a_turn(awaits=20), NOW, NONCE))


intervals = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(1, 500)).map(lambda pair: Interval(pair[0], sum(pair))),
    max_size=60,
)


@example([Interval(0, 1), Interval(11, 12)], 10)
@given(intervals, st.integers(1, 2_000))
def test_bands_cover_the_awaits_and_close_only_small_gaps(given_intervals: list[Interval], gap_ns: int) -> None:
    drawn = bands(given_intervals, smallest_gap_ns=gap_ns)
    assert merge([*drawn, *given_intervals]) == drawn
    assert all(after.start_ns - before.end_ns >= gap_ns for before, after in pairwise(drawn))
    wide = [pair for pair in pairwise(merge(given_intervals)) if pair[1].start_ns - pair[0].end_ns >= gap_ns]
    assert len(drawn) == len(wide) + bool(given_intervals)
    assert {band.start_ns for band in drawn} <= {interval.start_ns for interval in given_intervals}
    assert len(drawn) <= 10_500 // gap_ns + 1


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_a_step_of_the_axis_is_round_and_near(at_least: float) -> None:
    step = round_step(at_least)
    assert at_least <= step <= at_least * 2.5 * (1 + 1e-9)
    assert f"{step:.0e}"[0] in "125"


def test_calls_beyond_what_can_be_drawn_are_counted() -> None:
    run = RunSpans()
    run.run(T0_NS, T0_NS + 100 * MS)
    run.turn(T0_NS, T0_NS + 100 * MS)
    for _ in range(25):
        run.call(T0_NS, T0_NS + MS, [item(T0_NS, T0_NS + MS)])
    assert "Not drawn: 5 model calls." in text_of(render_run(a_result(), run.spans, NOW, NONCE))


def test_without_spans_the_page_says_so_and_shows_the_numbers() -> None:
    page = render_run(a_result(), None, NOW, NONCE)
    assert "are not kept, or no longer (history.keep_spans); its numbers are." in text_of(page)
    assert "visible_ttft_ms" in page
    assert not tags_of(page, "svg")


def test_spans_that_are_not_all_there_are_not_drawn() -> None:
    spans = [span for span in a_turn() if span.name != names.AWAIT_SPAN]
    text = text_of(render_run(a_result(), spans, NOW, NONCE))
    assert "can't be drawn: call 1 says it had 2 awaits, but 0 are there" in text


def test_a_run_that_ended_before_its_turn_has_nothing_to_draw() -> None:
    run = RunSpans()
    run.run()
    assert "ended before its turn began" in text_of(render_run(a_result(), run.spans, NOW, NONCE))


def test_a_turn_without_any_length_is_drawn() -> None:
    run = RunSpans()
    run.run(T0_NS, T0_NS)
    run.turn(T0_NS, T0_NS)
    waterfall = draw_turn(read_run(run.spans))
    assert waterfall is not None
    assert waterfall.rows[0].bars[0].width > 0


def test_a_span_that_failed_says_so_in_words() -> None:
    run = RunSpans()
    run.run(T0_NS, T0_NS + 10 * MS)
    run.turn(T0_NS, T0_NS + 10 * MS)
    run.call(T0_NS, T0_NS + MS, error="the <peer> hung up")
    assert "chat tiny ✗ the <peer> hung up" in text_of(render_run(a_result(), run.spans, NOW, NONCE))


# --- the numbers -------------------------------------------------------------------------------------------


def test_every_number_of_a_result_stands_with_its_source() -> None:
    labels = {"schema_version", "iteration"}
    numbers = {
        field
        for field, info in RunResult.model_fields.items()
        if info.annotation in (int, int | None, float | None, bool | None, tuple[float, ...])
        and field not in labels
    }
    shown = {number.field: number.source for group in number_groups(a_result()) for number in group.numbers}
    assert numbers <= set(shown)
    assert all(shown.values())


def test_every_field_of_a_call_stands_with_its_source() -> None:
    shown = {row.field: row.source for row in call_rows(a_result())}
    head = {"call_index", "call_kind", "usage"}
    assert set(ModelCallResult.model_fields) - head <= set(shown)
    assert all(shown.values())


def test_a_source_names_the_event_that_the_number_is_read_from() -> None:
    shown = {number.field: number for group in number_groups(a_result()) for number in group.numbers}
    assert shown["visible_ttft_ms"].source == f"turn start → event {names.FIRST_VISIBLE_MESSAGE_EVENT}"
    assert shown["turn_wall_time_ms"].value == "12.000 ms"
    assert shown["total_tokens"].value == "n/a"
    assert shown["fallback_count"].value == "0"


def test_a_call_says_how_it_ended() -> None:
    failed = a_result().model_calls[0].model_copy(update={"error": FAULT})
    result = a_result(model_calls=(a_result().model_calls[0], failed))
    rows = {row.field: row.values for row in call_rows(result)}
    assert rows["error"] == ("none", "✗ connect_error: local can't be reached")
    assert rows["prompt_tokens"] == ("n/a", "n/a")


# --- words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.9, "59 s"),
        (90, "1 min 30 s"),
        (300, "5 min"),
        (3_599, "59 min"),
        (5_400, "1 h 30 min"),
        (86_400, "1 d"),
        (270_000, "3 d 3 h"),
    ],
)
def test_a_length_of_time_in_words(seconds: float, words: str) -> None:
    assert lasting(seconds) == words


def test_a_moment_is_told_from_now_and_in_utc() -> None:
    east = NOW.astimezone(timezone(timedelta(hours=8)))
    assert stamp(east) == "2026-12-01 10:40:22 UTC"
    assert relative(NOW + timedelta(seconds=45), NOW) == "in 45 s"
    assert relative(NOW - timedelta(minutes=12), NOW) == "12 min ago"
    assert relative(NOW, NOW) == "now"


def test_a_share_is_100_only_when_all_are_in_it() -> None:
    assert share(999, 1000) == "99 %"
    assert share(3, 3) == "100 %"
    assert share(0, 0) == "n/a"
