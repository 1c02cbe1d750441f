"""The page of one run: its waterfall, its numbers and where each comes from."""

from collections.abc import Sequence
from datetime import datetime

from agentbench_otel.daemon.pages.numbers import call_rows, number_groups
from agentbench_otel.daemon.pages.template import render
from agentbench_otel.daemon.pages.waterfall import draw_handlers, draw_turn
from agentbench_otel.errors import MeasurementError
from agentbench_otel.measurement.tree import RunTree, read_run
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.reports.words import problems, warnings


def render_run(run: RunResult, spans: Sequence[SpanRecord] | None, now: datetime, nonce: str) -> str:
    """``spans`` is None when the history has none of the run, or no longer."""
    tree, why_no_waterfall = _read(spans)
    return render(
        "run.html.j2",
        nonce=nonce,
        run=run,
        now=now,
        waterfall=None if tree is None else draw_turn(tree),
        enlarged=None if tree is None else draw_handlers(tree),
        why_no_waterfall=why_no_waterfall,
        span_count=None if spans is None else len(spans),
        problems=tuple(problems(run)),
        warnings=tuple(warnings(run)),
        groups=number_groups(run),
        call_rows=call_rows(run),
    )


def _read(spans: Sequence[SpanRecord] | None) -> tuple[RunTree | None, str]:
    """The tree, or why there is nothing to draw."""
    if spans is None:
        return None, "The spans of this run are not kept, or no longer (history.keep_spans); its numbers are."
    try:
        tree = read_run(spans)
    except MeasurementError as error:
        return None, f"The spans of this run can't be drawn: {error}."
    if tree.turn is None:
        return None, "The run ended before its turn began: there is nothing to draw."
    return tree, ""
