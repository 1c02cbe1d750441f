"""Who tells all this: the resource of spans and metrics."""

import socket
from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource

from agentbench_otel import __version__


def make_resource(environment: Mapping[str, str]) -> Resource:
    """What the environment says wins; the instance id is stable, because Prometheus makes ``instance`` of it."""
    attributes = {"service.version": __version__}
    told = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not environment.get("OTEL_SERVICE_NAME") and "service.name=" not in told:
        attributes["service.name"] = "agentbench-otel"
    if "service.instance.id=" not in told:
        attributes["service.instance.id"] = socket.gethostname()
    return Resource.create(attributes)
