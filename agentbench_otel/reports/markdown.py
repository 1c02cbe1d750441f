"""The report as Markdown, for a pull request or a job summary."""

from collections.abc import Iterator, Sequence

from agentbench_otel.measurement.aggregate import TIMES, aggregate
from agentbench_otel.records.results import CycleReport
from agentbench_otel.reports import words


def render_markdown(report: CycleReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: CycleReport) -> Iterator[str]:
    kind = " (scripted mock)" if report.mock else ""
    yield f"## agentbench-otel{kind}: {words.summary(report)}"
    yield ""
    yield from _table(
        ("target", *words.COLUMNS),
        [(words.printable(run.target), *words.run_cells(run)) for run in report.runs],
        text_columns=words.TEXT_COLUMNS + 1,
    )
    yield ""
    yield 'Times in ms; n/a is "not measured".'
    lines = aggregate(report.runs)
    if lines:
        yield ""
        yield from _table(
            ("median (min–max), ms", "passed", *TIMES.values()),
            [
                (
                    words.aggregate_label(line),
                    f"{line.passed}/{line.n}",
                    *(
                        f"{words.ms(spread.median_ms)} ({words.ms(spread.min_ms)}–{words.ms(spread.max_ms)})"
                        if (spread := line.spreads.get(field))
                        else "n/a"
                        for field in TIMES
                    ),
                )
                for line in lines
            ],
            text_columns=1,
        )
    notes = [
        *(_note("**failed**", words.run_label(run), text) for run in report.runs for text in words.problems(run)),
        *(_note("warning", words.run_label(run), text) for run in report.runs for text in words.warnings(run)),
        *(_note("warning", words.aggregate_label(line), text) for line in lines for text in line.warnings),
    ]
    if notes:
        yield ""
        yield from notes


def _note(what: str, label: str, text: str) -> str:
    return f"- {what} {_inline(label)}: {_inline(text)}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|" + "".join(" --- |" if position < text_columns else " ---: |" for position in range(len(header)))
    for row in rows:
        yield f"| {' | '.join(_inline(cell) for cell in row)} |"


def _inline(text: str) -> str:
    """A server's words must not become markup of ours."""
    for char in "\\`*_{}[]<>|":
        text = text.replace(char, "\\" + char)
    return text.replace("\n", " ")
