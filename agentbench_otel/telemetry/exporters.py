"""The exporters of the OpenTelemetry SDK, and what the collector really answered to them.

Their own verdict hides a partial success, and over HTTP the status of a refusal.
"""

from collections.abc import Sequence
from typing import Any

import grpc
import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

from agentbench_otel.redaction import redact
from agentbench_otel.telemetry.endpoint import OtlpEndpoint

Response = ExportTraceServiceResponse | ExportMetricsServiceResponse
_WORDS_LIMIT = 300


class Answers:
    """What the collector answered to the last request.

    Attributes:
        words: The status of a refusal, or the reason of a partial success.
        rejected_count: Spans or data points that a partial success left out.
    """

    def __init__(self, response_type: type[Response], secrets: Sequence[str]) -> None:
        self._response_type = response_type
        self._secrets = secrets
        self.words = ""
        self.rejected_count = 0

    def clear(self) -> None:
        self.words, self.rejected_count = "", 0

    def note_http(self, response: requests.Response, *_: Any, **__: Any) -> None:
        """A response hook of requests."""
        self.words = f"HTTP {response.status_code}"
        if response.status_code != 200:
            return
        try:
            self.note(self._response_type.FromString(response.content))
        except DecodeError:
            self.words = ""

    def note_grpc(self, error: Any) -> None:
        """A `grpc.RpcError`; those of a call have its status, which its type does not say."""
        self.words = f"gRPC {error.code().name}"

    def note(self, response: Response) -> None:
        partial = response.partial_success
        self.rejected_count = getattr(partial, "rejected_spans", 0) or getattr(partial, "rejected_data_points", 0)
        told = "".join(
            char if char.isprintable() else " " for char in redact(partial.error_message, self._secrets)
        )
        self.words = " ".join(told.split())[:_WORDS_LIMIT] or "without a reason"


def span_answers(endpoint: OtlpEndpoint) -> Answers:
    return Answers(ExportTraceServiceResponse, endpoint.secrets)


def metric_answers(endpoint: OtlpEndpoint) -> Answers:
    return Answers(ExportMetricsServiceResponse, endpoint.secrets)


def make_span_exporter(endpoint: OtlpEndpoint, answers: Answers) -> SpanExporter:
    if endpoint.protocol == "grpc":
        return _NotingGrpcSpanExporter(answers, endpoint)
    return OTLPSpanExporter(endpoint=endpoint.url, session=_session(answers), timeout=endpoint.timeout_s)


def make_metric_exporter(endpoint: OtlpEndpoint, answers: Answers) -> MetricExporter:
    if endpoint.protocol == "grpc":
        return _NotingGrpcMetricExporter(answers, endpoint)
    return OTLPMetricExporter(endpoint=endpoint.url, session=_session(answers), timeout=endpoint.timeout_s)


def _session(answers: Answers) -> requests.Session:
    session = requests.Session()
    session.hooks["response"].append(answers.note_http)
    return session


class _NotingStub:
    """A gRPC stub whose answers are noted; the exporter itself throws them away."""

    def __init__(self, stub: Any, answers: Answers) -> None:
        self._stub = stub
        self._answers = answers

    def Export(self, request: Any, **options: Any) -> Any:  # noqa: N802 - the name in the protocol
        try:
            response = self._stub.Export(request, **options)
        except grpc.RpcError as error:
            self._answers.note_grpc(error)
            raise
        self._answers.note(response)
        return response


class _NotingGrpcSpanExporter(GrpcSpanExporter):
    def __init__(self, answers: Answers, endpoint: OtlpEndpoint) -> None:
        self._answers = answers
        super().__init__(endpoint=endpoint.url, timeout=endpoint.timeout_s)

    def _initialize_channel_and_stub(self) -> None:
        super()._initialize_channel_and_stub()  # type: ignore[no-untyped-call]
        self._client = _NotingStub(self._client, self._answers)  # type: ignore[assignment]


class _NotingGrpcMetricExporter(GrpcMetricExporter):
    def __init__(self, answers: Answers, endpoint: OtlpEndpoint) -> None:
        self._answers = answers
        super().__init__(endpoint=endpoint.url, timeout=endpoint.timeout_s)

    def _initialize_channel_and_stub(self) -> None:
        super()._initialize_channel_and_stub()  # type: ignore[no-untyped-call]
        self._client = _NotingStub(self._client, self._answers)  # type: ignore[assignment]
