"""The command line. A command's module imports only click at its top; what is heavy is imported inside the
command, so that ``--help`` stays fast."""

import sys

import click

from agentbench_otel import __version__
from agentbench_otel.cli.cases import cases
from agentbench_otel.cli.config import config
from agentbench_otel.cli.daemon import daemon
from agentbench_otel.cli.health import health
from agentbench_otel.cli.history import history
from agentbench_otel.cli.measure import measure
from agentbench_otel.cli.metrics import metrics
from agentbench_otel.cli.once import once
from agentbench_otel.cli.probe import probe
from agentbench_otel.errors import InputError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="agentbench-otel")
def cli() -> None:
    """Measure LLM agents, and read every number from the OpenTelemetry spans of the turn.

    Exit codes: 0 all runs passed, 1 internal error, 2 wrong usage or config, 3 at least one run failed,
    130 and 143 ended by a signal.
    """


for command in (once, daemon, history, measure, probe, metrics, cases, config, health):
    cli.add_command(command)


def main() -> None:
    """The console script."""
    try:
        cli()
    except InputError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
