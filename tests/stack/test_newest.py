"""The files of ``deploy/`` in the newest Prometheus and in a real Jaeger: what they are written for."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.stack import go_programs
from tests.stack.monitoring import DEPLOY, deployed_jaeger, deployed_prometheus
from tests.stack.test_stack import ran, until
from tests.support.daemon import a_target, config_of, running_daemon

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(
        not go_programs.has_go(), reason="there is no Go to build the newest Prometheus and Jaeger with"
    ),
]


def fetch(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as answer:
        return json.load(answer)


def test_the_newest_promtool_takes_rules_tests_and_config(tmp_path: Path) -> None:
    promtool, rules = go_programs.promtool(), DEPLOY / "prometheus"
    files = [rules / "recording.rules.yml", rules / "alerts.rules.yml"]
    assert ran(promtool, "check", "rules", "--lint-fatal", *files).count("SUCCESS") == 2
    assert "SUCCESS" in ran(promtool, "test", "rules", rules / "tests" / "alerts_test.yml")
    (tmp_path / "rules").mkdir()
    for file in files:
        (tmp_path / "rules" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "prometheus.yml").write_bytes((rules / "prometheus.yml").read_bytes())
    assert "2 rule files found" in ran(promtool, "check", "config", tmp_path / "prometheus.yml")


def test_an_exemplar_in_the_newest_prometheus_leads_to_its_trace_in_jaeger(tmp_path: Path) -> None:
    for name in ("prometheus", "jaeger"):
        (tmp_path / name).mkdir()
    with deployed_jaeger(tmp_path / "jaeger", go_programs.jaeger()) as (otlp_url, query_url):
        config = config_of(
            [a_target()],
            benchmark={"run_deadline_s": 5.0, "cases": ["parallel_volume_schedule"]},
            telemetry={"otlp": {"endpoint": otlp_url, "signals": ["traces"]}},
        )
        with (
            running_daemon(config, "--mock", cwd=tmp_path) as daemon,
            deployed_prometheus(
                tmp_path / "prometheus", scraped=urlsplit(daemon.url).netloc, program=go_programs.prometheus()
            ) as prometheus,
        ):
            runs = {run["trace_id"]: run for run in daemon.until_runs(2)}

            def exemplars() -> set[str]:
                now_s = time.time()
                found = prometheus.ask(
                    "query_exemplars",
                    query="agentbench_turn_wall_seconds_bucket",
                    start=str(now_s - 600),
                    end=str(now_s),
                )
                return {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}

            until(lambda: exemplars() == set(runs), "the exemplars of both runs")
            for trace_id, run in runs.items():
                (trace,) = until(lambda: fetch(f"{query_url}/api/traces/{trace_id}")["data"], "the trace")  # noqa: B023
                names = [span["operationName"] for span in trace["spans"]]
                assert "agentbench.run parallel_volume_schedule" in names
                assert sum(name.startswith("execute_tool") for name in names) == run["tool_count"]
            build = prometheus.ask("status/buildinfo")
    assert "version" in build
