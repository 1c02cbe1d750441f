"""The pages for people, as complete HTML documents: no script, no inline style, nothing from elsewhere."""

from agentbench_otel.daemon.pages.problem import render_problem
from agentbench_otel.daemon.pages.run import render_run
from agentbench_otel.daemon.pages.status import render_status

__all__ = ["render_problem", "render_run", "render_status"]
