"""OTLP receivers in this process, over HTTP and gRPC, that keep what arrives and answer as they are told."""

import gzip
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric, NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_TRACES = "/v1/traces"
_METRICS = "/v1/metrics"


@dataclass(slots=True)
class Received:
    """``url``: for a config's ``otlp.endpoint``. ``headers``: of the last request, in lower case.

    ``requests`` and ``metric_requests`` are in the order of arrival.
    """

    url: str = ""
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    metric_requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    headers_of: dict[str, dict[str, str]] = field(default_factory=dict)
    """By signal: ``traces``, ``metrics``."""

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource_spans in request.resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]

    @property
    def metrics(self) -> dict[str, "ReceivedMetric"]:
        """Those of the last request, by name."""
        return metrics_in(self.metric_requests[-1]) if self.metric_requests else {}

    @property
    def resource(self) -> dict[str, str]:
        return {one.key: one.value.string_value for one in self.requests[0].resource_spans[0].resource.attributes}

    @property
    def metric_resource(self) -> dict[str, object]:
        return attributes_of(self.metric_requests[0].resource_metrics[0].resource.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedExemplar:
    trace_id: str
    span_id: str
    value: float
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedPoint:
    """``value``: a number as it was sent, int or float; None for a histogram, which has the rest."""

    attributes: dict[str, object]
    start_ns: int
    time_ns: int
    exemplars: tuple[ReceivedExemplar, ...]
    value: int | float | None = None
    count: int | None = None
    sum: float | None = None
    bounds: tuple[float, ...] = ()
    bucket_counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMetric:
    """``kind``: ``sum``, ``gauge`` or ``histogram``; ``temporality``: ``cumulative``, ``delta``, "" of a gauge."""

    name: str
    unit: str
    description: str
    kind: str
    temporality: str
    is_monotonic: bool
    points: tuple[ReceivedPoint, ...]

    def point(self, **attributes: object) -> ReceivedPoint:
        """The one point whose attributes include these (with ``_`` for each dot in a key)."""
        (found,) = [
            point
            for point in self.points
            if attributes.items()
            <= {key.replace(".", "_"): value for key, value in point.attributes.items()}.items()
        ]
        return found


_TEMPORALITIES = {1: "delta", 2: "cumulative"}


def metrics_in(request: ExportMetricsServiceRequest) -> dict[str, ReceivedMetric]:
    """The metrics of one request by name; a name that stands there twice is an error."""
    metrics = [
        _metric(metric)
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    by_name = {metric.name: metric for metric in metrics}
    assert len(by_name) == len(metrics)
    return by_name


def _metric(metric: Metric) -> ReceivedMetric:
    kind = str(metric.WhichOneof("data"))
    data = getattr(metric, kind)
    return ReceivedMetric(
        name=metric.name,
        unit=metric.unit,
        description=metric.description,
        kind=kind,
        temporality=_TEMPORALITIES.get(getattr(data, "aggregation_temporality", 0), ""),
        is_monotonic=getattr(data, "is_monotonic", False),
        points=tuple(map(_histogram_point if kind == "histogram" else _number_point, data.data_points)),
    )


def _number_point(point: NumberDataPoint) -> ReceivedPoint:
    return ReceivedPoint(
        attributes=attributes_of(point.attributes),
        start_ns=point.start_time_unix_nano,
        time_ns=point.time_unix_nano,
        exemplars=_exemplars(point),
        value=point.as_int if point.WhichOneof("value") == "as_int" else point.as_double,
    )


def _histogram_point(point: HistogramDataPoint) -> ReceivedPoint:
    return ReceivedPoint(
        attributes=attributes_of(point.attributes),
        start_ns=point.start_time_unix_nano,
        time_ns=point.time_unix_nano,
        exemplars=_exemplars(point),
        count=point.count,
        sum=point.sum,
        bounds=tuple(point.explicit_bounds),
        bucket_counts=tuple(point.bucket_counts),
    )


def _exemplars(point: NumberDataPoint | HistogramDataPoint) -> tuple[ReceivedExemplar, ...]:
    return tuple(
        ReceivedExemplar(
            trace_id=one.trace_id.hex(),
            span_id=one.span_id.hex(),
            value=one.as_int if one.WhichOneof("value") == "as_int" else one.as_double,
            time_ns=one.time_unix_nano,
        )
        for one in point.exemplars
    )


def attributes_of(pairs: Sequence[KeyValue]) -> dict[str, object]:
    return {one.key: plain(one.value) for one in pairs}


def plain(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, str(kind))


def _trace_answer(rejected: int, words: str) -> ExportTraceServiceResponse:
    answer = ExportTraceServiceResponse()
    if rejected:
        answer.partial_success.rejected_spans = rejected
        answer.partial_success.error_message = words
    return answer


def _metric_answer(rejected: int, words: str) -> ExportMetricsServiceResponse:
    answer = ExportMetricsServiceResponse()
    if rejected:
        answer.partial_success.rejected_data_points = rejected
        answer.partial_success.error_message = words
    return answer


@contextmanager
def http_receiver(
    *,
    status: int = 200,
    rejected: int = 0,
    words: str = "quota",
    delay_s: float = 0.0,
    tls: ssl.SSLContext | None = None,
    port: int = 0,
) -> Iterator[Received]:
    """``rejected``: spans and data points of a partial success, for the reason ``words``. ``tls``: serve https
    instead. ``port`` 0: a free one."""
    received = Received()
    answers = {_TRACES: _trace_answer(rejected, words), _METRICS: _metric_answer(rejected, words)}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            received.headers = {name.lower(): value for name, value in self.headers.items()}
            received.headers_of[self.path.removeprefix("/v1/")] = received.headers
            assert self.path in answers
            if self.path == _TRACES:
                received.requests.append(ExportTraceServiceRequest.FromString(body))
            else:
                received.metric_requests.append(ExportMetricsServiceRequest.FromString(body))
            time.sleep(delay_s)
            payload = answers[self.path].SerializeToString()
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class named it
            """Nothing is logged."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that does not trust us goes away; the tests look at what it says."""

    with Server(("127.0.0.1", port), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        received.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield received
        server.shutdown()


@contextmanager
def grpc_receiver(
    *,
    rejected: int = 0,
    words: str = "quota",
    status: grpc.StatusCode | None = None,
    credentials: grpc.ServerCredentials | None = None,
) -> Iterator[Received]:
    """``status``: refuse every request with it. ``credentials``: serve TLS."""
    received = Received()

    def answering(signal: str, keep: Callable[[Any], None], answer: Any) -> Callable[[Any, Any], Any]:
        def export(request: Any, context: grpc.ServicerContext) -> Any:
            received.headers = {str(key): str(value) for key, value in context.invocation_metadata()}
            received.headers_of[signal] = received.headers
            keep(request)
            if status is not None:
                context.abort(status, "refused by the test")
            return answer

        return export

    traces = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.trace.v1.TraceService",
        {
            "Export": grpc.unary_unary_rpc_method_handler(
                answering("traces", received.requests.append, _trace_answer(rejected, words)),
                request_deserializer=ExportTraceServiceRequest.FromString,
                response_serializer=ExportTraceServiceResponse.SerializeToString,
            )
        },
    )
    metrics = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.metrics.v1.MetricsService",
        {
            "Export": grpc.unary_unary_rpc_method_handler(
                answering("metrics", received.metric_requests.append, _metric_answer(rejected, words)),
                request_deserializer=ExportMetricsServiceRequest.FromString,
                response_serializer=ExportMetricsServiceResponse.SerializeToString,
            )
        },
    )
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((traces, metrics))
    if credentials is None:
        received.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    else:
        received.url = f"https://127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    try:
        yield received
    finally:
        server.stop(None).wait()
