"""The README keeps up with the code: every command, option and config key stands there, and nothing else does."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel

from agentbench_otel import cases, cli, config
from agentbench_otel.records.scenario import Mode

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
CODE = "\n".join(re.findall(r"`[^`\n]+`", README) + [text for _, text in FENCES])


Words = tuple[str, ...]


def leaf_commands(command: click.Command, path: Words = ()) -> Iterator[tuple[Words, click.Command]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from leaf_commands(child, (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaf_commands(cli.cli))


def config_keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        for inner in models_in(field.annotation):
            yield from config_keys(inner)


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from models_in(inner)


def command_lines() -> list[list[str]]:
    """The arguments of each ``agentbench-otel …`` line of a console block."""
    lines = "\n".join(text for language, text in FENCES if language == "console").splitlines()
    return [
        shlex.split(part.partition("agentbench-otel ")[2], comments=True)
        for line in lines
        for part in line.split("&&")
        if "agentbench-otel " in part
    ]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_stands_in_the_readme(path: Words) -> None:
    assert f"`{' '.join(path)}" in README or f"agentbench-otel {' '.join(path)}" in README


@pytest.mark.parametrize(
    ("path", "option"),
    [
        pytest.param(path, option, id=" ".join((*path, option)))
        for path, command in COMMANDS.items()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    ],
)
def test_every_option_stands_in_the_line_of_its_command(path: Words, option: str) -> None:
    lines = [line for line in README.splitlines() if re.match(rf"\| `{' '.join(path)}\b", line)]
    assert len(lines) == 1
    assert f"`{option}" in lines[0]


def test_the_readme_names_no_option_that_does_not_exist() -> None:
    known = {option for command in COMMANDS.values() for parameter in command.params for option in parameter.opts}
    known |= {"--version", "--help"}
    table = [line for line in README.splitlines() if re.match(r"\| `\w", line)]
    assert set(re.findall(r"`(--[a-z-]+)", "\n".join(table))) <= known


@pytest.mark.parametrize("arguments", command_lines(), ids=" ".join)
def test_every_command_line_of_the_readme_can_be_parsed(arguments: list[str]) -> None:
    command: click.Command = cli.cli
    while isinstance(command, click.Group):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context("agentbench-otel", list(arguments))  # raises click.UsageError


@pytest.mark.parametrize("key", sorted(set(config_keys(config.Config))))
def test_every_config_key_stands_in_the_readme(key: str) -> None:
    assert re.search(rf"\b{key}\b", CODE)


@pytest.mark.parametrize("key", sorted(set(config_keys(config.Config))))
def test_every_config_key_stands_in_the_example(key: str) -> None:
    example = (Path(config.__file__).parent / "example.yaml").read_text(encoding="utf-8")
    assert re.search(rf"\b{key}:", example)


def test_the_config_of_the_readme_loads(tmp_path: Path) -> None:
    blocks = [text for language, text in FENCES if language == "yaml" and "schema_version" in text]
    assert blocks
    for text in blocks:
        (tmp_path / "readme.yaml").write_text(text, encoding="utf-8")
        assert config.load_config(tmp_path / "readme.yaml").targets


def test_the_config_of_the_readme_is_the_example() -> None:
    """Two examples would drift apart."""
    example = yaml.safe_load((Path(config.__file__).parent / "example.yaml").read_text(encoding="utf-8"))
    assert example in [yaml.safe_load(text) for language, text in FENCES if language == "yaml"]


def test_every_format_stands_in_the_readme() -> None:
    formats = {
        choice
        for command in COMMANDS.values()
        for parameter in command.params
        if isinstance(parameter.type, click.Choice) and str(parameter.name).endswith("format_name")
        for choice in parameter.type.choices
    }
    assert formats == {"table", "json", "markdown", "junit", "jsonl"}
    for choice in formats:
        assert f"`{choice}`" in README


def test_the_metrics_table_of_the_readme_is_what_the_command_prints() -> None:
    told = README.split("<!-- metrics -->\n")[1].split("<!-- /metrics -->")[0]
    assert told == CliRunner().invoke(cli.cli, ["metrics", "--format", "markdown"]).output


def test_every_alert_and_dashboard_stands_in_the_readme() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.rules.yml").read_text("utf-8"))
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert re.findall(r"^\| `(Agentbench\w+)` \|", README, re.MULTILINE) == alerts
    titles = [
        json.loads(file.read_text("utf-8"))["title"].removeprefix("agentbench / ")
        for file in (ROOT / "grafana/dashboards").glob("*.json")
    ]
    for title in titles:
        assert f"| {title} | " in README


def test_pictures_of_the_readme_exist() -> None:
    pictures = re.findall(r"!\[.+?\]\((.+?)\)", README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).is_file()


def test_every_case_and_mode_stands_in_the_readme() -> None:
    for name in (*(case.value for case in cases.CATALOGUE), *(mode.value for mode in Mode)):
        assert re.search(rf"\b{name}\b", CODE)


def test_every_exit_code_stands_in_the_readme() -> None:
    (paragraph,) = (text for text in README.split("\n\n") if "exit code is" in text)
    for code in ("0", "1", "2", "3", "130", "143"):
        assert re.search(rf"\b{code}\b", paragraph)


def test_every_option_has_a_help_text() -> None:
    for path, command in COMMANDS.items():
        assert command.help, path
        for parameter in command.params:
            if isinstance(parameter, click.Option) and "--format" not in parameter.opts:
                assert parameter.help, (path, parameter.name)


def test_files_that_the_readme_names_exist() -> None:
    for name in re.findall(r"`((?:tests|agentbench_otel|grafana|deploy|\.ci)/[\w./-]+)`", README):
        assert (ROOT / name).exists(), name


def test_the_readme_tells_the_python_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in README
