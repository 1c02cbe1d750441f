"""Where telemetry goes, by the config or by the standard variables. Light: it imports no SDK."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from agentbench_otel.config.model import Otlp
from agentbench_otel.errors import InputError
from agentbench_otel.redaction import SHORTEST_SECRET

Signal = Literal["traces", "metrics"]

DEFAULT_TIMEOUT_S = 3.0
"""Shorter than the 10 s of the specification: a process that is told to leave does so within 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpEndpoint:
    """Where a signal goes. ``url`` None: the exporter reads the standard variables itself."""

    url: str | None
    protocol: str
    timeout_s: float = DEFAULT_TIMEOUT_S
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values of the headers that are sent: a collector may quote them."""


def find_endpoint(configured: Otlp | None, environment: Mapping[str, str], signal: Signal) -> OtlpEndpoint | None:
    """The endpoint of the config, else that of the ``OTEL_EXPORTER_OTLP_*`` variables.

    None without either, when the config leaves the signal out, when ``OTEL_<SIGNAL>_EXPORTER`` is ``none``, or
    when ``OTEL_SDK_DISABLED`` is true.

    Raises:
        InputError: A variable that asks for what there is not.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower() == "none":
        return None
    timeout_s, secrets = _timeout_s(environment, signal), _header_values(environment, signal)
    if configured is not None:
        if signal not in configured.signals:
            return None
        base = configured.endpoint.rstrip("/")
        url = base if configured.protocol == "grpc" else f"{base}/v1/{signal}"
        return OtlpEndpoint(url=url, protocol=configured.protocol, timeout_s=timeout_s, secrets=secrets)
    if not _told(environment, signal, "ENDPOINT"):
        return None
    name, protocol = _told(environment, signal, "PROTOCOL") or ("", "http/protobuf")
    if protocol not in ("http/protobuf", "grpc"):
        raise InputError(f"{name}: is {protocol[:64]!r}; allowed are http/protobuf and grpc")
    return OtlpEndpoint(url=None, protocol=protocol, timeout_s=timeout_s, secrets=secrets)


def _timeout_s(environment: Mapping[str, str], signal: Signal) -> float:
    told = _told(environment, signal, "TIMEOUT")
    if told is None:
        return DEFAULT_TIMEOUT_S
    name, text = told
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s <= 3600:
        raise InputError(f"{name}: is {text[:64]!r}; allowed is a number of seconds above 0, up to 3600")
    return timeout_s


def _header_values(environment: Mapping[str, str], signal: Signal) -> tuple[str, ...]:
    """With the words of each, since a token stands behind the word Bearer."""
    _, text = _told(environment, signal, "HEADERS") or ("", "")
    values = [unquote(pair.partition("=")[2]).strip() for pair in text.split(",")]
    pieces = [piece for value in values for piece in (value, *value.split())]
    return tuple(piece for piece in dict.fromkeys(pieces) if len(piece) >= SHORTEST_SECRET)


def _told(environment: Mapping[str, str], signal: Signal, what: str) -> tuple[str, str] | None:
    """The variable of the signal, else the general one, and its value; None when neither says anything."""
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}"):
        value = environment.get(name, "").strip()
        if value:
            return name, value
    return None
