"""What is written comes back exactly, and every question is answered as one who reads all runs would."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentbench_otel.errors import ErrorKind
from agentbench_otel.history.reader import HistoryReader
from agentbench_otel.history.rows import cycle_inserts, read_cycle, read_result, run_inserts
from agentbench_otel.records.chat import CallKind, TokenUsage
from agentbench_otel.records.cycles import CycleOutcome, CycleRecord, RunQuery, SeriesOverview, Spending
from agentbench_otel.records.results import (
    FailureKind,
    ModelCallResult,
    RunFault,
    RunResult,
    SemanticFailure,
    Status,
)
from agentbench_otel.records.scenario import CaseId, Mode
from tests.support.history import NOW, a_run, run_id_of, write

Document = TypeVar("Document", bound=BaseModel)

texts = st.text(max_size=12)  # without surrogates: no UTF-8 file holds them
many_texts = st.lists(texts, max_size=3).map(tuple)
times_ms = st.floats(allow_nan=False, allow_infinity=False)
maybe_ms = st.none() | times_ms
counts = st.integers(min_value=0, max_value=10**20)
maybe_counts = st.none() | counts
faults = st.none() | st.builds(RunFault, kind=texts, message=texts)
moments = st.datetimes(timezones=st.just(UTC), min_value=datetime(1980, 1, 1), max_value=datetime(2100, 1, 1))  # noqa: DTZ001
usages = st.builds(
    TokenUsage,
    prompt_tokens=maybe_counts,
    completion_tokens=maybe_counts,
    total_tokens=maybe_counts,
    cached_tokens=maybe_counts,
    reasoning_tokens=maybe_counts,
)


def documents(kind: type[Document], /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    """Any document of the kind: numbers are finite in all of them, as the models demand."""
    numbers: dict[object, st.SearchStrategy[Any]] = {float: times_ms, float | None: maybe_ms}
    types = {name: field.annotation for name, field in kind.model_fields.items()}
    finite = {name: numbers[annotation] for name, annotation in types.items() if annotation in numbers}
    return st.builds(kind, **{**finite, **fields})


calls = documents(
    ModelCallResult,
    call_kind=st.sampled_from(CallKind),
    usage=st.none() | usages,
    error=faults,
    adaptations=many_texts,
)
results = documents(
    RunResult,
    run_id=texts,
    target=texts,
    model=texts,
    started_at=moments,
    error=faults,
    total_tokens=maybe_counts,
    event_names=many_texts,
    tool_latencies_ms=st.lists(times_ms, max_size=3).map(tuple),
    semantic_failures=st.lists(
        st.builds(SemanticFailure, kind=st.sampled_from(FailureKind), message=texts), max_size=2
    ).map(tuple),
    model_calls=st.lists(calls, max_size=2).map(tuple),
    warnings=many_texts,
)
cycles = st.builds(
    CycleRecord,
    cycle_id=texts,
    target=texts,
    slot_at=moments,
    started_at=moments,
    ended_at=moments,
    outcome=st.sampled_from(CycleOutcome),
    run_count=counts,
    missed_run_count=counts,
)


@given(results)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_result_comes_back_exactly_as_it_was(result: RunResult) -> None:
    text = run_inserts(result, None)[0].values[-1]
    assert read_result(text) == result
    assert read_result(text).model_dump_json() == result.model_dump_json()


@given(cycles)
def test_a_cycle_comes_back_exactly_as_it_was(cycle: CycleRecord) -> None:
    assert read_cycle(cycle_inserts(cycle)[0].values[-1]) == cycle


# --- questions against one who reads all ---------------------------------------------------------------------

few_targets = st.sampled_from(["a", "b"])
few_cases = st.sampled_from([CaseId.ORDINARY_CHAT, CaseId.SESSION_TERMINATE])
modes = st.sampled_from(Mode)
statuses = st.sampled_from(Status)
aborted = RunFault(kind=ErrorKind.ABORTED, message="the daemon stopped")
sketches = st.fixed_dictionaries(
    {
        "target": few_targets,
        "case_id": few_cases,
        "mode": modes,
        "status": statuses,
        "warmup": st.booleans(),
        "error": st.sampled_from([None, None, aborted]),
        "started_at": st.integers(-5, 5).map(lambda hours: NOW + timedelta(hours=hours)),
        "visible_ttft_ms": st.none() | st.floats(0, 1e6),
    }
)
runs = st.lists(sketches, max_size=30).map(
    lambda drawn: [a_run(number, **fields) for number, fields in enumerate(drawn)]
)
queries = st.builds(
    RunQuery,
    target=st.none() | few_targets,
    case_id=st.none() | few_cases,
    mode=st.none() | modes,
    status=st.none() | statuses,
    before_run_id=st.none() | st.integers(0, 30).map(run_id_of),
    limit=st.integers(0, 8),
)


def answer(everything: Sequence[RunResult], query: RunQuery) -> list[RunResult]:
    before = everything
    if query.before_run_id is not None:
        places = [place for place, run in enumerate(everything) if run.run_id == query.before_run_id]
        before = everything[: places[0]] if places else []
    fitting = [
        run
        for run in reversed(before)
        if query.target in (None, run.target)
        and query.case_id in (None, run.case_id)
        and query.mode in (None, run.mode)
        and query.status in (None, run.status)
    ]
    return fitting[: query.limit]


def overview(everything: Sequence[RunResult], since: datetime, points: int) -> list[SeriesOverview]:
    counted = [run for run in everything if not run.warmup and run.error != aborted]
    series: dict[tuple[str, CaseId, Mode], list[RunResult]] = {}
    for run in counted:
        series.setdefault((run.target, run.case_id, run.mode), []).append(run)
    order = sorted(series, key=lambda key: (key[0], list(CaseId).index(key[1]), list(Mode).index(key[2])))
    return [
        SeriesOverview(
            target=key[0],
            case_id=key[1],
            mode=key[2],
            last=series[key][-1],
            visible_ttft_ms=tuple(run.visible_ttft_ms for run in series[key][-points:]),
            counted=sum(run.started_at >= since for run in series[key]),
            passed=sum(run.started_at >= since and run.status is Status.PASSED for run in series[key]),
            last_failure=next((run for run in reversed(series[key]) if run.status is Status.FAILED), None),
        )
        for key in order
    ]


def spending(everything: Sequence[RunResult], since: datetime) -> dict[str, Spending]:
    recent = [run for run in everything if run.started_at >= since]
    counts = {target: sum(run.target == target for run in recent) for target in ("a", "b")}
    return {target: Spending(run_count=count, token_count=0) for target, count in counts.items() if count}


@given(
    runs,
    st.lists(queries, min_size=1, max_size=5),
    st.integers(-6, 6).map(lambda hours: NOW + timedelta(hours=hours)),
    st.integers(1, 5),
)
@settings(max_examples=40)
def test_every_question_is_answered_as_by_reading_all(
    everything: list[RunResult], asked: list[RunQuery], since: datetime, points: int
) -> None:
    with TemporaryDirectory() as directory:
        file = Path(directory, "agentbench.db")
        write(file, *everything)
        reader = HistoryReader(file)
        for query in asked:
            assert reader.runs(query) == answer(everything, query)
        assert reader.overview(since=since, points=points) == overview(everything, since, points)
        assert reader.spending_since(since) == spending(everything, since)
        assert [read_result(text) for text in reader.documents()] == everything
        assert reader.run_count() == len(everything)
