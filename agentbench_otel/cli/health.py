"""``health``: the health check of a container, which may have no other HTTP client."""

import sys

import click


@click.command()
@click.option(
    "--url",
    default="http://127.0.0.1:9464/-/healthy",
    show_default=True,
    help="Of the daemon's /-/healthy or /-/ready.",
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Seconds."
)
def health(*, url: str, timeout_s: float) -> None:
    """Ask a daemon whether it is well: exit code 0 when it is, 1 when it is not or does not answer."""
    import httpx

    try:
        answer = httpx.get(url, timeout=timeout_s, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        click.echo(f"{url}: {type(error).__name__}: {error}", err=True)
        sys.exit(1)
    click.echo(answer.text.strip())
    sys.exit(0 if answer.status_code == httpx.codes.OK else 1)
