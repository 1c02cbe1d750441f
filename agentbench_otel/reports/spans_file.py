"""The file of spans: written by ``once --spans``, read by ``measure``."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from agentbench_otel import __version__, names
from agentbench_otel.errors import InputError, MeasurementError
from agentbench_otel.measurement.assemble import assemble, to_datetime
from agentbench_otel.measurement.tree import is_span
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.reports.atomic_file import AtomicFile
from agentbench_otel.telemetry.otlp_json import DecodedLine, decode_line, encode_lines

_RESOURCE = {"service.name": "agentbench-otel", "service.version": __version__}


class SpansSink:
    """Writes all spans of each run, uncapped, as OTLP JSON lines.

    Attributes:
        failure: Why the file can't be had, as when the disk is full; the runs go on, their report is kept.
    """

    def __init__(self, file: AtomicFile) -> None:
        self._file = file
        self.failure: InputError | None = None

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        del result
        if self.failure is not None:
            return
        try:
            for line in encode_lines(spans, _RESOURCE):
                self._file.write(line + "\n")
        except InputError as failure:
            self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFile:
    """The runs of a file in the order of their starts. ``foreign_count`` spans of other scopes were ignored."""

    runs: tuple[RunResult, ...]
    finished_at: datetime
    foreign_count: int


def measure_file(path: Path) -> MeasuredFile:
    """Recompute every run of a spans file from its spans alone.

    Raises:
        InputError: Unreadable, cut, no trace data, or without any run; names file and line or run.
    """
    traces, foreign_count = _read_traces(path)
    with_run = {
        trace_id: spans
        for trace_id, spans in traces.items()
        if any(is_span(span, names.RUN_SPAN) for span in spans)
    }
    if not with_run:
        raise InputError(f"{path}: has no {names.RUN_SPAN} span; give a file written by once --spans")
    if incomplete := sorted(set(traces) - set(with_run)):
        raise InputError(
            f"{path}: the trace {incomplete[0]} has spans but no {names.RUN_SPAN}: the file is incomplete"
        )
    runs: list[RunResult] = []
    for trace_id, spans in with_run.items():
        try:
            runs.append(assemble(spans))
        except MeasurementError as error:
            raise InputError(f"{path}: trace {trace_id}: {error}") from None
    runs.sort(key=lambda run: run.started_at)
    finished_ns = max(span.end_ns for spans in with_run.values() for span in spans)
    try:
        finished_at = to_datetime(finished_ns)
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{path}: a span ends at {finished_ns} ns, which is no time") from None
    return MeasuredFile(runs=tuple(runs), finished_at=finished_at, foreign_count=foreign_count)


def _read_traces(path: Path) -> tuple[dict[str, list[SpanRecord]], int]:
    """The spans of our scope by trace, and how many of other scopes there were."""
    traces: dict[str, list[SpanRecord]] = {}
    foreign_count = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    decoded = _decode(path, number, line)
                    foreign_count += decoded.foreign_count
                    for span in decoded.spans:
                        traces.setdefault(span.trace_id, []).append(span)
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: can't be read: it is no UTF-8 text") from None
    return traces, foreign_count


def _decode(path: Path, number: int, line: str) -> DecodedLine:
    try:
        return decode_line(line)
    except ValueError as error:
        state = "can't be read" if line.endswith("\n") else "is cut"
        raise InputError(f"{path}:{number}: the line {state}: {error}") from None
