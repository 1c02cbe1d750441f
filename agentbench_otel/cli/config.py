"""``config``: check a config, print its schema, write an example."""

from pathlib import Path

import click


@click.group()
def config() -> None:
    """Check a config file, print its JSON Schema, or write an example."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(*, file: Path) -> None:
    """Validate FILE and the keys that it names; exit 0 or 2, one line per problem."""
    from agentbench_otel import app

    loaded, _ = app.load_live_config(file, app.environment())
    runs = loaded.benchmark.runs_per_case * len(loaded.benchmark.cases) * len(loaded.benchmark.modes)
    click.echo(f"{file}: ok: {len(loaded.targets)} target(s), {runs} run(s) each per cycle")


@config.command()
def schema() -> None:
    """Print the JSON Schema of the config, for editors."""
    import json

    from agentbench_otel.config.model import config_schema

    click.echo(json.dumps(config_schema(), indent=2))


@config.command()
@click.argument("file", type=click.Path(path_type=Path), default="agentbench.yaml")
def init(*, file: Path) -> None:
    """Write the commented example to FILE (default: agentbench.yaml); an existing file is left alone."""
    from importlib.resources import files

    from agentbench_otel.errors import InputError

    example = files("agentbench_otel.config").joinpath("example.yaml").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(example)
    except FileExistsError:
        raise InputError(f"{file}: exists already; it is left as it is, name another file") from None
    except OSError as error:
        raise InputError(f"{file}: can't be written: {error.strerror}") from None
    click.echo(f"{file}: written; set base_url and model, then run: agentbench-otel once --config {file}")
