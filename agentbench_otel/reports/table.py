"""The report as a table for a terminal."""

from io import StringIO
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentbench_otel.measurement.aggregate import TIMES, aggregate
from agentbench_otel.records.results import CycleReport, RunResult, Status
from agentbench_otel.reports import words

_WIDTH = 1_000  # rich cuts cells to fit; a terminal may wrap a line, but a number must never be cut


def render_table(report: CycleReport, *, has_color: bool) -> str:
    stream = StringIO()
    console = Console(
        file=stream,
        width=_WIDTH,
        force_terminal=has_color,
        no_color=not has_color,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )
    for target, runs in groupby(report.runs, key=lambda run: (run.target, run.model, run.mock)):
        name, model, is_mock = target
        mock_words = " · scripted mock" if is_mock else ""
        console.print(Text(words.printable(f"{name} · {model}{mock_words} · times in ms")), soft_wrap=True)
        console.print(_runs_table(list(runs)))
    _print_aggregates(console, report)
    for run in report.runs:
        _print_notes(console, "failed", words.run_label(run), list(words.problems(run)))
    for run in report.runs:
        _print_notes(console, "warning", words.run_label(run), list(words.warnings(run)))
    console.print(Text(words.summary(report)))
    return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())


def _runs_table(runs: list[RunResult]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, column in enumerate(words.COLUMNS):
        is_text = position < words.TEXT_COLUMNS
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for run in runs:
        style = "red" if run.status is Status.FAILED else "dim" if run.warmup else None
        table.add_row(*words.run_cells(run), style=style)
    return table


def _print_aggregates(console: Console, report: CycleReport) -> None:
    lines = aggregate(report.runs)
    if not lines:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, column in enumerate(("median (min–max), ms", "passed", *TIMES.values())):
        table.add_column(column, justify="left" if position == 0 else "right", no_wrap=True)
    for line in lines:
        cells = [
            f"{words.ms(spread.median_ms)} ({words.ms(spread.min_ms)}–{words.ms(spread.max_ms)})"
            if (spread := line.spreads.get(field))
            else "n/a"
            for field in TIMES
        ]
        table.add_row(words.aggregate_label(line), f"{line.passed}/{line.n}", *cells)
    console.print()
    console.print(table)
    for line in lines:
        _print_notes(console, "warning", words.aggregate_label(line), list(line.warnings))
    console.print()


def _print_notes(console: Console, what: str, label: str, notes: list[str]) -> None:
    """One line of what it is about, then one per note."""
    if notes:
        console.print(Text(f"{what}: {label}"), soft_wrap=True)
    for note in notes:
        console.print(Text(f"  {note}"), soft_wrap=True)
