"""Metrics on their way to a collector, beside their spans: what arrives, and what is told when it does not."""

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from agentbench_otel import app, names
from agentbench_otel.config.model import Benchmark, Config
from agentbench_otel.names import MetricKind
from agentbench_otel.records.results import RunFault, Status
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.runner import plan_runs
from agentbench_otel.telemetry.endpoint import OtlpEndpoint
from agentbench_otel.telemetry.metric_export import MetricExport
from agentbench_otel.telemetry.push import Push
from tests.support.otlp_receiver import Received, ReceivedMetric, grpc_receiver, http_receiver
from tests.support.recorded_runs import Recorded, planned, record_runs, run_metrics
from tests.support.results import a_result

DEADLINE_S = 0.6
SLACK_S = 0.6
HTTP, GRPC = "http/protobuf", "grpc"
PROTOCOLS = (HTTP, GRPC)
RECEIVERS: Mapping[str, Callable[..., AbstractContextManager[Received]]] = {
    HTTP: http_receiver,
    GRPC: grpc_receiver,
}


def config_for(url: str | None, protocol: str = HTTP, **telemetry: Any) -> Config:
    """Two cases in one mode, with a warm-up each. ``url`` None: pushes where the environment says."""
    otlp = None if url is None else {"endpoint": url, "protocol": protocol, **telemetry.pop("otlp", {})}
    document: dict[str, Any] = {
        "schema_version": 1,
        "targets": [app.MOCK_TARGET],
        "benchmark": Benchmark(
            cases=(CaseId.ORDINARY_CHAT, CaseId.WEB_SEARCH_TWO_ANSWERS),
            modes=(Mode.DUAL_AGENT,),
            runs_per_case=2,
            warmup_runs=1,
        ),
        "telemetry": {"otlp": otlp, **telemetry},
    }
    return Config.model_validate(document)


@pytest.fixture(scope="module")
def recorded() -> list[Recorded]:
    return record_runs(config_for(None))


def make_push(config: Config, *, deadline_s: float = 10.0) -> Push:
    push = app.make_push(config, plan_runs(config.targets, config.benchmark), os.environ, is_mock=True)
    assert push is not None
    return replace(push, deadline_s=deadline_s)


def push_runs(push: Push, runs: Sequence[Recorded]) -> Push:
    for run in runs:
        push.accept(run.result, run.spans)
    push.hand_over()
    return push


def outcomes(push: Push) -> dict[str, dict[str, int]]:
    """By signal; what did not occur is left out."""
    exports = {"traces": push.traces, "metrics": push.metrics}
    return {
        signal: {outcome: count for outcome, count in export.outcomes.items() if count}
        for signal, export in exports.items()
        if export is not None
    }


def span_count(runs: Sequence[Recorded]) -> int:
    return sum(len(run.spans) for run in runs)


def counted(runs: Sequence[Recorded]) -> list[Recorded]:
    return [run for run in runs if not run.result.warmup]


