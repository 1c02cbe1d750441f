"""Who answers the model calls of a target, as attributes of spans and metrics."""

from urllib.parse import urlsplit

from agentbench_otel import names
from agentbench_otel.config.model import Target


def endpoint_attributes(target: Target, *, is_mock: bool) -> dict[str, str | int]:
    """Provider and server; a mock has no server, whatever the config says."""
    if is_mock:
        return {names.PROVIDER_NAME: "mock"}
    server = urlsplit(target.base_url)
    return {
        names.PROVIDER_NAME: target.provider,
        names.SERVER_ADDRESS: server.hostname or "",
        names.SERVER_PORT: server.port or (443 if server.scheme == "https" else 80),
    }
