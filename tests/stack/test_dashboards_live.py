"""Every query of every dashboard against a real Prometheus that scrapes a real daemon: each returns data."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.stack.monitoring import deployed_prometheus
from tests.stack.servers import RunningPrometheus
from tests.support.daemon import a_target, config_of, running_daemon
from tests.support.otlp_receiver import Received, http_receiver
from tests.support.promql import expand

pytestmark = pytest.mark.stack

BOARDS = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((Path(__file__).parent.parent.parent / "grafana" / "dashboards").glob("*.json"))
}
WAIT_LIMIT_S = 40.0

EMPTY_WHEN_ALL_IS_WELL = {
    ("overview", "Semantic failures by kind"): "no run fails",
    ("overview", "Model calls that failed, by outcome"): "no call fails",
    ("daemon", "Metric pushes"): "metrics are pulled here",
}
"""Panels that show nothing in a healthy system, and why; their queries must be understood all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    prometheus: RunningPrometheus
    traces: Received


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """A daemon that has measured its mock for two cycles, scraped each second."""
    workdir = tmp_path_factory.mktemp("live")
    (workdir / "prometheus").mkdir()
    with http_receiver() as traces:
        config = config_of(
            [a_target("first"), a_target("second")],
            benchmark={
                "run_deadline_s": 1.9,
                "cases": ["ordinary_chat", "web_search_two_answers", "parallel_volume_schedule"],
            },
            web={"listen": "127.0.0.1:0", "enable_lifecycle": True},
            telemetry={"otlp": {"endpoint": traces.url, "signals": ["traces"]}},
        )
        with (
            running_daemon(config, "--mock", cwd=workdir) as daemon,
            deployed_prometheus(workdir / "prometheus", scraped=urlsplit(daemon.url).netloc) as prometheus,
        ):
            daemon.until_runs(12)
            daemon.until(lambda: prometheus.ask("query", query="sum(agentbench_runs_total) >= 12")["result"])
            for name in ("first", "second"):
                assert daemon.post("/api/v1/cycles", json={"target": name}).status_code == 202
            daemon.until_runs(24)
            daemon.until(lambda: prometheus.ask("query", query="sum(agentbench_runs_total) >= 24")["result"])
            time.sleep(3)  # a scrape more: an increase needs two
            yield Measured(prometheus=prometheus, traces=traces)


def queries() -> list[Any]:
    return [
        pytest.param(name, panel, target, id=f"{name}-{panel['title']}-{target['refId']}")
        for name, board in BOARDS.items()
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def ask(prometheus: RunningPrometheus, target: dict[str, Any]) -> list[Any]:
    """As Grafana asks, for the last quarter of an hour."""
    expr = expand(target["expr"])
    if target["instant"]:
        result: list[Any] = prometheus.ask("query", query=expr)["result"]
    else:
        now_s = time.time()
        span = {"start": str(now_s - 900), "end": str(now_s), "step": "5"}
        result = prometheus.ask("query_range", query=expr, **span)["result"]
    return result


@pytest.mark.parametrize(("name", "panel", "target"), queries())
def test_a_panel_has_something_to_show(
    measured: Measured, name: str, panel: dict[str, Any], target: dict[str, Any]
) -> None:
    found = ask(measured.prometheus, target)
    if (name, panel["title"]) in EMPTY_WHEN_ALL_IS_WELL:
        return
    assert found
    values = [value for series in found for _, value in series.get("values", [series.get("value")])]
    assert "NaN" not in values
    assert "+Inf" not in values


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        pytest.param(name, variable, id=f"{name}-{variable['name']}")
        for name, board in BOARDS.items()
        for variable in board["templating"]["list"]
        if variable["type"] == "query"
    ],
)
def test_a_variable_has_values_to_choose_from(measured: Measured, name: str, variable: dict[str, Any]) -> None:
    metric, _, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
    series = measured.prometheus.ask("series", **{"match[]": expand(metric)})
    values = {one[label] for one in series}
    wanted = {
        "job": {"agentbench"},
        "target": {"first", "second"},
        "case": {"ordinary_chat", "web_search_two_answers", "parallel_volume_schedule"},
        "mode": {"dual_agent", "chat_agent_tools"},
    }
    assert values == wanted.get(label, values)
    assert values


@pytest.mark.parametrize(
    ("name", "panel", "target"),
    [one for one in queries() if one.values[2]["exemplar"]],
)
def test_an_exemplar_leads_to_a_trace_in_the_store(
    measured: Measured, name: str, panel: dict[str, Any], target: dict[str, Any]
) -> None:
    now_s = time.time()
    found = measured.prometheus.ask(
        "query_exemplars", query=expand(target["expr"]), start=str(now_s - 900), end=str(now_s)
    )
    trace_ids = {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]}
    assert trace_ids
    assert trace_ids <= {span.trace_id.hex() for span in measured.traces.spans}
