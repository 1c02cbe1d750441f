"""One log line per run and per cycle; a series that begins to fail is a warning, one that recovers is told too."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentbench_otel.errors import ErrorKind
from agentbench_otel.records.cycles import CycleRecord
from agentbench_otel.records.results import RunResult, Status
from agentbench_otel.records.spans import SpanRecord

if TYPE_CHECKING:
    from agentbench_otel.records.scenario import CaseId, Mode

logger = logging.getLogger(__name__)


class Journal:
    """A sink. Aborted runs and warm-ups are told, but change nothing."""

    def __init__(self) -> None:
        self._statuses: dict[tuple[str, CaseId, Mode], Status] = {}

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        del spans
        level, words = logging.INFO, f"run {result.status.value}"
        if not result.warmup and not (result.error and result.error.kind == ErrorKind.ABORTED):
            key = (result.target, result.case_id, result.mode)
            before = self._statuses.get(key)
            self._statuses[key] = result.status
            if result.status is Status.FAILED and before is not Status.FAILED:
                level, words = logging.WARNING, "run failed, unlike the one before"
            elif result.status is Status.PASSED and before is Status.FAILED:
                words = "run passed again"
        logger.log(level, words, extra={"fields": _fields(result)})

    def note_cycle(self, record: CycleRecord) -> None:
        seconds = (record.ended_at - record.started_at).total_seconds()
        fields = {
            "target": record.target,
            "cycle_id": record.cycle_id,
            "runs": record.run_count,
            "missed_runs": record.missed_run_count or None,
            "seconds": seconds,
        }
        logger.info("cycle %s", record.outcome.value, extra={"fields": fields})


def _fields(result: RunResult) -> dict[str, object]:
    """What helps to find the run again, and why it failed; a null is left out of the line."""
    failures = ",".join(dict.fromkeys(failure.kind.value for failure in result.semantic_failures))
    return {
        "target": result.target,
        "case": result.case_id.value,
        "mode": result.mode.value,
        "warmup": result.warmup or None,
        "visible_ttft_ms": result.visible_ttft_ms,
        "turn_wall_ms": result.turn_wall_time_ms,
        "tokens": result.total_tokens,
        "error": None if result.error is None else result.error.kind,
        "error_message": None if result.error is None else result.error.message[:500],
        "failures": failures or None,
        "run_id": result.run_id,
        "trace_id": result.trace_id,
    }
