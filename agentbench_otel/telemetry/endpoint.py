"""Where telemetry goes, by the config or by the standard variables. Light: it imports no SDK."""

from collections.abc import Mapping
from dataclasses import dataclass

from agentbench_otel.config.model import Otlp


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpEndpoint:
    """Where spans go. ``url`` None: the exporter reads the standard variables itself."""

    url: str | None
    protocol: str


def find_endpoint(configured: Otlp | None, environment: Mapping[str, str]) -> OtlpEndpoint | None:
    """The endpoint of the config, else that of the ``OTEL_EXPORTER_OTLP_*`` variables; None without either, or
    when ``OTEL_SDK_DISABLED`` is true."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if configured is not None:
        return OtlpEndpoint(url=configured.endpoint.rstrip("/"), protocol=configured.protocol)
    named = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if not any(environment.get(name, "").strip() for name in named):
        return None
    protocol = (
        environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    return OtlpEndpoint(url=None, protocol=protocol.strip())
