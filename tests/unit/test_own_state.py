"""What the daemon tells of itself, before and after something happened."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from agentbench_otel import __version__, names
from agentbench_otel.config.model import Config, Target
from agentbench_otel.daemon.own_state import OwnState
from agentbench_otel.daemon.scheduler import SchedulerState
from agentbench_otel.daemon.timer import TargetState
from agentbench_otel.names import Metric
from agentbench_otel.records.cycles import CycleOutcome, CycleRecord

NOW_S = 1_800_000_000.0
NOW = datetime.fromtimestamp(NOW_S, UTC)


def a_config(*target_names: str) -> Config:
    return Config(
        schema_version=1,
        targets=tuple(Target(name=name, base_url="http://x.invalid/v1", model="m") for name in target_names),
    )


def a_state(*target_names: str) -> OwnState:
    return OwnState(a_config(*target_names), now_unix_s=NOW_S)


def read(state: OwnState, metric: Metric) -> list[tuple[float, Mapping[str, str]]]:
    return [(value, dict(labels)) for value, labels in state.sources()[metric]()]


def a_cycle(target: str, outcome: CycleOutcome = CycleOutcome.COMPLETED, missed: int = 0) -> CycleRecord:
    return CycleRecord(
        cycle_id="c",
        target=target,
        slot_at=NOW,
        started_at=NOW + timedelta(seconds=2),
        ended_at=NOW + timedelta(seconds=7),
        outcome=outcome,
        run_count=3,
        missed_run_count=missed,
    )


def test_every_counter_begins_at_0_for_every_target() -> None:
    state = a_state("a", "b")
    cycles = read(state, names.CYCLES)
    assert {value for value, _ in cycles} == {0}
    assert len(cycles) == 2 * len(CycleOutcome)
    assert read(state, names.MISSED_RUNS) == [(0, {"target": "a"}), (0, {"target": "b"})]
    for metric in (names.STUCK_RUNS, names.CLOCK_STEPS):
        assert read(state, metric) == [(0, {})]


def test_what_is_not_known_yet_is_absent() -> None:
    state = a_state("a")
    for metric in (
        names.LAST_CYCLE_TIMESTAMP,
        names.CYCLE_DURATION,
        names.NEXT_CYCLE_TIMESTAMP,
        names.SCHEDULE_LATENESS,
        names.LOOP_LAG,
    ):
        assert read(state, metric) == []


def test_a_cycle_is_counted_and_its_times_are_told() -> None:
    state = a_state("a")
    state.note_cycle(a_cycle("a", missed=4))
    state.note_cycle(a_cycle("a", CycleOutcome.ABORTED))
    assert (1, {"target": "a", "outcome": "completed"}) in read(state, names.CYCLES)
    assert (1, {"target": "a", "outcome": "aborted"}) in read(state, names.CYCLES)
    assert read(state, names.MISSED_RUNS) == [(4, {"target": "a"})]
    assert read(state, names.LAST_CYCLE_TIMESTAMP) == [(NOW_S + 2, {"target": "a"})]
    assert read(state, names.CYCLE_DURATION) == [(5, {"target": "a"})]


def test_a_target_that_left_the_config_is_told_no_more() -> None:
    state = a_state("a", "b")
    state.note_cycle(a_cycle("b"))
    state.config = a_config("a")
    for metric in (names.CYCLES, names.MISSED_RUNS, names.LAST_CYCLE_TIMESTAMP, names.TARGET_INFO):
        assert {labels["target"] for _, labels in read(state, metric)} <= {"a"}


def test_the_schedule_is_told_as_the_scheduler_sees_it() -> None:
    state = a_state("a", "b")
    of_a = TargetState(
        interval_s=300,
        next_slot_unix_s=NOW_S + 60,
        is_waiting=False,
        is_running=False,
        stretch=4,
        last_slot_unix_s=None,
        last_lateness_s=None,
    )
    state.scheduler_state = lambda: SchedulerState(targets={"a": of_a}, clock_steps=2)
    assert read(state, names.NEXT_CYCLE_TIMESTAMP) == [(NOW_S + 60, {"target": "a"})]
    assert read(state, names.CYCLE_INTERVAL) == [(300, {"target": "a"})]
    assert read(state, names.CYCLE_STRETCH) == [(4, {"target": "a"})]
    assert read(state, names.SCHEDULE_LATENESS) == []
    assert read(state, names.CLOCK_STEPS) == [(2, {})]


def test_the_lag_is_the_worst_of_the_last_minute() -> None:
    state = a_state("a")
    for second in range(100):
        state.note_lag(0.5 if second == 30 else 0.001 * second / 100, NOW_S + second)
    (lag,) = read(state, names.LOOP_LAG)
    assert lag[0] < 0.001
    state.note_lag(0.2, NOW_S + 100)
    assert read(state, names.LOOP_LAG) == [(0.2, {})]
    assert read(state, names.LOOP_HEARTBEAT) == [(NOW_S + 100, {})]


def test_flags_follow_the_state() -> None:
    state = a_state("a")
    assert read(state, names.RELOAD_SUCCESSFUL) == [(1, {})]
    assert read(state, names.BUDGET_EXHAUSTED) == [(0, {"target": "a"})]
    state.reload_problem = "no"
    state.exhausted_targets = frozenset({"a"})
    assert read(state, names.RELOAD_SUCCESSFUL) == [(0, {})]
    assert read(state, names.BUDGET_EXHAUSTED) == [(1, {"target": "a"})]
    assert read(state, names.RELOAD_TIMESTAMP) == [(NOW_S, {})]


def test_the_build_and_the_targets_are_told() -> None:
    state = a_state("a")
    ((_, build),) = read(state, names.BUILD_INFO)
    assert build["version"] == __version__
    assert read(state, names.TARGET_INFO) == [(1, {"target": "a", "model": "m", "provider": "openai"})]
