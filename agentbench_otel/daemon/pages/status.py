"""The status page: what is measured, how it went last, what comes next."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from agentbench_otel.daemon.pages.sparkline import HEIGHT, WIDTH, Sparkline, draw_sparkline
from agentbench_otel.daemon.pages.template import render
from agentbench_otel.daemon.pages.words import shortened
from agentbench_otel.daemon.view import DaemonView, TargetView
from agentbench_otel.records.cycles import SeriesOverview
from agentbench_otel.records.results import RunResult, Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.reports.words import problems

_REFRESH_S = 30
_REASONS_SHOWN = 3
_REASON_LENGTH = 160

_SeriesKey = tuple[str, CaseId, Mode]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """A row. ``past`` is None before the first run."""

    target: str
    case_id: CaseId
    mode: Mode
    past: SeriesOverview | None
    sparkline: Sparkline | None
    reasons: tuple[str, ...]
    """Of the last failure; the first ones, shortened: the page of the run has all."""
    more_reasons: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    target: TargetView
    series: tuple[_Series, ...]


def render_status(view: DaemonView, overview: Sequence[SeriesOverview], now: datetime, nonce: str) -> str:
    """``overview`` counts the runs of the last 24 h; what it has beside the configured series is shown apart."""
    past = {(entry.target, entry.case_id, entry.mode): entry for entry in overview}
    configured = dict.fromkeys(view.series)
    sections = [
        _Section(target=target, series=_series_of([key for key in configured if key[0] == target.name], past))
        for target in view.targets
    ]
    lasts = [past[key].last for key in configured if key in past]
    return render(
        "status.html.j2",
        nonce=nonce,
        refresh_s=_REFRESH_S,
        view=view,
        now=now,
        sections=sections,
        former=_series_of([key for key in past if key not in configured], past),
        ran=len(lasts),
        passed=_count_passed(lasts),
        series_count=len(configured),
        spark_width=WIDTH,
        spark_height=HEIGHT,
    )


def _series_of(keys: Iterable[_SeriesKey], past: Mapping[_SeriesKey, SeriesOverview]) -> tuple[_Series, ...]:
    return tuple(_series(key, past.get(key)) for key in keys)


def _series(key: _SeriesKey, past: SeriesOverview | None) -> _Series:
    target, case_id, mode = key
    failure = None if past is None else past.last_failure
    reasons = () if failure is None else tuple(problems(failure))
    return _Series(
        target=target,
        case_id=case_id,
        mode=mode,
        past=past,
        sparkline=None if past is None else draw_sparkline(past.visible_ttft_ms),
        reasons=tuple(shortened(reason, _REASON_LENGTH) for reason in reasons[:_REASONS_SHOWN]),
        more_reasons=max(0, len(reasons) - _REASONS_SHOWN),
    )


def _count_passed(runs: Iterable[RunResult]) -> int:
    return sum(run.status is Status.PASSED for run in runs)
