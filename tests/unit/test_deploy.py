"""The files of ``deploy/``: valid, hardened, and in agreement with each other and with the daemon."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from agentbench_otel import app, cli
from agentbench_otel.config import load_config
from tests.support.promql import grouping_labels, known_metric, parse, selectors

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
OF_OTHERS = ("kustomization", "servicemonitor")  # not of Kubernetes itself: no schema is to be had
RUNBOOK = (DEPLOY / "RUNBOOK.md").read_text("utf-8")
BIN = Path(sys.executable).parent
MUST = os.environ.get("AGENTBENCH_REQUIRE_STACK") == "1"


def load(*path: str) -> Any:
    return yaml.safe_load(DEPLOY.joinpath(*path).read_text("utf-8"))


COMPOSE = load("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ALERTS = [rule for group in load("prometheus", "alerts.rules.yml")["groups"] for rule in group["rules"]]
RECORDED = [rule for group in load("prometheus", "recording.rules.yml")["groups"] for rule in group["rules"]]
EACH_SERVICE = pytest.mark.parametrize("name", SERVICES)
EACH_ALERT = pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])


def ran(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, encoding="utf-8", check=False)


# --- configs of the daemon -------------------------------------------------------------------------------------


def test_the_example_config_is_one(tmp_path: Path) -> None:
    config = load_config(DEPLOY / "agentbench.yaml")
    app.check_schedules(config)
    assert config.web.listen.endswith(":9464")


def test_the_config_of_kubernetes_is_one(tmp_path: Path) -> None:
    (tmp_path / "agentbench.yaml").write_text(
        load("kubernetes", "configmap.yaml")["data"]["agentbench.yaml"], encoding="utf-8"
    )
    config = load_config(tmp_path / "agentbench.yaml")
    app.check_schedules(config)
    deployment = load("kubernetes", "deployment.yaml")["spec"]["template"]["spec"]
    (container,) = deployment["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert str(Path(config.history.path).parent) in mounts
    assert str(Path(config.targets[0].api_key_file or "").parent) in mounts


# --- compose ---------------------------------------------------------------------------------------------------


def test_compose_fits_its_schema() -> None:
    done = ran(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_linter_of_compose_files_finds_nothing_grave() -> None:
    done = ran(BIN / "compose-lint", "deploy/compose.yaml")
    assert done.returncode == 0, done.stdout


@EACH_SERVICE
def test_a_service_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service["user"].startswith(("0", "root"))
    assert service["mem_limit"]
    assert "privileged" not in service


@EACH_SERVICE
def test_a_service_is_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert port.startswith("127.0.0.1:")


@EACH_SERVICE
def test_an_image_has_a_tag_and_no_invented_digest(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].rpartition(":")
    assert image
    assert re.fullmatch(r"v?\d+\.\d+\.\d+|local", tag)


@EACH_SERVICE
def test_what_is_mounted_is_there(name: str) -> None:
    for mount in SERVICES[name].get("volumes", ()):
        source = mount.split(":")[0]
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
            assert mount.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


@EACH_SERVICE
def test_a_service_has_a_health_check_where_its_image_can(name: str) -> None:
    assert ("healthcheck" in SERVICES[name]) == (name != "jaeger")  # its image holds nothing but Jaeger


def test_secrets_come_from_files() -> None:
    grafana = SERVICES["grafana"]
    assert grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"] == "/run/secrets/grafana-admin"
    assert COMPOSE["secrets"]["grafana-admin"] == {"file": "./secrets/grafana-admin"}
    assert "GF_AUTH_ANONYMOUS_ENABLED" not in grafana["environment"]


def test_services_find_each_other() -> None:
    prometheus = load("prometheus", "prometheus.yml")
    (scrape,) = [job for job in prometheus["scrape_configs"] if job["job_name"] == "agentbench"]
    assert scrape["static_configs"] == [{"targets": ["agentbench:9464"]}]
    assert prometheus["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == ["alertmanager:9093"]
    otlp = load("agentbench.yaml")["telemetry"]["otlp"]
    jaeger = load("jaeger", "config.yaml")
    assert otlp["endpoint"] == "http://jaeger:4318"
    assert jaeger["receivers"]["otlp"]["protocols"]["http"]["endpoint"] == "0.0.0.0:4318"
    sources = yaml.safe_load((ROOT / "grafana/provisioning/datasources/agentbench.yaml").read_text("utf-8"))
    for source in sources["datasources"]:
        host, _, port = source["url"].removeprefix("http://").partition(":")
        assert host in SERVICES
        assert f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]


def test_rules_are_mounted_where_prometheus_looks_for_them() -> None:
    (pattern,) = load("prometheus", "prometheus.yml")["rule_files"]
    assert pattern == "rules/*.yml"
    mounted = [mount.split(":")[1] for mount in SERVICES["prometheus"]["volumes"] if "rules" in mount]
    assert sorted(mounted) == [
        "/etc/prometheus/rules/alerts.rules.yml",
        "/etc/prometheus/rules/recording.rules.yml",
    ]


def test_every_part_of_the_jaeger_config_is_defined() -> None:
    jaeger = load("jaeger", "config.yaml")
    assert set(jaeger["service"]["extensions"]) == set(jaeger["extensions"])
    pipeline = jaeger["service"]["pipelines"]["traces"]
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(jaeger[kind])
    store = jaeger["exporters"]["jaeger_storage_exporter"]["trace_storage"]
    assert store in jaeger["extensions"]["jaeger_storage"]["backends"]
    assert jaeger["extensions"]["jaeger_query"]["storage"]["traces"] == store


# --- images, Kubernetes, systemd -------------------------------------------------------------------------------


def test_a_linter_of_dockerfiles_finds_nothing() -> None:
    done = ran(BIN / "hadolint", "deploy/Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_nobody_special_and_asks_for_its_health() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    _, final = text.split("FROM python")[1:]
    assert "USER 10001:10001" in final
    assert 'CMD ["agentbench-otel", "health"]' in final
    assert "pip install" not in final
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in copied.split():
            assert (ROOT / source).exists(), source


@pytest.mark.parametrize("name", [file.name for file in KUBERNETES if file.stem not in OF_OTHERS])
def test_a_manifest_fits_the_schema_of_kubernetes(name: str) -> None:
    file = DEPLOY / "kubernetes" / name
    done = ran(BIN / "kubernetes-validate", "--strict", "-k", "1.33", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_kustomization_lists_every_manifest() -> None:
    listed = load("kubernetes", "kustomization.yaml")["resources"]
    assert sorted(listed) == [file.name for file in KUBERNETES if file.stem != "kustomization"]


def test_kubernetes_never_runs_two_daemons_and_probes_what_there_is() -> None:
    deployment = load("kubernetes", "deployment.yaml")["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
    assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert (
        pod["terminationGracePeriodSeconds"] > load_config(DEPLOY / "agentbench.yaml").daemon.shutdown_grace + 10
    )


@pytest.mark.skipif(not MUST and shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_the_unit_is_one_and_is_hardened(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "agentbench-otel.service").read_text("utf-8")
    unit = tmp_path / "agentbench-otel.service"
    unit.write_text(text.replace("/opt/agentbench/bin/agentbench-otel", "/bin/true"), encoding="utf-8")
    verified = ran("systemd-analyze", "verify", unit)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = ran("systemd-analyze", "security", "--offline=yes", "--threshold=20", unit)
    assert judged.returncode == 0, judged.stdout[-400:]
    for line in ("Type=notify", "WatchdogSec=60", "DynamicUser=yes", "LoadCredential=", "TimeoutStopSec=90"):
        assert line in text


# --- commands --------------------------------------------------------------------------------------------------


def commands() -> list[list[str]]:
    """What the files run of ours, as arguments."""
    github = load("github", "agentbench.yml")
    steps = [step["run"] for job in github["jobs"].values() for step in job["steps"] if "run" in step]
    lines = [line.split()[1:] for line in steps if line.startswith("agentbench-otel ")]
    lines.append(list(SERVICES["agentbench"]["command"]))
    lines.append(list(SERVICES["agentbench"]["healthcheck"]["test"][2:]))
    lines.append(load("kubernetes", "deployment.yaml")["spec"]["template"]["spec"]["containers"][0]["args"])
    unit = (DEPLOY / "systemd" / "agentbench-otel.service").read_text("utf-8")
    lines += [line.split()[1:] for line in unit.splitlines() if line.startswith("ExecStart=")]
    return lines


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_a_command_can_be_parsed(arguments: list[str]) -> None:
    name, *rest = arguments
    command = cli.cli.commands[name]
    assert isinstance(command, click.Command)
    command.make_context(name, list(rest))  # raises click.UsageError


# --- alerts ----------------------------------------------------------------------------------------------------


@EACH_ALERT
def test_an_alert_says_what_it_means_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert len(alert["annotations"]["summary"]) > 10
    assert len(alert["annotations"]["description"]) > 10
    assert alert["annotations"]["runbook_url"] == f"deploy/RUNBOOK.md#{alert['alert'].lower()}"


def test_the_runbook_has_a_page_per_alert_and_no_other() -> None:
    pages = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert pages == [alert["alert"] for alert in ALERTS]
    for page in re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:]:
        for part in ("**Means**", "**Look**", "**Do**"):
            assert part in page, page[:30]


@pytest.mark.parametrize("rule", ALERTS + RECORDED, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_asks_for_metrics_and_labels_that_there_are(rule: dict[str, Any]) -> None:
    expr = parse(rule["expr"].replace("$", ""))
    labels = {"job", "instance"}
    for selector in selectors(expr):
        metric = known_metric(selector.metric)
        if metric is not None:
            labels |= set(metric.labels)
            assert set(selector.matchers) <= {*metric.labels, "job", "instance"}
        else:
            assert selector.metric == "up" or selector.metric in {one["record"] for one in RECORDED}
            labels |= {"target", "case", "mode"}
    assert set(grouping_labels(expr)) <= labels


def test_metrics_in_the_runbook_are_ours() -> None:
    for name in set(re.findall(r"`(agentbench_\w+)`", RUNBOOK)):
        assert known_metric(name) is not None, name


def test_alertmanager_knows_both_severities_and_what_hides_what() -> None:
    config = load("alertmanager", "alertmanager.yml")
    receivers = {receiver["name"] for receiver in config["receivers"]}
    assert receivers == {alert["labels"]["severity"] for alert in ALERTS}
    assert config["route"]["receiver"] in receivers
    assert {route["receiver"] for route in config["route"]["routes"]} <= receivers
    (inhibited,) = config["inhibit_rules"]
    assert 'alertname="AgentbenchDown"' in inhibited["source_matchers"]


def test_every_alert_has_a_unit_test_that_sees_it_fire_and_one_that_sees_it_silent() -> None:
    cases = [
        case
        for test in load("prometheus", "tests", "alerts_test.yml")["tests"]
        for case in test["alert_rule_test"]
    ]
    fired = {case["alertname"] for case in cases if case["exp_alerts"]}
    silent = {case["alertname"] for case in cases if not case["exp_alerts"]}
    names_of_alerts = {alert["alert"] for alert in ALERTS}
    assert fired == silent == names_of_alerts
