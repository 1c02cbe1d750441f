"""Good configs: what is written arrives, what is not written has its default, and secrets stay hidden."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from agentbench_otel import app
from agentbench_otel.cli import cli
from agentbench_otel.config import Config, load_config
from agentbench_otel.config.loading import load_config_with_lines
from agentbench_otel.config.secrets import resolve_api_keys
from agentbench_otel.errors import ConfigError
from agentbench_otel.records.scenario import CaseId, Mode

SECRET = "SECRET-7Q4Z"
PASSWORD_HASH = "$2b$12$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"
MINIMAL = (
    "schema_version: 1\ntargets:\n  - name: local\n    base_url: http://127.0.0.1:8080/v1\n    model: small\n"
)
EVERYTHING = f"""
schema_version: 1
targets:
  - name: a-name_of-63-{"x" * 50}
    base_url: https://[::1]:65535/some/path/
    model: "  org/Model:v1.5  "
    api_key_env: LOCAL_KEY
    provider: mistral_ai
    headers: {{X-Key: "{SECRET}", x_2: "a b"}}
    timeouts: {{connect_s: 0.5, first_byte_s: 86400, idle_s: 3}}
    max_tokens: 1
    temperature: 2
    propagate_trace: true
    schedule: {{cron: "*/10 * * * *", timezone: Asia/Shanghai}}
    budget: {{max_runs_per_day: 1, max_tokens_per_day: 200000}}
  - {{name: "2", base_url: http://host.example:1, model: m, api_key_file: key.txt, temperature: null}}
benchmark:
  modes: [chat_agent_tools]
  cases: [session_terminate, ordinary_chat]
  runs_per_case: 7
  warmup_runs: 2
  run_deadline_s: 0.5
  prompt_cache: allow
schedule: {{every: 2h}}
history: {{path: "over there.db", keep: 2w, keep_spans: 1h}}
daemon: {{max_parallel_targets: 64, shutdown_grace: 2m, max_stuck_runs: 1}}
web:
  listen: "[::1]:0"
  enable_lifecycle: true
  tls: {{cert_file: server.crt, key_file: server.key}}
  basic_auth: {{admin: "{PASSWORD_HASH}", "second user": "{PASSWORD_HASH.replace("2b", "2y")}"}}
telemetry:
  otlp: {{endpoint: "http://127.0.0.1:4317", protocol: grpc, signals: [metrics]}}
  capture_content: true
  semconv: next
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a config file in a directory that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "agentbench.yaml"


def load(file: Path, text: str) -> Config:
    file.write_text(text, encoding="utf-8")
    return load_config(file)


# --- defaults and values ---------------------------------------------------------------------------------------


def test_a_target_needs_a_name_a_url_and_a_model(write: Path) -> None:
    (target,) = load(write, MINIMAL).targets
    assert (target.name, target.base_url, target.model) == ("local", "http://127.0.0.1:8080/v1", "small")


def test_defaults_of_a_target(write: Path) -> None:
    (target,) = load(write, MINIMAL).targets
    assert target.api_key_env is None
    assert target.api_key_file is None
    assert target.provider == "openai"
    assert target.headers == {}
    assert (target.timeouts.connect_s, target.timeouts.first_byte_s, target.timeouts.idle_s) == (5, 60, 30)
    assert target.max_tokens == 128
    assert target.temperature == 0
    assert target.propagate_trace is False
    assert target.schedule is None
    assert target.budget is None


def test_defaults_of_the_benchmark_are_all_cases_in_both_modes_once(write: Path) -> None:
    benchmark = load(write, MINIMAL).benchmark
    assert benchmark.modes == (Mode.DUAL_AGENT, Mode.CHAT_AGENT_TOOLS)
    assert benchmark.cases == tuple(CaseId)
    assert len(benchmark.cases) == 6
    assert (benchmark.runs_per_case, benchmark.warmup_runs, benchmark.run_deadline_s) == (1, 0, 120)
    assert benchmark.prompt_cache == "avoid"


def test_defaults_of_the_daemon(write: Path) -> None:
    config = load(write, MINIMAL)
    assert (config.schedule.every, config.schedule.cron, config.schedule.timezone) == (300, None, "UTC")
    assert (config.history.path, config.history.keep) == ("agentbench.db", 90 * 86_400)
    assert config.history.keep_spans == 7 * 86_400
    daemon = config.daemon
    assert (daemon.max_parallel_targets, daemon.shutdown_grace, daemon.max_stuck_runs) == (1, 30, 3)
    assert (config.web.listen, config.web.enable_lifecycle) == ("127.0.0.1:9464", False)
    assert (config.web.tls, config.web.basic_auth) == (None, {})
    telemetry = config.telemetry
    assert (telemetry.otlp, telemetry.capture_content, telemetry.semconv) == (None, False, "1.41")


def test_both_signals_are_pushed_unless_the_config_says_otherwise(write: Path) -> None:
    config = load(write, MINIMAL + "telemetry: {otlp: {endpoint: 'http://h:4318'}}\n")
    assert config.telemetry.otlp is not None
    assert config.telemetry.otlp.signals == ("traces", "metrics")


def test_every_key_of_a_target_arrives(write: Path) -> None:
    first, second = load(write, EVERYTHING).targets
    assert first.name == "a-name_of-63-" + "x" * 50
    assert first.base_url == "https://[::1]:65535/some/path/"
    assert first.model == "org/Model:v1.5"
    assert first.api_key_env == "LOCAL_KEY"
    assert first.provider == "mistral_ai"
    assert {name: value.get_secret_value() for name, value in first.headers.items()} == {
        "X-Key": SECRET,
        "x_2": "a b",
    }
    assert (first.timeouts.connect_s, first.timeouts.first_byte_s, first.timeouts.idle_s) == (0.5, 86400, 3)
    assert (first.max_tokens, first.temperature, first.propagate_trace) == (1, 2, True)
    assert first.schedule is not None
    assert (first.schedule.every, first.schedule.cron) == (None, "*/10 * * * *")
    assert first.schedule.timezone == "Asia/Shanghai"
    assert first.budget is not None
    assert (first.budget.max_runs_per_day, first.budget.max_tokens_per_day) == (1, 200_000)
    assert (second.name, second.api_key_file, second.temperature) == ("2", "key.txt", None)


def test_every_key_outside_the_targets_arrives(write: Path) -> None:
    config = load(write, EVERYTHING)
    assert config.benchmark.modes == (Mode.CHAT_AGENT_TOOLS,)
    assert config.benchmark.cases == (CaseId.SESSION_TERMINATE, CaseId.ORDINARY_CHAT)
    assert (config.benchmark.runs_per_case, config.benchmark.warmup_runs) == (7, 2)
    assert (config.benchmark.run_deadline_s, config.benchmark.prompt_cache) == (0.5, "allow")
    assert config.schedule.every == 7200
    assert (config.history.path, config.history.keep) == ("over there.db", 1_209_600)
    assert config.history.keep_spans == 3600
    daemon = config.daemon
    assert (daemon.max_parallel_targets, daemon.shutdown_grace, daemon.max_stuck_runs) == (64, 120, 1)
    assert (config.web.listen, config.web.enable_lifecycle) == ("[::1]:0", True)
    assert config.web.tls is not None
    assert (config.web.tls.cert_file, config.web.tls.key_file) == ("server.crt", "server.key")
    assert set(config.web.basic_auth) == {"admin", "second user"}
    assert config.web.basic_auth["admin"].get_secret_value() == PASSWORD_HASH
    assert config.telemetry.otlp is not None
    assert (config.telemetry.otlp.endpoint, config.telemetry.otlp.protocol) == ("http://127.0.0.1:4317", "grpc")
    assert config.telemetry.otlp.signals == ("metrics",)
    assert config.telemetry.capture_content is True
    assert config.telemetry.semconv == "next"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("90s", 90), ("5m", 300), ("24h", 86_400), ("90d", 7_776_000), ("1w", 604_800)],
)
def test_a_duration_is_a_number_and_a_unit(write: Path, text: str, seconds: int) -> None:
    assert load(write, f"{MINIMAL}schedule: {{every: {text}}}\n").schedule.every == seconds


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "HTTP://LOCALHOST/v1",
        "https://host.example:443/v1/",
        "http://127.0.0.1:1/v1",
        "http://[2001:db8::1]/v1",
        "http://my_service:8080/v1",
        "http://xn--bcher-kva.example/v1",
        "https://host.example/openai/deployments/gpt%2D4/v1",
    ],
)
def test_usual_base_urls_are_taken_as_they_are(write: Path, url: str) -> None:
    assert load(write, MINIMAL.replace("http://127.0.0.1:8080/v1", url)).targets[0].base_url == url


