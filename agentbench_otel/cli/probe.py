"""``probe``: one raw model call, and everything that came back."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentbench_otel.cli.output import format_choice, to_json, write_stdout
from agentbench_otel.errors import InputError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from agentbench_otel.config.model import Target
    from agentbench_otel.records.chat import ToolSpec

_OPTIONS = {
    "base_url": "--base-url",
    "model": "--model",
    "api_key_env": "--api-key-env",
    "headers": "--header",
    "max_tokens": "--max-tokens",
    "timeouts.connect_s": "--timeout-connect",
    "timeouts.first_byte_s": "--timeout-first-byte",
    "timeouts.idle_s": "--timeout-idle",
}


@click.command()
@click.option("--base-url", required=True, help="As in a config; only /chat/completions is appended.")
@click.option("--model", required=True, help="The model to ask for.")
@click.option("--message", default="Hello.", show_default=True, help="What the user says.")
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME",
    help="A built-in tool or a JSON Schema file; repeatable.",
)
@click.option("--api-key-env", help="The environment variable that holds the key.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="An extra header; may be repeated.")
@click.option("--max-tokens", type=int, default=128, show_default=True, help="The cap of the answer.")
@click.option("--timeout-connect", type=float, default=5.0, show_default=True, help="Seconds, to a connection.")
@click.option("--timeout-first-byte", type=float, default=60.0, show_default=True, help="Seconds, from there.")
@click.option("--timeout-idle", type=float, default=30.0, show_default=True, help="Seconds, between two bytes.")
@format_choice("table", "json", meaning="table is for reading, json has everything.")
def probe(
    *,
    base_url: str,
    model: str,
    message: str,
    tools: tuple[str, ...],
    api_key_env: str | None,
    headers: tuple[str, ...],
    max_tokens: int,
    timeout_connect: float,
    timeout_first_byte: float,
    timeout_idle: float,
    format_name: str,
) -> None:
    """Make one raw model call against any endpoint and show everything that was received and timed.

    The tool to reach for when an endpoint behaves strangely: no agent, no tool handlers, no expectation. Exit
    code 0 when the call succeeded, 3 when it failed. Tool names are shown as the server sent them.
    """
    from agentbench_otel import app

    target = _target(
        {
            "name": "probe",
            "base_url": base_url,
            "model": model,
            "api_key_env": api_key_env,
            "headers": _headers(headers),
            "max_tokens": max_tokens,
            "timeouts": {
                "connect_s": timeout_connect,
                "first_byte_s": timeout_first_byte,
                "idle_s": timeout_idle,
            },
        }
    )
    specs = [_tool(name) for name in tools]
    try:
        result = app.probe_endpoint(target, api_key=_api_key(target), message=message, tools=specs)
    except KeyboardInterrupt:
        sys.exit(130)
    if format_name == "json":
        write_stdout(to_json(result))
    else:
        from agentbench_otel.reports.probe import render_probe

        write_stdout(render_probe(result))
    sys.exit(0 if result.error is None else 3)


def _target(settings: dict[str, Any]) -> "Target":
    from pydantic import ValidationError

    from agentbench_otel.config.model import Target
    from agentbench_otel.config.problems import path_words, problem_words

    try:
        return Target.model_validate(settings)
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False):
            path = problem["loc"]
            option = _OPTIONS.get(path_words(path), _OPTIONS.get(str(path[0]), path_words(path)))
            lines.append(f"{option}: {problem_words(problem, path)}")
        raise InputError("\n".join(lines)) from None


def _headers(values: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for value in values:
        name, colon, content = value.partition(":")
        if not colon:
            raise InputError("--header: has no colon; write NAME:VALUE")
        headers[name.strip()] = content.strip()
    return headers


def _api_key(target: "Target") -> "SecretStr | None":
    from agentbench_otel.config.secrets import resolve_api_key

    try:
        return resolve_api_key(target, os.environ)
    except ValueError as problem:
        raise InputError(f"--api-key-env: {problem}") from None


def _tool(name: str) -> "ToolSpec":
    """A built-in tool by its name, else a file: a JSON Schema of an object, or {name, description, parameters}."""
    import json

    from agentbench_otel import app
    from agentbench_otel.cases import TOOL_NAMES
    from agentbench_otel.config.problems import nearest
    from agentbench_otel.records.chat import ToolSpec

    built_in = app.built_in_tool(name)
    if built_in is not None:
        return built_in
    file = Path(name)
    if not file.exists():
        known = ", ".join(TOOL_NAMES)
        raise InputError(
            f"--tool {name}: no such tool{nearest(name, list(TOOL_NAMES))} and no such file; built in are {known}"
        )
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--tool {name}: can't be read: {error.strerror}") from None
    except ValueError:
        raise InputError(f"--tool {name}: is no JSON; give a JSON Schema of an object") from None
    if not isinstance(document, dict):
        raise InputError(f"--tool {name}: is no JSON object; give a JSON Schema of an object")
    parameters = document.get("parameters", document)
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        raise InputError(f'--tool {name}: has no parameters of "type": "object"')
    return ToolSpec(
        name=str(document.get("name") or file.stem),
        description=str(document.get("description", "")),
        parameters=parameters,
    )
