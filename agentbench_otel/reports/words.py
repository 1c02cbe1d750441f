"""How values are written for people, the same in every report."""

from collections.abc import Iterator

from agentbench_otel.measurement.aggregate import Aggregate
from agentbench_otel.records.results import CycleReport, RunResult

COLUMNS = (
    "case",
    "mode",
    "status",
    "visible TTFT",
    "token TTFT",
    "elapsed",
    "stream",
    "consumer",
    "turn wall",
    "tokens",
    "tools",
    "overlap",
)
"""Times in ms."""

TEXT_COLUMNS = 3  # the first ones; the others are figures


def ms(value: float | None) -> str:
    """``n/a`` is "not measured"; it is never written as 0."""
    if value is None:
        return "n/a"
    return f"{value:.2f}" if value < 100 else f"{value:.1f}"


def ms_unit(value: float | None) -> str:
    return "n/a" if value is None else f"{ms(value)} ms"


def printable(text: str) -> str:
    """What a server said, fit for a terminal: control characters are escaped, not obeyed."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def count(value: int | None) -> str:
    return "n/a" if value is None else str(value)


def yes_no(value: bool | None) -> str:
    return "–" if value is None else "yes" if value else "no"


def run_cells(run: RunResult) -> tuple[str, ...]:
    """The cells of one run, by `COLUMNS`."""
    return (
        run.case_id.value,
        run.mode.value,
        f"{run.status.value} (warm-up)" if run.warmup else run.status.value,
        ms(run.visible_ttft_ms),
        ms(run.token_ttft_ms),
        ms(run.provider_await_ms),
        ms(run.provider_stream_ms),
        ms(run.consumer_ms),
        ms(run.turn_wall_time_ms),
        count(run.total_tokens),
        count(run.tool_count),
        yes_no(run.parallel_events_overlapped),
    )


def run_label(run: RunResult) -> str:
    return printable(f"{run.target} {run.case_id.value} {run.mode.value} #{run.iteration}")


def problems(run: RunResult) -> Iterator[str]:
    """Why the run failed, one sentence each; none for a run that passed."""
    if run.error is not None:
        yield printable(f"{run.error.kind}: {run.error.message}")
    for failure in run.semantic_failures:
        yield printable(f"{failure.kind.value}: {failure.message}")


def warnings(run: RunResult) -> Iterator[str]:
    return map(printable, run.warnings)


def summary(report: CycleReport) -> str:
    """``12 attempted, 12 passed, 0 failed``."""
    told = report.summary
    return f"{told.attempted} attempted, {told.passed} passed, {told.failed} failed"


def aggregate_label(line: Aggregate) -> str:
    return printable(f"{line.target} {line.case_id.value} {line.mode.value}")