def test_whole_numbers_serve_as_seconds(write: Path) -> None:
    config = load(write, MINIMAL + "benchmark: {run_deadline_s: 5}\n")
    assert config.benchmark.run_deadline_s == 5


def test_json_is_a_config_too(write: Path) -> None:
    document = {"schema_version": 1, "targets": [{"name": "a", "base_url": "http://h/v1", "model": "m"}]}
    assert load(write, json.dumps(document)).targets[0].name == "a"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(write: Path) -> None:
    write.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_config(write).targets[0].model == "small"


def test_a_date_stays_the_text_that_was_written(write: Path) -> None:
    assert load(write, MINIMAL.replace("small", "2026-12-01")).targets[0].model == "2026-12-01"


def test_anchors_may_save_repetition(write: Path) -> None:
    text = (
        MINIMAL + "    timeouts: &t {connect_s: 1}\n  - {name: b, base_url: http://h/v1, model: m, timeouts: *t}\n"
    )
    assert [target.timeouts.connect_s for target in load(write, text).targets] == [1, 1]


def test_a_config_cannot_be_changed(write: Path) -> None:
    config = load(write, MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        config.benchmark.runs_per_case = 2


# --- secrets ---------------------------------------------------------------------------------------------------


def test_header_values_and_password_hashes_are_hidden_wherever_a_config_is_shown(write: Path) -> None:
    config = load(write, EVERYTHING)
    shown = f"{config!r}{config}{config.model_dump()}{config.model_dump_json()}{config.targets[0].headers}"
    assert "X-Key" in shown
    assert SECRET not in shown
    assert "admin" in shown
    assert PASSWORD_HASH not in shown


def keys_of(file: Path, lines: str, **environment: str) -> dict[str, str | None]:
    """The keys of the targets, those of the lines among them, in clear."""
    file.write_text(MINIMAL + lines, encoding="utf-8")
    config, places = load_config_with_lines(file)
    keys = resolve_api_keys(config, places, environment)
    return {name: None if key is None else key.get_secret_value() for name, key in keys.items()}


def test_a_target_that_names_no_key_has_none(write: Path) -> None:
    assert keys_of(write, "", OPENAI_API_KEY=SECRET) == {"local": None}


def test_a_key_comes_from_the_named_environment_variable(write: Path) -> None:
    assert keys_of(write, "    api_key_env: A_KEY\n", A_KEY=SECRET, B_KEY="other") == {"local": SECRET}


def test_a_key_comes_from_the_named_file(write: Path) -> None:
    Path("key.txt").write_text(SECRET, encoding="utf-8")
    assert keys_of(write, "    api_key_file: key.txt\n", key="other") == {"local": SECRET}


def test_white_space_around_a_key_is_not_part_of_it(write: Path) -> None:
    Path("key.txt").write_text(f"\n {SECRET}\r\n", encoding="utf-8")
    lines = "    api_key_file: key.txt\n  - {name: b, base_url: http://h/v1, model: m, api_key_env: A_KEY}\n"
    assert keys_of(write, lines, A_KEY=f"\t{SECRET} \n") == {"local": SECRET, "b": SECRET}


@pytest.mark.parametrize("key", [f"{SECRET} two", f"{SECRET}\n{SECRET}", f"{SECRET}\x00", f"{SECRET}é"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(write: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=r"yaml:6: targets\[0\]\.api_key_env: .*can't be sent") as refused:
        keys_of(write, "    api_key_env: A_KEY\n", A_KEY=key)
    assert SECRET not in f"{refused.value}{refused.value!r}"


def test_the_name_of_a_variable_is_not_shown_because_it_may_be_the_key(write: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        keys_of(write, "    api_key_env: SECRET_7Q4Z\n")
    assert "SECRET_7Q4Z" not in f"{refused.value}{refused.value!r}"


def test_a_resolved_key_is_hidden_in_repr(write: Path) -> None:
    write.write_text(MINIMAL + "    api_key_env: A_KEY\n", encoding="utf-8")
    config, places = load_config_with_lines(write)
    assert SECRET not in repr(resolve_api_keys(config, places, {"A_KEY": SECRET}))


# --- the example and the schema --------------------------------------------------------------------------------


def example() -> str:
    return files("agentbench_otel.config").joinpath("example.yaml").read_text(encoding="utf-8")


def test_the_example_loads_and_needs_no_key(write: Path) -> None:
    write.write_text(example(), encoding="utf-8")
    config, _ = app.load_live_config(write, {})
    assert [target.name for target in config.targets] == ["local-llama"]


def test_the_example_shows_the_defaults(write: Path) -> None:
    """Nobody is surprised by a line that is left out."""
    shown, minimal = load(write, example()), load(write, MINIMAL)
    assert shown.benchmark == minimal.benchmark
    assert (shown.schedule, shown.history, shown.web) == (minimal.schedule, minimal.history, minimal.web)
    assert (shown.daemon, shown.telemetry) == (minimal.daemon, minimal.telemetry)
    own = {"name": "x", "base_url": "http://x", "model": "x"}
    assert shown.targets[0].model_copy(update=own) == minimal.targets[0].model_copy(update=own)


def test_the_lines_that_are_commented_out_in_the_example_are_valid_too(write: Path) -> None:
    keys = "otlp|api_key_env|schedule|budget|tls|basic_auth"
    text = re.sub(rf"^( +)# ({keys}):", r"\1\2:", example(), flags=re.MULTILINE)
    config = load(write, text.replace("$2b$12$…", PASSWORD_HASH))
    target, web = config.targets[0], config.web
    assert target.api_key_env == "LOCAL_API_KEY"
    assert None not in (target.schedule, target.budget, web.tls, config.telemetry.otlp)
    assert set(web.basic_auth) == {"admin"}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """As ``config schema`` prints it."""
    document: dict[str, Any] = json.loads(CliRunner().invoke(cli, ["config", "schema"]).stdout)
    return document


KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


def mismatches(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "") -> list[str]:
    """Where a validator would complain, for the keywords that pydantic writes; the empty list is "valid"."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return [] if any(not mismatches(value, one, root) for one in schema["anyOf"]) else [path]
    if "type" in schema:
        is_kind = isinstance(value, KINDS[schema["type"]])
        if not is_kind or (isinstance(value, bool) and schema["type"] != "boolean"):
            return [path]
    if isinstance(value, dict):
        return [*_object_mismatches(value, schema, root, path)]
    if isinstance(value, list):
        items = (mismatches(item, schema["items"], root, f"{path}[{n}]") for n, item in enumerate(value))
        return [path] if len(value) < schema.get("minItems", 0) else [*chain.from_iterable(items)]
    return [] if _is_scalar_allowed(value, schema) else [path]


def _object_mismatches(
    value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], path: str
) -> Iterator[str]:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    yield from (f"{path}.{key}" for key in schema.get("required", ()) if key not in value)
    for key, item in value.items():
        if key in known:
            yield from mismatches(item, known[key], root, f"{path}.{key}")
        elif isinstance(others, dict):
            yield from mismatches(item, others, root, f"{path}.{key}")
        elif not others:
            yield f"{path}.{key}"


def _is_scalar_allowed(value: Any, schema: dict[str, Any]) -> bool:
    return all(
        (
            value == schema.get("const", value),
            value in schema.get("enum", [value]),
            "minimum" not in schema or value >= schema["minimum"],
            "exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"],
            "maximum" not in schema or value <= schema["maximum"],
            "pattern" not in schema or re.search(schema["pattern"], value) is not None,
        )
    )


def test_the_json_schema_accepts_the_example(schema: dict[str, Any]) -> None:
    assert mismatches(yaml.safe_load(example()), schema, schema) == []


def test_the_json_schema_accepts_every_key(schema: dict[str, Any]) -> None:
    assert mismatches(yaml.safe_load(EVERYTHING), schema, schema) == []


@pytest.mark.parametrize(
    ("typo", "where"),
    [
        ({"target": []}, ".target"),
        ({"benchmark": {"runs_per_cases": 1}}, ".benchmark.runs_per_cases"),
        ({"benchmark": {"modes": ["dual"]}}, ".benchmark.modes[0]"),
        ({"benchmark": {"runs_per_case": 0}}, ".benchmark.runs_per_case"),
        ({"targets": []}, ".targets"),
        ({"targets": [{"name": "a", "model": "m"}]}, ".targets[0].base_url"),
        ({"schema_version": "1"}, ".schema_version"),
        ({"web": {"enable_lifecycle": "yes"}}, ".web.enable_lifecycle"),
        ({"web": {"tls": {"cert_file": "a"}}}, ".web.tls"),
        ({"daemon": {"max_parallel_targets": 65}}, ".daemon.max_parallel_targets"),
        ({"telemetry": {"semconv": 1.41}}, ".telemetry.semconv"),
        ({"telemetry": {"otlp": {"endpoint": "http://h", "signals": []}}}, ".telemetry.otlp"),
        ({"schedule": {"every": 300}}, ".schedule.every"),  # an editor must not ask for what the loader refuses
    ],
)
def test_the_json_schema_refuses_a_typo(schema: dict[str, Any], typo: dict[str, Any], where: str) -> None:
    document = {**yaml.safe_load(MINIMAL), **typo}
    assert mismatches(document, schema, schema) == [where]


def test_the_json_schema_shows_defaults_that_a_file_may_hold(schema: dict[str, Any]) -> None:
    defaults = {
        f"{name}.{key}": one
        for name, section in {"": schema, **schema["$defs"]}.items()
        for key, one in section.get("properties", {}).items()
        if "default" in one
    }
    assert len(defaults) > 20
    for path, one in defaults.items():
        assert mismatches(one["default"], one, schema, path) == []


def test_a_file_that_spells_out_the_defaults_of_the_json_schema_changes_nothing(
    write: Path, schema: dict[str, Any]
) -> None:
    """Editors offer them; the model has seconds where a file has ``7d``."""
    sections = {"History": "history", "Daemon": "daemon", "Web": "web", "Telemetry": "telemetry"}
    document = yaml.safe_load(MINIMAL)
    for definition, section in sections.items():
        properties = schema["$defs"][definition]["properties"]
        document[section] = {key: one["default"] for key, one in properties.items() if "default" in one}
    document["schedule"] = schema["properties"]["schedule"]["default"]
    assert set(document["daemon"]) == {"max_parallel_targets", "shutdown_grace", "max_stuck_runs"}
    assert document["history"]["keep_spans"] == "7d"
    assert load(write, yaml.safe_dump(document)) == load(write, MINIMAL)


def test_the_json_schema_says_both_signals_are_pushed(schema: dict[str, Any]) -> None:
    signals = schema["$defs"]["Otlp"]["properties"]["signals"]
    assert signals["default"] == ["traces", "metrics"]
    assert (signals["minItems"], signals["uniqueItems"]) == (1, True)


def test_the_json_schema_says_which_dialect_it_is(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
