"""OTLP receivers in this process, over HTTP and gRPC, that keep what arrives and answer as they are told."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(slots=True)
class Received:
    """``url``: for a config's ``otlp.endpoint``. ``headers``: of the last request, in lower case."""

    url: str = ""
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

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
    def resource(self) -> dict[str, str]:
        return {one.key: one.value.string_value for one in self.requests[0].resource_spans[0].resource.attributes}


@contextmanager
def http_receiver(*, status: int = 200, rejected: int = 0, delay_s: float = 0.0) -> Iterator[Received]:
    received = Received()
    answer = ExportTraceServiceResponse()
    if rejected:
        answer.partial_success.CopyFrom(ExportTracePartialSuccess(rejected_spans=rejected, error_message="quota"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.headers = {name.lower(): value for name, value in self.headers.items()}
            assert self.path == "/v1/traces"
            received.requests.append(ExportTraceServiceRequest.FromString(body))
            time.sleep(delay_s)
            payload = answer.SerializeToString()
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class named it
            """Nothing is logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield received
        server.shutdown()


@contextmanager
def grpc_receiver() -> Iterator[Received]:
    received = Received()

    def export(request: ExportTraceServiceRequest, context: grpc.ServicerContext) -> ExportTraceServiceResponse:
        received.headers = {str(key): str(value) for key, value in context.invocation_metadata()}
        received.requests.append(request)
        return ExportTraceServiceResponse()

    service = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.trace.v1.TraceService",
        {
            "Export": grpc.unary_unary_rpc_method_handler(
                export,
                request_deserializer=ExportTraceServiceRequest.FromString,
                response_serializer=ExportTraceServiceResponse.SerializeToString,
            )
        },
    )
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((service,))
    received.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield received
    finally:
        server.stop(None).wait()
