"""What a daemon takes up again from a history that another one wrote."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentbench_otel.daemon.past import last_slots, restored_series
from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.history.retention import Retention
from agentbench_otel.history.writer import HistoryWriter
from agentbench_otel.records.cycles import CycleOutcome, CycleRecord
from agentbench_otel.records.results import RunFault
from agentbench_otel.records.scenario import CaseId, Mode
from tests.support.results import a_result

NOW = datetime.now(UTC).replace(microsecond=0)
KEY = ("local", CaseId.ORDINARY_CHAT, Mode.DUAL_AGENT)
FAILED = {"status": "failed"}
ABORTED = {"status": "failed", "error": RunFault(kind="aborted", message="aborted")}


def written(file: Path, *runs: dict[str, Any]) -> HistoryReader:
    """A history of these runs, one per minute, the last one now."""
    writer = HistoryWriter(file, retention=Retention(keep_s=86_400, keep_spans_s=86_400))
    for number, changes in enumerate(runs):
        started_at = NOW - timedelta(minutes=len(runs) - 1 - number)
        writer.accept(a_result(run_id=f"run-{number:04}", started_at=started_at, **changes), ())
    assert writer.wait_until_written(20)
    assert writer.close(20) == 0
    return HistoryReader(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def test_a_series_is_restored_as_it_was(file: Path) -> None:
    past = restored_series(written(file, {}, {}, FAILED, FAILED), [KEY])[KEY]
    assert past.last is not None
    assert past.last.started_at == NOW
    assert past.consecutive_failures == 2
    assert past.last_success_unix_s == (NOW - timedelta(minutes=2)).timestamp()


def test_warm_ups_and_aborted_runs_are_left_out(file: Path) -> None:
    past = restored_series(written(file, {}, FAILED, ABORTED, {"warmup": True}), [KEY])[KEY]
    assert past.last is not None
    assert past.last.run_id == "run-0001"
    assert past.consecutive_failures == 1


def test_the_last_success_is_known_however_long_ago(file: Path) -> None:
    past = restored_series(written(file, {}, *[FAILED] * 30), [KEY])[KEY]
    assert past.last_success_unix_s == (NOW - timedelta(minutes=30)).timestamp()
    assert past.consecutive_failures == 20  # so many are looked at


def test_a_series_without_a_run_is_left_out(file: Path) -> None:
    other = ("other", CaseId.ORDINARY_CHAT, Mode.DUAL_AGENT)
    assert set(restored_series(written(file, {}), [KEY, other])) == {KEY}


def test_the_newest_slot_of_each_target_is_known(file: Path) -> None:
    writer = HistoryWriter(file, retention=Retention(keep_s=86_400, keep_spans_s=86_400))
    for number, target in enumerate(("a", "b", "a")):
        writer.record_cycle(
            CycleRecord(
                cycle_id=f"cycle-{number}",
                target=target,
                slot_at=NOW + timedelta(seconds=number),
                started_at=NOW + timedelta(seconds=number + 1),
                ended_at=NOW + timedelta(seconds=number + 2),
                outcome=CycleOutcome.COMPLETED,
                run_count=1,
                missed_run_count=0,
            )
        )
    assert writer.close(20) == 0
    assert last_slots(HistoryReader(file)) == {"a": NOW.timestamp() + 2, "b": NOW.timestamp() + 1}
