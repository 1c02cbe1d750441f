"""Where a signal goes: by the config, else by the standard variables; what OTLP does not have is refused."""

from collections.abc import Mapping

import pytest

from agentbench_otel.config.model import Otlp
from agentbench_otel.errors import InputError
from agentbench_otel.telemetry.endpoint import DEFAULT_TIMEOUT_S, OtlpEndpoint, Signal, find_endpoint

SIGNALS: tuple[Signal, ...] = ("traces", "metrics")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HERE = {ENDPOINT: "http://collector:4318"}


def found(variables: Mapping[str, str], configured: Otlp | None = None) -> dict[str, OtlpEndpoint | None]:
    return {signal: find_endpoint(configured, variables, signal) for signal in SIGNALS}


def test_without_config_and_variables_nothing_leaves() -> None:
    assert found({}) == dict.fromkeys(SIGNALS)
    assert found({ENDPOINT: " "}) == dict.fromkeys(SIGNALS)


@pytest.mark.parametrize(
    ("protocol", "urls"),
    [
        ("http/protobuf", {"traces": "http://c:1/base/v1/traces", "metrics": "http://c:1/base/v1/metrics"}),
        ("grpc", {"traces": "http://c:1/base", "metrics": "http://c:1/base"}),
    ],
)
@pytest.mark.parametrize("slash", ["", "/"])
def test_the_config_comes_before_the_variables(protocol: str, urls: Mapping[str, str], slash: str) -> None:
    configured = Otlp.model_validate({"endpoint": f"http://c:1/base{slash}", "protocol": protocol})
    variables = {**HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}
    assert found(variables, configured) == {
        signal: OtlpEndpoint(url=url, protocol=protocol) for signal, url in urls.items()
    }


def test_the_exporter_itself_reads_an_address_from_the_variables() -> None:
    assert found(HERE) == dict.fromkeys(SIGNALS, OtlpEndpoint(url=None, protocol="http/protobuf"))


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_variable_of_one_signal_sends_that_one_alone(signal: Signal) -> None:
    endpoints = found({f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT": "http://c/v1/x"})
    assert {one for one, endpoint in endpoints.items() if endpoint is not None} == {signal}


@pytest.mark.parametrize("signal", SIGNALS)
def test_the_config_may_push_one_signal_alone(signal: Signal) -> None:
    endpoints = found(HERE, Otlp(endpoint="http://c", signals=(signal,)))
    assert {one for one, endpoint in endpoints.items() if endpoint is not None} == {signal}


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("configured", [None, Otlp(endpoint="http://c")])
def test_an_exporter_that_is_none_sends_nothing(signal: Signal, configured: Otlp | None) -> None:
    endpoints = found({**HERE, f"OTEL_{signal.upper()}_EXPORTER": " None "}, configured)
    assert {one for one, endpoint in endpoints.items() if endpoint is None} == {signal}


@pytest.mark.parametrize("text", ["true", "TRUE", " True "])
def test_a_disabled_sdk_sends_nothing(text: str) -> None:
    variables = {**HERE, "OTEL_SDK_DISABLED": text}
    assert found(variables, Otlp(endpoint="http://c")) == dict.fromkeys(SIGNALS)
    assert None not in found({**variables, "OTEL_SDK_DISABLED": "1"}).values()


def test_the_protocol_of_a_signal_comes_before_the_general_one() -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "  ",
    }
    endpoints = found({**HERE, **variables})
    assert {signal: endpoint and endpoint.protocol for signal, endpoint in endpoints.items()} == {
        "traces": "grpc",
        "metrics": "http/protobuf",
    }


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"])
def test_a_protocol_that_otlp_does_not_have_is_refused_with_its_variable(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: is 'http/json'; allowed are http/protobuf and grpc$"):
        find_endpoint(None, {**HERE, name: "http/json"}, "metrics")


def test_the_timeout_of_a_signal_comes_before_the_general_one() -> None:
    variables = {"OTEL_EXPORTER_OTLP_TIMEOUT": "7", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "0.5"}
    for configured in (None, Otlp(endpoint="http://c")):
        endpoints = found({**HERE, **variables}, configured)
        assert [endpoint and endpoint.timeout_s for endpoint in endpoints.values()] == [0.5, 7.0]
        defaults = found(HERE, configured)
        assert [one and one.timeout_s for one in defaults.values()] == [DEFAULT_TIMEOUT_S, DEFAULT_TIMEOUT_S]


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "3601", "1e9"])
def test_a_timeout_that_is_none_is_refused_with_its_variable(text: str) -> None:
    with pytest.raises(InputError, match=r"^OTEL_EXPORTER_OTLP_TIMEOUT: is .*; allowed is a number of seconds"):
        find_endpoint(None, {**HERE, "OTEL_EXPORTER_OTLP_TIMEOUT": text}, "traces")


def test_a_long_value_is_not_told_whole() -> None:
    with pytest.raises(InputError) as told:
        find_endpoint(None, {**HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "x" * 10_000}, "traces")
    assert len(str(told.value)) < 200


def test_the_values_of_headers_are_known_as_secrets_and_not_shown() -> None:
    variables = {
        **HERE,
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20t0ken-t0ken, x-key = k3y-k3y-k3y ,x-short=1",
        "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "x-key=only-for-metrics",
    }
    endpoints = found(variables, Otlp(endpoint="http://c"))
    assert {signal: endpoint and endpoint.secrets for signal, endpoint in endpoints.items()} == {
        "traces": ("Bearer t0ken-t0ken", "t0ken-t0ken", "k3y-k3y-k3y"),
        "metrics": ("only-for-metrics",),
    }
    assert "t0ken" not in repr(endpoints)
    assert found(HERE) == dict.fromkeys(SIGNALS, OtlpEndpoint(url=None, protocol="http/protobuf"))
