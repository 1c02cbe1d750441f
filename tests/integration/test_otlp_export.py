"""Spans on their way to a collector: what arrives is what was recorded, and no collector is in the way."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from agentbench_otel import app, names
from agentbench_otel.config.model import Otlp
from agentbench_otel.errors import InputError
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import Runner, plan_runs
from agentbench_otel.telemetry.endpoint import OtlpEndpoint, find_endpoint
from agentbench_otel.telemetry.export import AWAIT_SPANS_PER_CALL, TraceExport, capped
from tests.support.chat import openai_client, run, stream_and_close, target
from tests.support.cli import run_cli
from tests.support.otlp_receiver import Received, grpc_receiver, http_receiver
from tests.support.schedule_server import ScheduleServer

DEADLINE_S = 1.5

Runs = list[tuple[RunResult, Sequence[SpanRecord]]]


class Keep:
    def __init__(self) -> None:
        self.runs: Runs = []

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        self.runs.append((result, list(spans)))


@pytest.fixture(scope="module")
def recorded() -> Runs:
    """Two mock runs: the parallel case in both modes."""
    config = app.mock_config()
    kept = Keep()
    runner = Runner(config, client_factory=app.make_mock_client, is_mock=True, sinks=[kept])
    plans = [plan for plan in plan_runs(config.targets, config.benchmark) if "parallel" in plan.case_id.value]

    async def all_runs() -> None:
        for plan in plans:
            await runner.run(plan)

    asyncio.run(all_runs())
    return kept.runs


def export_to(
    url: str,
    runs: Runs,
    *,
    protocol: str = "http/protobuf",
    environment: Mapping[str, str] | None = None,
) -> TraceExport:
    endpoint = OtlpEndpoint(url=url if protocol == "grpc" else f"{url}/v1/traces", protocol=protocol)
    export = TraceExport(endpoint, environment=environment or {})
    for result, spans in runs:
        export.accept(result, spans)
    export.hand_over(DEADLINE_S)
    return export


def plain(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, str(kind))


def comparable(span: Span | SpanRecord) -> tuple[object, ...]:
    """What must be the same on both sides of the wire."""
    if isinstance(span, SpanRecord):
        return (
            span.trace_id,
            span.span_id,
            span.parent_span_id or "",
            span.name,
            span.start_ns,
            span.end_ns,
            {key: list(value) if isinstance(value, tuple) else value for key, value in span.attributes.items()},
            [(event.name, event.time_ns) for event in span.events],
            span.error or "",
        )
    return (
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        {one.key: plain(one.value) for one in span.attributes},
        [(event.name, event.time_unix_nano) for event in span.events],
        span.status.message if span.status.code == Status.STATUS_CODE_ERROR else "",
    )


@pytest.mark.parametrize(("receiver", "protocol"), [(http_receiver, "http/protobuf"), (grpc_receiver, "grpc")])
def test_every_span_arrives_with_its_own_ids_times_and_attributes(
    recorded: Runs,
    receiver: Callable[[], AbstractContextManager[Received]],
    protocol: str,
) -> None:
    sent = [span for _, spans in recorded for span in spans]
    with receiver() as received:
        export = export_to(received.url, recorded, protocol=protocol)
        arrived = received.spans
    assert dict(export.outcomes) == {"exported": len(sent)}
    assert export.last_success_unix_s is not None
    assert abs(export.last_success_unix_s - time.time()) < 60
    by_id = sorted(map(comparable, arrived), key=str)
    assert by_id == sorted(map(comparable, sent), key=str)
    assert {span.kind for span in arrived if span.name.startswith("chat ")} == {Span.SPAN_KIND_CLIENT}


def test_every_exported_name_stands_in_the_module_of_names(
    recorded: Runs,
) -> None:
    known = {value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
    for _, spans in recorded:
        for span in spans:
            assert set(span.attributes) <= known
            assert span.name.split(" ")[0] in known or span.name.startswith(names.PHASE_SPAN_PREFIX)
            for event in span.events:
                assert {event.name, *event.attributes} <= known


def test_the_resource_is_stable_and_the_environment_wins(recorded: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_receiver() as received:
        export_to(received.url, recorded)
        export_to(received.url, recorded)
        first, second = (request.resource_spans[0].resource for request in received.requests)
    assert first == second
    assert received.resource["service.name"] == "agentbench-otel"
    assert received.resource["service.instance.id"] == socket.gethostname()
    told = {"OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=i-1,team=a"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with http_receiver() as received:
        export_to(received.url, recorded, environment=told)
    assert {key: received.resource[key] for key in ("service.name", "service.instance.id", "team")} == {
        "service.name": "mine",
        "service.instance.id": "i-1",
        "team": "a",
    }


def test_a_traceparent_in_the_environment_is_a_link_and_the_run_stays_the_root(
    recorded: Runs,
) -> None:
    pipeline = {"TRACEPARENT": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    with http_receiver() as received:
        export_to(received.url, recorded, environment=pipeline)
    roots = [span for span in received.spans if not span.parent_span_id]
    assert [span.name.split(" ")[0] for span in roots] == ["agentbench.run"] * 2
    for span in received.spans:
        links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        assert links == ([("ab" * 16, "cd" * 8)] if not span.parent_span_id else [])


@pytest.mark.parametrize(
    "traceparent", ["", "junk", f"00-{'0' * 32}-{'cd' * 8}-01", f"00-{'ab' * 16}-{'cd' * 7}-01"]
)
def test_a_traceparent_that_is_none_makes_no_link(recorded: Runs, traceparent: str) -> None:
    with http_receiver() as received:
        export_to(received.url, recorded[:1], environment={"TRACEPARENT": traceparent})
    assert received.spans
    assert not any(span.links for span in received.spans)


def test_a_sampler_keeps_spans_from_leaving_and_says_so(recorded: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with http_receiver() as received:
        export = export_to(received.url, recorded)
    assert received.spans == []
    assert dict(export.outcomes) == {"unsampled": sum(len(spans) for _, spans in recorded)}


def test_of_a_long_stream_some_awaits_leave_and_all_other_spans() -> None:
    async def long_stream() -> list[SpanRecord]:
        kept = Keep()
        config = app.mock_config()
        runner = Runner(config, client_factory=app.make_mock_client, is_mock=True, sinks=[kept])
        await runner.run(plan_runs(config.targets, config.benchmark)[0])
        return list(kept.runs[0][1])

    spans = asyncio.run(long_stream())
    (sample, *_) = [span for span in spans if span.name == names.AWAIT_SPAN]
    awaits = [
        SpanRecord(
            trace_id=sample.trace_id,
            span_id=f"{index + 1:016x}",
            parent_span_id=sample.parent_span_id,
            name=sample.name,
            kind=sample.kind,
            start_ns=sample.start_ns,
            end_ns=sample.end_ns,
            attributes={**sample.attributes, names.AWAIT_INDEX: index},
        )
        for index in range(AWAIT_SPANS_PER_CALL + 160)
    ]
    left = list(capped([*spans, *awaits]))
    assert sum(span.name != names.AWAIT_SPAN for span in left) == sum(
        span.name != names.AWAIT_SPAN for span in spans
    )
    indexes = [span.attributes[names.AWAIT_INDEX] for span in left if span in awaits]
    assert indexes[:AWAIT_SPANS_PER_CALL] == list(range(AWAIT_SPANS_PER_CALL))
    assert indexes[AWAIT_SPANS_PER_CALL:] == list(range(AWAIT_SPANS_PER_CALL, AWAIT_SPANS_PER_CALL + 160, 16))


# --- collectors that fail ------------------------------------------------------------------------------------


def failures_of(export: TraceExport, runs: Runs) -> str:
    assert dict(export.outcomes) == {"failed": sum(len(spans) for _, spans in runs)}
    assert export.last_success_unix_s is None
    assert export.problem is not None
    return export.problem


@pytest.mark.parametrize("status", [400, 401])
def test_a_refusal_is_a_failure_with_its_status(recorded: Runs, status: int) -> None:
    with http_receiver(status=status) as received:
        export = export_to(received.url, recorded)
    assert f"HTTP {status}" in failures_of(export, recorded)


def test_a_collector_that_is_busy_is_given_up_at_the_deadline(
    recorded: Runs,
) -> None:
    start_s = time.monotonic()
    with http_receiver(status=503) as received:
        export = export_to(received.url, recorded)
    assert time.monotonic() - start_s < DEADLINE_S + 1
    assert failures_of(export, recorded)


def test_a_collector_that_is_down_is_given_up_at_the_deadline(
    recorded: Runs,
) -> None:
    start_s = time.monotonic()
    export = export_to("http://127.0.0.1:9", recorded)
    assert time.monotonic() - start_s < DEADLINE_S + 1
    assert failures_of(export, recorded)


def test_a_collector_that_never_answers_is_given_up_at_the_deadline(
    recorded: Runs,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start_s = time.monotonic()
        export = export_to(f"http://127.0.0.1:{silent.getsockname()[1]}", recorded)
        assert time.monotonic() - start_s < DEADLINE_S + 1
    assert "not taken within" in failures_of(export, recorded)


def test_spans_that_a_collector_rejects_inside_a_success_are_told(
    recorded: Runs,
) -> None:
    total = sum(len(spans) for _, spans in recorded)
    with http_receiver(rejected=5) as received:
        export = export_to(received.url, recorded)
    assert dict(export.outcomes) == {"exported": total - 5, "rejected": 5}
    assert "quota" in str(export.problem)


# --- where spans go --------------------------------------------------------------------------------------------


def test_the_config_comes_before_the_environment_and_neither_means_no_push() -> None:
    configured = Otlp(endpoint="http://127.0.0.1:4318/")
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert find_endpoint(None, {}, "traces") is None
    assert find_endpoint(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, "traces") is None
    assert find_endpoint(configured, variables, "traces") == OtlpEndpoint(
        url="http://127.0.0.1:4318/v1/traces", protocol="http/protobuf"
    )
    assert find_endpoint(None, variables, "traces") == OtlpEndpoint(url=None, protocol="grpc")
    assert find_endpoint(configured, {"OTEL_SDK_DISABLED": "TRUE"}, "traces") is None


def test_a_protocol_that_otlp_does_not_have_is_refused() -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}
    with pytest.raises(InputError, match="allowed are http/protobuf and grpc"):
        find_endpoint(None, variables, "traces")


def test_once_pushes_where_the_standard_variables_say(tmp_path: Path) -> None:
    with http_receiver() as received:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": received.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20t0ken",
        }
        done = run_cli(
            "once", "--mock", "--case", "ordinary_chat", "--format", "json", variables=variables, cwd=tmp_path
        )
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert {span.trace_id.hex() for span in received.spans} == {run["trace_id"] for run in report["runs"]}
    assert received.headers["authorization"] == "Bearer t0ken"
    assert f"telemetry: spans: {len(received.spans)} exported" in done.stderr
    assert "t0ken" not in done.stdout + done.stderr


def test_a_dead_collector_changes_no_result_and_holds_once_up_for_less_than_5_s(tmp_path: Path) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    start_s = time.monotonic()
    done = run_cli("once", "--mock", "--case", "ordinary_chat", variables=variables, cwd=tmp_path)
    assert time.monotonic() - start_s < 8  # start-up of the process on a busy machine included
    assert done.exit_code == 0
    assert "2 attempted, 2 passed, 0 failed" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if "telemetry" in line]
    assert "failed" in line
    assert "Traceback" not in done.stderr
    assert "retrying" not in done.stderr


# --- trace context to the target -------------------------------------------------------------------------------


@pytest.mark.parametrize("propagate", [False, True])
def test_the_target_gets_the_calls_context_where_it_wants_it(propagate: bool) -> None:
    with ScheduleServer() as server:
        settings: dict[str, Any] = {"propagate_trace": propagate, "model": "truth-ttft5-itl1-n2"}
        result = app.probe_endpoint(target(server.base_url, **settings), api_key=None, message="Hello.", tools=[])
        (record,) = server.truth()
        assert result.error is None
        if propagate:
            version, trace_id, span_id, flags = record.headers["traceparent"].split("-")
            assert (version, len(trace_id), len(span_id), flags) == ("00", 32, 16, "01")
        else:
            assert "traceparent" not in record.headers
        run(stream_and_close(openai_client(server.base_url, **settings)))  # without a trace there is no context
        assert "traceparent" not in server.truth()[-1].headers