# --- what arrives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("semconv", ["1.41", "next"])
def test_every_metric_arrives_as_the_module_of_names_has_it(
    recorded: list[Recorded], protocol: str, semconv: names.Semconv
) -> None:
    known = {metric.name: metric for metric in names.metrics_of(semconv)}
    with RECEIVERS[protocol]() as received:
        push = push_runs(make_push(config_for(received.url, protocol, semconv=semconv)), recorded)
        arrived = received.metrics
    assert outcomes(push) == {"traces": {"exported": span_count(recorded)}, "metrics": {"exported": 1}}
    kinds = {MetricKind.COUNTER: "sum", MetricKind.GAUGE: "gauge", MetricKind.HISTOGRAM: "histogram"}
    for name, metric in arrived.items():
        expected = known[name]
        assert (metric.unit, metric.description) == (expected.unit, expected.description)
        assert metric.kind == kinds[expected.kind]
        assert metric.is_monotonic == (expected.kind is MetricKind.COUNTER)
        assert metric.temporality == ("" if expected.kind is MetricKind.GAUGE else "cumulative")
        for point in metric.points:
            assert set(point.attributes) <= set(expected.labels)
            assert {"target", "case", "mode"} <= set(point.attributes)
            assert point.bounds == expected.buckets
            if expected.kind is MetricKind.COUNTER:
                assert isinstance(point.value, int)
            elif expected.kind is MetricKind.GAUGE and expected.unit == "s":
                assert isinstance(point.value, float)
    client = "gen_ai.client.operation.duration" if semconv == "1.41" else "gen_ai.client.inference.duration"
    assert client in arrived
    assert received.metric_resource["service.name"] == "agentbench-otel"
    assert received.metric_resource["service.instance.id"] == socket.gethostname()
    assert received.resource == received.metric_resource


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_numbers_that_arrive_are_those_of_the_results(recorded: list[Recorded], protocol: str) -> None:
    with RECEIVERS[protocol]() as received:
        push_runs(make_push(config_for(received.url, protocol)), recorded)
        arrived = received.metrics
    for case in (CaseId.ORDINARY_CHAT, CaseId.WEB_SEARCH_TWO_ANSWERS):
        runs = [run.result for run in counted(recorded) if run.result.case_id is case]
        assert len(runs) == 2
        assert arrived["agentbench.runs"].point(case=case.value, status="passed").value == 2
        assert arrived["agentbench.runs"].point(case=case.value, status="aborted").value == 0
        wall = arrived["agentbench.turn.wall"].point(case=case.value)
        walls_s = [(run.turn_wall_time_ms or 0) / 1000 for run in runs]
        assert wall.count == 2
        assert wall.sum == pytest.approx(sum(walls_s))
        below = [sum(one <= bound for one in walls_s) for bound in names.TURN_WALL.buckets]
        assert [sum(wall.bucket_counts[: index + 1]) for index in range(len(below))] == below
        assert sum(wall.bucket_counts) == 2
        assert arrived["agentbench.last_run.turn_wall"].point(case=case.value).value == walls_s[-1]
        calls = sum(len(run.model_calls) for run in runs)
        ok = arrived["agentbench.model_calls"].point(case=case.value, outcome="ok", call_kind="chat_completion")
        assert ok.value == calls
        operation = arrived["gen_ai.client.operation.duration"].point(
            case=case.value, gen_ai_request_model="mock", gen_ai_operation_name="chat"
        )
        assert operation.count == calls


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_exemplar_is_a_run_span_that_arrived_as_a_trace(recorded: list[Recorded], protocol: str) -> None:
    start_ns = time.time_ns()
    with RECEIVERS[protocol]() as received:
        push_runs(make_push(config_for(received.url, protocol)), recorded)
        arrived, spans = received.metrics, received.spans
    roots = {(span.trace_id.hex(), span.span_id.hex()): span for span in spans if not span.parent_span_id}
    of_warm_ups = {run.root.trace_id for run in recorded if run.result.warmup}
    assert {trace_id for trace_id, _ in roots} == {run.root.trace_id for run in recorded}
    for name in ("agentbench.turn.wall", "gen_ai.client.operation.duration", "agentbench.runs"):
        assert any(point.exemplars for point in arrived[name].points)
    for metric in arrived.values():
        for point in metric.points:
            for exemplar in point.exemplars:
                root = roots[exemplar.trace_id, exemplar.span_id]
                assert root.name == f"agentbench.run {point.attributes['case']}"
                assert exemplar.trace_id not in of_warm_ups
                assert start_ns <= exemplar.time_ns <= time.time_ns()


