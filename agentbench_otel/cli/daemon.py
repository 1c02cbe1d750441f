"""``daemon``: cycles on a schedule."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="The targets, and when to run what."
)
@click.option(
    "--mock",
    is_flag=True,
    help="Answer from the cases' own scripts, at varying speed and with a failure now and then: a first look.",
)
@click.option("--run-now", is_flag=True, help="Begin with a cycle of every target, due or not.")
@click.option(
    "--log-format",
    type=click.Choice(("logfmt", "json")),
    default="logfmt",
    show_default=True,
    help="Of the lines on stderr.",
)
def daemon(*, config_file: Path | None, mock: bool, run_now: bool, log_format: str) -> None:
    """Measure on a schedule, keep every result, serve /metrics and a status page.

    SIGHUP reads the config again. SIGTERM and SIGINT let the run in flight end; a second one leaves at once.
    """
    if config_file is None and not mock:
        raise click.UsageError("give --config FILE, or --mock for a first look")
    from agentbench_otel import app
    from agentbench_otel.daemon.logs import log_to_stderr
    from agentbench_otel.loop import leave

    log_to_stderr("json" if log_format == "json" else "logfmt")
    leave(app.run_daemon(config_file, is_mock=mock, run_now=run_now, environment=app.environment()))
