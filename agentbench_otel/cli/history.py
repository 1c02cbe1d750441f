"""``history``: what the daemon has recorded."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentbench_otel.cli.output import deliver, format_choice, output_option, tell, write_stdout
from agentbench_otel.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from agentbench_otel.config.model import History
    from agentbench_otel.history.reader import HistoryReader
    from agentbench_otel.records.results import RunResult

_LINES_PER_WRITE = 100

_COLUMNS = ("run", "started (UTC)", "target", "case", "mode", "status", "visible TTFT", "turn wall", "tokens")
_TEXT_COLUMNS = 6  # the first ones; the others are figures


def _place_options(command: "Callable[..., None]") -> "Callable[..., None]":
    config = click.option(
        "--config", "config_file", type=click.Path(path_type=Path), help="The daemon's config: it names the file."
    )
    database = click.option("--database", type=click.Path(path_type=Path), help="The file, instead of --config.")
    return config(database(command))


@click.group()
def history() -> None:
    """List, show and export the runs that the daemon has recorded, and remove old ones."""


@history.command(name="list")
@_place_options
@click.option("--target", metavar="NAME", help="Only runs of this target.")
@click.option("--case", "case_name", metavar="NAME", help="Only runs of this case.")
@click.option("--mode", "mode_name", metavar="NAME", help="Only runs in this mode.")
@click.option("--status", "status_name", type=click.Choice(("passed", "failed")), help="Only runs that ended so.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Runs at most.")
@format_choice("table", "json", meaning="json has the whole results.")
def list_runs(
    *,
    config_file: Path | None,
    database: Path | None,
    target: str | None,
    case_name: str | None,
    mode_name: str | None,
    status_name: str | None,
    limit: int,
    format_name: str,
) -> None:
    """List runs, the newest first; times are in ms."""
    from agentbench_otel.records.cycles import RunQuery
    from agentbench_otel.records.results import Status
    from agentbench_otel.records.scenario import CaseId, Mode

    query = RunQuery(
        target=target,
        case_id=None if case_name is None else CaseId(_checked("--case", case_name, list(CaseId))),
        mode=None if mode_name is None else Mode(_checked("--mode", mode_name, list(Mode))),
        status=None if status_name is None else Status(status_name),
        limit=limit,
    )
    runs = _reader(config_file, database).runs(query)
    if format_name == "json":
        _write_json(runs)
    elif runs:
        write_stdout(_table([_COLUMNS, *map(_cells, runs)]))
    else:
        tell("no run is recorded that fits")


@history.command()
@click.argument("run_id", metavar="RUN")
@_place_options
@format_choice("table", "json", meaning="Of the report.")
@click.option("--spans", is_flag=True, help="Print its spans instead, as OTLP JSON lines, for `measure`.")
def show(*, run_id: str, config_file: Path | None, database: Path | None, format_name: str, spans: bool) -> None:
    """Show one run as `once` reports it. RUN is its id, or the first six characters of it or more."""
    reader = _reader(config_file, database)
    result = reader.find(run_id)
    if result is None:
        raise InputError(
            f"{run_id}: no run with this id is recorded; give the id, or six characters or more of its beginning"
        )
    if spans:
        _show_spans(reader, result.run_id)
        return
    from agentbench_otel import app

    report = app.make_report(
        [result], is_mock=result.mock, started_at=result.started_at, finished_at=_finished_at(result)
    )
    deliver(report, format_name, None)


@history.command()
@_place_options
@format_choice("jsonl", meaning="A run per line.")
@output_option
def export(*, config_file: Path | None, database: Path | None, format_name: str, output: Path | None) -> None:
    """Write the result of every run as JSON, one line each, the oldest first."""
    del format_name  # there is one
    reader = _reader(config_file, database)
    if output is None:
        for lines in _pieces(reader):
            write_stdout(lines)
        return
    from agentbench_otel.reports.atomic_file import AtomicFile

    with AtomicFile(output) as file:
        for lines in _pieces(reader):
            file.write(lines)


@history.command()
@_place_options
@click.option(
    "--older-than",
    metavar="DURATION",
    help="Remove what started longer ago, for example 30d; instead of keep and keep_spans of the config.",
)
def prune(*, config_file: Path | None, database: Path | None, older_than: str | None) -> None:
    """Remove old runs, cycles and spans now. A daemon does so by itself, and must not run meanwhile."""
    import time

    from agentbench_otel.history.retention import Retention, prune_file

    file = _file(config_file, database)
    if older_than is not None:
        keep_s = keep_spans_s = _seconds(older_than)
    elif config_file is not None:
        settings = _settings(config_file)
        keep_s, keep_spans_s = settings.keep, settings.keep_spans
    else:
        raise click.UsageError("give --older-than DURATION with --database, for example --older-than 30d")
    pruned = prune_file(file, Retention(keep_s=keep_s, keep_spans_s=keep_spans_s), time.time())
    click.echo(
        f"{file}: removed {pruned.runs} run(s), {pruned.cycles} cycle(s) and the spans of {pruned.spans} run(s)"
    )


def _reader(config_file: Path | None, database: Path | None) -> "HistoryReader":
    from agentbench_otel.history.reader import HistoryReader

    return HistoryReader(_file(config_file, database))


def _file(config_file: Path | None, database: Path | None) -> Path:
    if database is not None and config_file is None:
        return database
    if config_file is not None and database is None:
        return Path(_settings(config_file).path)
    raise click.UsageError("give one of --config FILE and --database FILE")


def _settings(config_file: Path) -> "History":
    from agentbench_otel.config.loading import load_config

    return load_config(config_file).history


def _checked(option: str, name: str, allowed: list[str]) -> str:
    from agentbench_otel.config.problems import nearest

    if name not in allowed:
        raise InputError(
            f"{option} {name}: is not known{nearest(name, allowed)}; allowed are {', '.join(allowed)}"
        )
    return name


def _seconds(duration: str) -> int:
    from agentbench_otel.config.rules import duration_seconds

    try:
        return int(str(duration_seconds(duration)))
    except ValueError as problem:
        raise InputError(f"--older-than {duration}: {problem}") from None


def _write_json(runs: "list[RunResult]") -> None:
    import json

    document = {"schema_version": 1, "runs": [run.model_dump(mode="json") for run in runs]}
    write_stdout(json.dumps(document, indent=2) + "\n")


def _cells(run: "RunResult") -> tuple[str, ...]:
    from datetime import UTC

    from agentbench_otel.reports import words

    status = run.status.value if run.error is None else words.printable(run.error.kind)
    return (
        words.printable(run.run_id),
        run.started_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        words.printable(run.target),
        run.case_id.value,
        run.mode.value,
        f"{status} (warm-up)" if run.warmup else status,
        words.ms(run.visible_ttft_ms),
        words.ms(run.turn_wall_time_ms),
        words.count(run.total_tokens),
    )


def _table(rows: "list[tuple[str, ...]]") -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if position < _TEXT_COLUMNS else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def _show_spans(reader: "HistoryReader", run_id: str) -> None:
    from agentbench_otel import __version__
    from agentbench_otel.telemetry.otlp_json import encode_lines

    spans = reader.spans_of(run_id)
    if spans is None:
        raise InputError(f"{run_id}: its spans are no longer kept; history.keep_spans of the config says how long")
    for line in encode_lines(spans, {"service.name": "agentbench-otel", "service.version": __version__}):
        write_stdout(line + "\n")


def _finished_at(run: "RunResult") -> "datetime":
    from datetime import timedelta

    return run.started_at + timedelta(milliseconds=run.turn_wall_time_ms or 0.0)


def _pieces(reader: "HistoryReader") -> "Iterator[str]":
    """The export, some lines at a time."""
    lines: list[str] = []
    for text in reader.documents():
        lines.append(_printable(text) + "\n")
        if len(lines) == _LINES_PER_WRITE:
            yield "".join(lines)
            lines.clear()
    yield "".join(lines)


def _printable(text: str) -> str:
    """JSON allows any character to be escaped; those that a terminal would obey are."""
    import json

    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
