"""What the daemon takes up again from its history when it starts."""

from collections.abc import Iterable, Mapping

from agentbench_otel.errors import ErrorKind
from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.records.cycles import RunQuery
from agentbench_otel.records.results import RunResult, Status
from agentbench_otel.telemetry.last_runs import SeriesKey, SeriesPast

_RUNS_LOOKED_AT = 20
"""Per series: more failures in a row than that are restored as so many."""


def last_slots(reader: HistoryReader) -> dict[str, float]:
    """The newest slot that ran, of each target, in Unix seconds."""
    return {target: record.slot_at.timestamp() for target, record in reader.last_cycles().items()}


def restored_series(reader: HistoryReader, keys: Iterable[SeriesKey]) -> Mapping[SeriesKey, SeriesPast]:
    """What the gauges of each series said before the restart; series without a run are left out."""
    found = {}
    for key in keys:
        target, case_id, mode = key
        query = RunQuery(target=target, case_id=case_id, mode=mode, limit=_RUNS_LOOKED_AT)
        newest = [run for run in reader.runs(query) if _is_counted(run)]
        if newest:
            passed = RunQuery(target=target, case_id=case_id, mode=mode, status=Status.PASSED, limit=1)
            found[key] = _past(newest, [run for run in reader.runs(passed) if not run.warmup])
    return found


def _past(newest_first: list[RunResult], last_passed: list[RunResult]) -> SeriesPast:
    past = SeriesPast(last_success_unix_s=next((run.started_at.timestamp() for run in last_passed), None))
    for run in reversed(newest_first):
        past = past.with_run(run)
    return past


def _is_counted(run: RunResult) -> bool:
    return not run.warmup and not (run.error is not None and run.error.kind == ErrorKind.ABORTED)
