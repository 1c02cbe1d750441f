"""A `RunResult` to start from; a test changes the fields that it is about."""

from typing import Any

from agentbench_otel.measurement.assemble import assemble
from agentbench_otel.records.results import RunFault, RunResult
from tests.support.clock import MS, T0_NS
from tests.support.spans import RunSpans, item


def a_result(**changes: Any) -> RunResult:
    """A passed run of ``ordinary_chat`` in dual-agent mode: 10 ms of provider in a turn of 12 ms."""
    run = RunSpans()
    run.run(T0_NS, T0_NS + 13 * MS)
    run.turn(T0_NS, T0_NS + 12 * MS)
    run.call(T0_NS, T0_NS + 10 * MS, [item(T0_NS, T0_NS + 10 * MS, is_visible=True)])
    return RunResult.model_validate({**assemble(run.spans).model_dump(), **changes})


FAULT = RunFault(kind="connect_error", message="local can't be reached")
