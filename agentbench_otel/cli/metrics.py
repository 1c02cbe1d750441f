"""``metrics``: what ``/metrics`` and an OTLP push hold."""

import click

from agentbench_otel.cli.output import format_choice


@click.command()
@format_choice("table", "json", "markdown", meaning="json has buckets and OTel names too.")
@click.option(
    "--semconv",
    type=click.Choice(("1.41", "next")),
    default="1.41",
    show_default=True,
    help="The GenAI conventions, as in `telemetry.semconv`.",
)
def metrics(*, format_name: str, semconv: str) -> None:
    """List every metric: its Prometheus and OpenTelemetry name, unit, labels and meaning."""
    from agentbench_otel.names import metrics_of, prometheus_label

    wanted = metrics_of("next" if semconv == "next" else "1.41")
    if format_name == "json":
        import json
        from dataclasses import asdict

        documents = [{**asdict(metric), "prometheus_name": metric.prometheus_name} for metric in wanted]
        click.echo(json.dumps({"schema_version": 1, "metrics": documents}, indent=2))
        return
    rows = [
        (one.prometheus_name, one.kind.value, map(prometheus_label, one.labels), one.description) for one in wanted
    ]
    if format_name == "markdown":
        click.echo("| metric | kind | labels | meaning |\n|---|---|---|---|")
        for name, kind, labels, meaning in rows:
            click.echo(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels) or '–'} | {meaning} |")
        return
    for name, kind, labels, meaning in rows:
        click.echo(f"{name}\n  {kind} by {', '.join(labels) or 'nothing'}\n  {meaning}\n")
