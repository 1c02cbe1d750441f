"""``measure``: the numbers again, from a file of spans alone."""

import sys
from pathlib import Path

import click

from agentbench_otel.cli.output import deliver, exit_code, format_option, output_option, tell


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@format_option
@output_option
def measure(*, file: Path, format_name: str, output: Path | None) -> None:
    """Recompute the results of `once --spans FILE` from its spans and print the same report.

    Every time, count, token total and the overlap are computed anew. Not recomputed but printed as the run
    span records them: status, error, semantic failures and warnings, because judging a run takes the texts of
    its answers, and spans carry no content. Spans of other scopes (a server that joined the trace) are
    ignored and counted on stderr.
    """
    from agentbench_otel import app
    from agentbench_otel.reports.atomic_file import AtomicFile
    from agentbench_otel.reports.spans_file import measure_file

    measured = measure_file(file)
    if measured.foreign_count:
        tell(f"{file}: ignored {measured.foreign_count} span(s) of other scopes")
    report = app.make_report(
        measured.runs,
        is_mock=all(run.mock for run in measured.runs),
        started_at=measured.runs[0].started_at,
        finished_at=measured.finished_at,
    )
    if output is None:
        deliver(report, format_name, None)
    else:
        with AtomicFile(output) as report_file:
            deliver(report, format_name, report_file)
    sys.exit(exit_code(report))