def test_without_a_trace_there_is_no_exemplar(recorded: list[Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with http_receiver() as received:
        push = push_runs(make_push(config_for(received.url)), recorded)
    assert received.spans == []
    assert outcomes(push) == {"traces": {"unsampled": span_count(recorded)}, "metrics": {"exported": 1}}
    assert received.metrics["agentbench.turn.wall"].points
    assert not any(point.exemplars for metric in received.metrics.values() for point in metric.points)


def test_a_series_starts_when_its_instruments_were_made_and_ends_when_it_was_pushed(
    recorded: list[Recorded],
) -> None:
    before_ns = time.time_ns()
    with http_receiver() as received:
        push = make_push(config_for(received.url))
        made_ns = time.time_ns()
        push_runs(push, recorded)
        push.hand_over()
    first, second = (_runs_points(received, index) for index in (0, 1))
    assert {point.start_ns for point in first} == {point.start_ns for point in second}
    for one in (*first, *second):
        assert before_ns <= one.start_ns <= made_ns <= one.time_ns <= time.time_ns()
    assert min(point.time_ns for point in second) > max(point.time_ns for point in first)
    assert [point.value for point in first] == [point.value for point in second]


def _runs_points(received: Received, index: int) -> Any:
    one = Received(metric_requests=received.metric_requests[index : index + 1])
    return one.metrics["agentbench.runs"].points


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_delta_temporality_sends_what_is_new(
    recorded: list[Recorded], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    with RECEIVERS[protocol]() as received:
        push = push_runs(make_push(config_for(received.url, protocol)), recorded)
        first = received.metrics
        push_runs(push, counted(recorded)[:1])
        second = received.metrics
    assert {metric.temporality for metric in first.values()} == {"delta", ""}
    (case,) = {run.result.case_id.value for run in counted(recorded)[:1]}
    for metrics, count in ((first, 2), (second, 1)):
        assert metrics["agentbench.runs"].point(case=case, status="passed").value == count
        assert metrics["agentbench.turn.wall"].point(case=case).count == count


def test_warm_ups_are_traces_and_nothing_else(recorded: list[Recorded]) -> None:
    warm_ups = [run for run in recorded if run.result.warmup]
    with http_receiver() as received:
        push_runs(make_push(config_for(received.url)), warm_ups)
    assert len(received.spans) == span_count(warm_ups)
    for metric in received.metrics.values():
        assert metric.kind != "histogram"
        assert {point.value for point in metric.points} == {0}


def test_an_aborted_run_is_counted_as_such_and_measured_nowhere(recorded: list[Recorded]) -> None:
    aborted = RunFault(kind="aborted", message="SIGTERM")
    (run, *_) = counted(recorded)
    result = run.result.model_copy(update={"error": aborted, "status": Status.FAILED})
    with http_receiver() as received:
        push_runs(make_push(config_for(received.url)), [replace(run, result=result)])
    values = {
        (metric.name, *sorted(map(str, point.attributes.values()))): point.value
        for metric in received.metrics.values()
        for point in metric.points
    }
    assert {key: value for key, value in values.items() if value != 0} == {
        ("agentbench.runs", "aborted", "dual_agent", "mock", "ordinary_chat"): 1
    }


def test_what_was_not_measured_does_not_arrive_as_0(recorded: list[Recorded]) -> None:
    (run, *_) = counted(recorded)
    missing = ("visible_ttft_ms", "harness_ms", "prompt_tokens", "overlap_ms", "token_ttft_ms")
    calls = [
        call.model_copy(update={"usage": None, "stream_ms": None, "connect_ms": None})
        for call in run.result.model_calls
    ]
    result = run.result.model_copy(update={**dict.fromkeys(missing), "model_calls": tuple(calls)})
    with http_receiver() as received:
        push_runs(make_push(config_for(received.url)), [replace(run, result=result)])
    arrived = received.metrics
    absent = {
        "agentbench.visible_ttft",
        "agentbench.turn.harness",
        "agentbench.model_call.stream",
        "agentbench.model_call.connect",
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.duration",
        "agentbench.last_run.visible_ttft",
        "agentbench.last_run.turn_harness",
        "agentbench.last_run.overlap",
        "agentbench.last_run.token_ttft",
    }
    assert not absent & set(arrived)
    assert "input" not in {point.attributes["type"] for point in arrived["agentbench.last_run.tokens"].points}
    assert arrived["agentbench.usage_missing"].point(case="ordinary_chat").value == len(calls)


def test_series_of_a_target_that_left_the_config_are_pushed_no_more() -> None:
    with http_receiver() as received:
        endpoint = OtlpEndpoint(url=f"{received.url}/v1/metrics", protocol=HTTP)
        gone: set[object] = set()
        export = MetricExport(endpoint, is_shown=lambda attributes: attributes["target"] not in gone)
        with run_metrics(export.make_reader()) as metrics:
            metrics.plan([planned("here"), planned("there")])
            metrics.accept(a_result(target="there"), [])
            export.hand_over(10)
            before = targets_in(received.metrics)
            gone.add("there")
            export.hand_over(10)
            after = targets_in(received.metrics)
            assert "agentbench.turn.wall" not in received.metrics  # no series is left of it
    assert (before, after) == ({"here", "there"}, {"here"})


def targets_in(metrics: Mapping[str, ReceivedMetric]) -> set[object]:
    return {point.attributes["target"] for metric in metrics.values() for point in metric.points}


# --- where it goes, by the standard variables ------------------------------------------------------------------


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_all(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_environment_alone_is_enough_and_its_headers_are_sent(
    recorded: list[Recorded], variables: Callable[..., None], protocol: str
) -> None:
    with RECEIVERS[protocol]() as received:
        variables(
            OTEL_EXPORTER_OTLP_ENDPOINT=received.url,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_EXPORTER_OTLP_HEADERS="x-all=a%20b",
            OTEL_EXPORTER_OTLP_METRICS_HEADERS="x-metrics=1",
        )
        push = push_runs(make_push(config_for(None)), recorded)
    assert outcomes(push) == {"traces": {"exported": span_count(recorded)}, "metrics": {"exported": 1}}
    assert received.headers_of["traces"]["x-all"] == "a b"
    assert received.headers_of["metrics"]["x-metrics"] == "1"
    assert "x-metrics" not in received.headers_of["traces"]


def test_each_signal_may_go_its_own_way(recorded: list[Recorded], variables: Callable[..., None]) -> None:
    with http_receiver() as traces, grpc_receiver() as metrics:
        variables(
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{traces.url}/v1/traces",
            OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=metrics.url,
            OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=GRPC,
        )
        push_runs(make_push(config_for(None)), recorded)
    assert (len(traces.requests), len(traces.metric_requests)) == (1, 0)
    assert (len(metrics.requests), len(metrics.metric_requests)) == (0, 1)


def test_a_compressed_push_arrives(recorded: list[Recorded], variables: Callable[..., None]) -> None:
    variables(OTEL_EXPORTER_OTLP_COMPRESSION="gzip")
    with http_receiver() as received:
        push_runs(make_push(config_for(received.url)), recorded)
    assert received.headers["content-encoding"] == "gzip"
    assert received.metrics["agentbench.runs"].points
    assert len(received.spans) == span_count(recorded)


def test_a_signal_that_nobody_wants_is_not_pushed(
    recorded: list[Recorded], variables: Callable[..., None]
) -> None:
    with http_receiver() as received:
        traces_alone = push_runs(make_push(config_for(received.url, otlp={"signals": ["traces"]})), recorded)
        metrics_alone = push_runs(make_push(config_for(received.url, otlp={"signals": ["metrics"]})), recorded)
        variables(OTEL_METRICS_EXPORTER="none")
        without = push_runs(make_push(config_for(received.url)), recorded)
    assert (len(received.requests), len(received.metric_requests)) == (2, 1)
    assert traces_alone.words() == f"telemetry: spans: {span_count(recorded)} exported"
    assert metrics_alone.words() == "telemetry: metrics: 1 exported"
    assert without.words() == traces_alone.words()


def test_a_disabled_sdk_pushes_nothing(variables: Callable[..., None]) -> None:
    variables(OTEL_SDK_DISABLED="true")
    config = config_for("http://127.0.0.1:9")
    assert app.make_push(config, plan_runs(config.targets, config.benchmark), os.environ, is_mock=True) is None


# --- collectors that take a part, or nothing -------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_collector_rejects_inside_a_success_is_told(recorded: list[Recorded], protocol: str) -> None:
    total = span_count(recorded)
    with RECEIVERS[protocol](rejected=5) as received:
        push = push_runs(make_push(config_for(received.url, protocol)), recorded)
    assert outcomes(push) == {"traces": {"exported": total - 5, "rejected": 5}, "metrics": {"rejected": 1}}
    assert push.words() == (
        f"telemetry: spans: {total - 5} exported, 5 rejected (the collector rejected 5 span(s): quota);"
        " metrics: 1 rejected (the collector rejected 5 data point(s): quota)"
    )
    assert push.metrics is not None
    assert push.metrics.last_success_unix_s is not None


def test_a_problem_is_told_until_a_push_goes_well(recorded: list[Recorded]) -> None:
    with http_receiver(status=400) as refusing:
        push = push_runs(make_push(config_for(refusing.url)), recorded)
    metrics = push.metrics
    assert metrics is not None
    assert metrics.words() == "metrics: 1 failed (HTTP 400)"
    assert metrics.last_success_unix_s is None
    with http_receiver(port=int(refusing.url.rpartition(":")[2])):
        push.hand_over()
    assert metrics.words() == "metrics: 1 exported, 1 failed"
    assert abs((metrics.last_success_unix_s or 0) - time.time()) < 60


@contextmanager
def refused(protocol: str) -> Iterator[str]:
    del protocol
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextmanager
def black_hole(protocol: str) -> Iterator[str]:
    del protocol
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


@contextmanager
def unknown_name(protocol: str) -> Iterator[str]:
    del protocol
    yield "http://name.invalid:4318"


@contextmanager
def busy(protocol: str) -> Iterator[str]:
    if protocol == HTTP:
        with http_receiver(status=503) as received:
            yield received.url
    else:
        with grpc_receiver(status=grpc.StatusCode.UNAVAILABLE) as received:
            yield received.url


@contextmanager
def tls_receiver(protocol: str, authority: trustme.CA) -> Iterator[Received]:
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    if protocol == HTTP:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        with http_receiver(tls=context) as received:
            yield received
        return
    pair = (certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())
    with grpc_receiver(credentials=grpc.ssl_server_credentials([pair])) as received:
        yield received


@contextmanager
def untrusted(protocol: str) -> Iterator[str]:
    with tls_receiver(protocol, trustme.CA()) as received:
        yield received.url
    assert received.requests == received.metric_requests == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("collector", [refused, black_hole, unknown_name, busy, untrusted])
def test_a_dead_collector_is_given_up_at_the_deadline_and_told(
    recorded: list[Recorded], collector: Callable[[str], AbstractContextManager[str]], protocol: str
) -> None:
    with collector(protocol) as url:
        push = make_push(config_for(url, protocol), deadline_s=DEADLINE_S)
        start_s = time.monotonic()
        push_runs(push, recorded)
        took_s = time.monotonic() - start_s
    assert took_s < DEADLINE_S + SLACK_S
    assert outcomes(push) == {"traces": {"failed": span_count(recorded)}, "metrics": {"failed": 1}}
    for export in (push.traces, push.metrics):
        assert export is not None
        assert export.last_success_unix_s is None
        assert export.problem is not None
        assert f"({export.problem})" in push.words()


def test_what_a_given_up_push_brings_later_is_not_counted_again(
    recorded: list[Recorded], variables: Callable[..., None]
) -> None:
    variables(OTEL_EXPORTER_OTLP_TIMEOUT="0.4")
    with black_hole(HTTP) as url:
        before = set(threading.enumerate())
        push = push_runs(make_push(config_for(url), deadline_s=0.1), recorded)
        for thread in set(threading.enumerate()) - before:
            thread.join(5)
    assert outcomes(push) == {"traces": {"failed": span_count(recorded)}, "metrics": {"failed": 1}}
    assert push.words().count("not taken within 0.1 s") == 2


@pytest.mark.parametrize("collector", [refused, black_hole, untrusted])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_exporters_own_timeout_may_end_it_sooner(
    recorded: list[Recorded],
    variables: Callable[..., None],
    collector: Callable[[str], AbstractContextManager[str]],
    protocol: str,
) -> None:
    variables(OTEL_EXPORTER_OTLP_TIMEOUT="0.3")
    with collector(protocol) as url:
        start_s = time.monotonic()
        push = push_runs(make_push(config_for(url, protocol), deadline_s=5), recorded)
        assert time.monotonic() - start_s < 2
    assert outcomes(push) == {"traces": {"failed": span_count(recorded)}, "metrics": {"failed": 1}}
    told = "could not be reached" if protocol == HTTP else "gRPC "
    assert push.words().count(told) == 2


@pytest.mark.parametrize("status", [400, 401])
def test_a_refusal_over_http_is_told_with_its_status(recorded: list[Recorded], status: int) -> None:
    with http_receiver(status=status) as received:
        push = push_runs(make_push(config_for(received.url)), recorded)
    assert push.words() == (
        f"telemetry: spans: {span_count(recorded)} failed (HTTP {status}); metrics: 1 failed (HTTP {status})"
    )


@pytest.mark.parametrize("status", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED])
def test_a_refusal_over_grpc_is_told_with_its_status(recorded: list[Recorded], status: grpc.StatusCode) -> None:
    with grpc_receiver(status=status) as received:
        push = push_runs(make_push(config_for(received.url, GRPC)), recorded)
    assert push.words() == (
        f"telemetry: spans: {span_count(recorded)} failed (gRPC {status.name});"
        f" metrics: 1 failed (gRPC {status.name})"
    )


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://x", "http://name..invalid", "http://[::1", "https://"])
def test_an_address_that_is_none_is_a_failed_push(
    recorded: list[Recorded], variables: Callable[..., None], url: str
) -> None:
    variables(OTEL_EXPORTER_OTLP_ENDPOINT=url)
    push = push_runs(make_push(config_for(None), deadline_s=DEADLINE_S), recorded)
    assert outcomes(push) == {"traces": {"failed": span_count(recorded)}, "metrics": {"failed": 1}}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_certificate_of_ones_own_is_trusted_when_it_is_named(
    recorded: list[Recorded],
    variables: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
    tmp_path: Path,
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # they come first in requests, whatever it is told
        monkeypatch.delenv(name, raising=False)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    variables(OTEL_EXPORTER_OTLP_CERTIFICATE=str(tmp_path / "ca.pem"))
    with tls_receiver(protocol, authority) as received:
        push = push_runs(make_push(config_for(received.url, protocol)), recorded)
    assert outcomes(push) == {"traces": {"exported": span_count(recorded)}, "metrics": {"exported": 1}}
    assert received.metrics["agentbench.runs"].points
