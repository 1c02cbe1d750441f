"""What a process tells of itself, read when it is asked: nothing is recorded twice, nothing is kept here."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource

from agentbench_otel import __version__, names
from agentbench_otel.names import Metric, MetricKind

Readings = Iterable[tuple[float, Mapping[str, str]]]
"""Values with their attributes; none where nothing is known."""


class OwnMetrics:
    """Observable instruments over the state of the process."""

    def __init__(
        self,
        readers: Sequence[MetricReader],
        *,
        resource: Resource,
        sources: Mapping[Metric, Callable[[], Readings]],
    ) -> None:
        """``sources`` are called from the threads that scrape and push."""
        self._provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        meter = self._provider.get_meter(names.SCOPE, __version__)
        for metric, read in sources.items():
            is_counter = metric.kind is MetricKind.COUNTER
            create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
            create(metric.name, [_callback(read)], unit=metric.unit, description=metric.description)

    def shutdown(self) -> None:
        self._provider.shutdown()


def _callback(read: Callable[[], Readings]) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        del options
        for value, attributes in read():
            yield Observation(value, dict(attributes))

    return observe
