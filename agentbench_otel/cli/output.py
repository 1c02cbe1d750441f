"""What the report commands share: the formats and the way out."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from pydantic import BaseModel

    from agentbench_otel.records.results import CycleReport
    from agentbench_otel.reports.atomic_file import AtomicFile

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = ("table", "json", "markdown", "junit")


def format_choice(*formats: str, meaning: str) -> Callable[[Command], Command]:
    """The option ``--format``; the first of its formats is the default."""
    return click.option(
        "--format", "format_name", type=click.Choice(formats), default=formats[0], show_default=True, help=meaning
    )


format_option = format_choice(*FORMATS, meaning="Of the report.")
output_option = click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Write the report to this file instead of stdout; it is there whole or not at all.",
)


def tell(text: str, *, nl: bool = True) -> None:
    """On stderr; where nobody reads it any more, the work goes on and the report is kept."""
    try:
        click.echo(text, nl=nl, err=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """What is still buffered goes nowhere, or Python would fail once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def to_json(document: "BaseModel") -> str:
    """Indented JSON; characters that a terminal would obey are escaped, which JSON allows in any text."""
    text = document.model_dump_json(indent=2)
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text) + "\n"


def render(report: "CycleReport", format_name: str, *, is_for_terminal: bool) -> str:
    if format_name == "json":
        return to_json(report)
    if format_name == "markdown":
        from agentbench_otel.reports.markdown import render_markdown

        return render_markdown(report)
    if format_name == "junit":
        from agentbench_otel.reports.junit import render_junit

        return render_junit(report)
    from agentbench_otel.reports.table import render_table

    return render_table(report, has_color=is_for_terminal and sys.stdout.isatty())


def write_stdout(text: str) -> None:
    """Raises:
    InputError: What stdout leads to can't take it, as a full disk.
    """
    from agentbench_otel.errors import InputError

    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        raise  # click ends quietly when a pager has gone
    except OSError as error:
        _discard(sys.stdout)
        raise InputError(f"stdout: can't be written: {error.strerror}") from None


def deliver(report: "CycleReport", format_name: str, file: "AtomicFile | None") -> None:
    """Write the report to the file, or to stdout without one."""
    text = render(report, format_name, is_for_terminal=file is None)
    if file is None:
        write_stdout(text)
    else:
        file.write(text)


def exit_code(report: "CycleReport") -> int:
    """1 when a run failed by a bug of ours, 3 when one failed, else 0."""
    if any(run.error is not None and run.error.kind == "internal" for run in report.runs):
        return 1
    return 3 if report.summary.failed else 0
