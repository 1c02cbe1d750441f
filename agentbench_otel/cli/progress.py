"""Progress on stderr: a line that is overwritten on a terminal, plain lines elsewhere.

It writes only between runs: a spinner's thread would compete with the stream that is being measured.
"""

import sys
from typing import TYPE_CHECKING, Self

from agentbench_otel.cli.output import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench_otel.records.results import RunResult
    from agentbench_otel.records.spans import SpanRecord
    from agentbench_otel.runner import RunPlan


class Progress:
    """A sink that tells of each run as it ends; a live line is gone when the block is left."""

    def __init__(self, run_count: int) -> None:
        self._run_count = run_count
        self._ended_count = 0
        self._is_live = sys.stderr.isatty()
        self._has_line = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the live line away, so that nothing of it stands beside what is printed next."""
        if self._has_line:
            tell("\r\x1b[K", nl=False)
            self._has_line = False

    def start(self, plan: "RunPlan") -> None:
        if self._is_live:
            self._has_line = True
            label = f"{plan.target.name} {plan.case_id.value} {plan.mode.value} #{plan.iteration}"
            tell(f"\r\x1b[K[{self._ended_count + 1}/{self._run_count}] {label} …", nl=False)

    def accept(self, result: "RunResult", spans: "Sequence[SpanRecord]") -> None:
        del spans
        self._ended_count += 1
        if self._is_live:
            return
        wall = "" if result.turn_wall_time_ms is None else f" {result.turn_wall_time_ms:.1f} ms"
        label = f"{result.target} {result.case_id.value} {result.mode.value} #{result.iteration}"
        tell(f"[{self._ended_count}/{self._run_count}] {label} {result.status.value}{wall}")
