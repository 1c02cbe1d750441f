"""The dashboards: made by their generator, true to the metrics, and as a linter of dashboards wants them."""

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.promql import COUNTER_FUNCTIONS, grouping_labels, known_metric, parse, selectors

ROOT = Path(__file__).parent.parent.parent
GRAFANA = ROOT / "grafana"
FILES = sorted((GRAFANA / "dashboards").glob("*.json"))
BOARDS: dict[str, dict[str, Any]] = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FILES}
BOARD = pytest.mark.parametrize("board", list(BOARDS.values()), ids=list(BOARDS))
SCRAPE_LABELS = {"job", "instance"}
JUDGED_KINDS = {"stat", "table", "timeseries", "heatmap", "state-timeline"}
UNITS = {"s", "percentunit", "short", "none", "bytes"}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def panel_queries() -> Iterator[Any]:
    for name, board in BOARDS.items():
        for panel in panels(board):
            for target in panel.get("targets", ()):
                yield pytest.param(panel, target, id=f"{name}-{panel['id']}-{target['refId']}")


EACH_QUERY = pytest.mark.parametrize(("panel", "target"), list(panel_queries()))


def generate(grafana: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(grafana / "generate.py"), *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


# --- the generator ---------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GRAFANA, tmp_path / "grafana"))


def test_what_is_committed_is_what_the_generator_makes() -> None:
    done = generate(GRAFANA, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_edited_dashboard_is_noticed_and_made_anew(copy: Path) -> None:
    file = copy / "dashboards" / "overview.json"
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace('"Pass rate"', '"Passes"'), encoding="utf-8")
    done = generate(copy, "--check")
    assert done.returncode == 1
    assert "overview.json: differs" in done.stderr
    assert generate(copy).returncode == 0
    assert file.read_text(encoding="utf-8") == whole


def test_a_dashboard_of_nobody_is_noticed(copy: Path) -> None:
    (copy / "dashboards" / "old.json").write_text("{}", encoding="utf-8")
    done = generate(copy, "--check")
    assert done.returncode == 1
    assert "old.json: is made by no dashboard" in done.stderr


def test_a_metric_that_is_gone_fails_the_check(copy: Path) -> None:
    script = copy / "generate.py"
    script.write_text(script.read_text(encoding="utf-8").replace("names.RUNS", "names.RUNNS"), encoding="utf-8")
    assert generate(copy, "--check").returncode == 1


def test_there_are_five_dashboards() -> None:
    assert set(BOARDS) == {"overview", "latency", "tools", "tokens", "daemon"}


# --- each dashboard --------------------------------------------------------------------------------------------


def test_uids_and_titles_are_unique_and_stable() -> None:
    assert [board["uid"] for board in BOARDS.values()] == [f"agentbench-{name}" for name in BOARDS]
    assert len({board["title"] for board in BOARDS.values()}) == len(BOARDS)


@BOARD
def test_it_is_classic_json_that_nobody_edits_by_hand(board: dict[str, Any]) -> None:
    assert 39 <= board["schemaVersion"] <= 42
    assert board["editable"] is False
    assert board["tags"] == ["agentbench"]
    assert board["description"]
    assert "elements" not in board  # of the schema v2, which file provisioning does not load


@BOARD
def test_its_links_keep_variables_and_time(board: dict[str, Any]) -> None:
    (link,) = board["links"]
    assert (link["type"], link["tags"], link["includeVars"], link["keepTime"]) == (
        "dashboards",
        ["agentbench"],
        True,
        True,
    )


@BOARD
def test_ids_and_titles_of_panels_are_unique(board: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert min(ids) > 0
    assert len(set(titles)) == len(titles)


@BOARD
def test_panels_stand_in_the_grid_and_none_covers_another(board: dict[str, Any]) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] <= 24 - place["w"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, panel["title"]
        cells |= own


@BOARD
def test_every_panel_says_what_it_shows_and_of_which_metric(board: dict[str, Any]) -> None:
    for panel in panels(board):
        words, _, named = panel["description"].partition("\n\nMetric: `")
        assert len(words) > 20, panel["title"]
        assert named.endswith("`")
        queried = {
            selector.metric for target in panel.get("targets", ()) for selector in selectors(parse(target["expr"]))
        }
        for name in queried:
            metric = known_metric(name)
            assert (name if metric is None else metric.prometheus_name) in panel["description"], panel["title"]


@BOARD
def test_every_panel_has_a_source_a_unit_and_words_for_nothing(board: dict[str, Any]) -> None:
    for panel in panels(board):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        if panel["type"] in JUDGED_KINDS:
            defaults = panel["fieldConfig"]["defaults"]
            assert defaults["unit"] in UNITS, panel["title"]
            assert defaults["noValue"] == "No runs"
            assert panel["targets"]


@BOARD
def test_only_judged_tiles_have_a_colour(board: dict[str, Any]) -> None:
    for panel in panels(board):
        if panel["type"] == "stat":
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert (panel["options"]["colorMode"] == "value") == (len(steps) > 1)


@BOARD
def test_its_variables_are_those_of_a_linter(board: dict[str, Any]) -> None:
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["label"] == "Data source"
    assert variables["datasource"]["query"] == "prometheus"
    wanted = ["datasource", "job", "instance", "target", "window"]
    assert [name for name in variables if name not in ("case", "mode")] == wanted
    assert ("case" in variables) == ("mode" in variables) == (board["uid"] != "agentbench-daemon")
    for variable in variables.values():
        if variable["type"] == "query":
            assert variable["refresh"] == 2
            assert variable["multi"]
            assert variable["includeAll"]
            assert variable["allValue"] == ".+"
            metric = variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]
            (selector,) = selectors(parse(metric))
            known = known_metric(selector.metric)
            assert known is not None
            assert variable["name"] in {*known.labels, *SCRAPE_LABELS}


# --- each query ------------------------------------------------------------------------------------------------


@EACH_QUERY
def test_a_query_asks_for_metrics_and_labels_that_there_are(panel: dict[str, Any], target: dict[str, Any]) -> None:
    expr = parse(target["expr"])
    labels: set[str] = set()
    for selector in selectors(expr):
        metric = known_metric(selector.metric)
        assert metric is not None or selector.metric.startswith("process_"), selector.metric
        own = SCRAPE_LABELS | {"le"} | {_label(key) for key in (() if metric is None else metric.labels)}
        assert set(selector.matchers) <= own
        labels |= own
    assert set(grouping_labels(expr)) <= labels


def _label(key: str) -> str:
    return key.replace(".", "_")


@EACH_QUERY
def test_a_query_keeps_to_the_chosen_job_and_instance(panel: dict[str, Any], target: dict[str, Any]) -> None:
    assert 'job=~"$job"' in target["expr"]
    for selector in selectors(parse(target["expr"])):
        assert selector.matchers["job"] == ".+"
        assert selector.matchers["instance"] == ".+"


@EACH_QUERY
def test_a_counter_is_only_asked_for_its_increase(panel: dict[str, Any], target: dict[str, Any]) -> None:
    for selector in selectors(parse(target["expr"])):
        is_counter = selector.metric.endswith(("_total", "_bucket", "_sum", "_count"))
        assert is_counter == bool(COUNTER_FUNCTIONS & set(selector.functions)), selector
        if {"rate", "irate"} & set(selector.functions):
            assert "$__rate_interval" in target["expr"]
        if "increase" in selector.functions:
            assert "[$window]" in target["expr"]


@EACH_QUERY
def test_a_division_has_no_zero_below(panel: dict[str, Any], target: dict[str, Any]) -> None:
    for part in target["expr"].split(" / ")[1:]:
        assert part.startswith("("), "NaN instead of 'No runs'"
        assert "> 0)" in part


def test_histograms_of_latency_lead_to_traces() -> None:
    with_exemplars = [
        panel["title"]
        for board in BOARDS.values()
        for panel in panels(board)
        if any(target["exemplar"] for target in panel.get("targets", ()))
    ]
    assert len(with_exemplars) >= 6
    for board in BOARDS.values():
        for panel in panels(board):
            if panel["type"] == "heatmap":
                assert panel["targets"][0]["exemplar"]
                assert panel["targets"][0]["format"] == "heatmap"


@BOARD
def test_a_reader_of_the_schema_loses_nothing_of_it(board: dict[str, Any]) -> None:
    """A key that the schema does not know would be dropped, misspelt ones too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import Dashboard

    kept = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
    assert list(lost(board, kept)) == []


def lost(ours: object, theirs: object, path: str = "") -> Iterator[str]:
    if isinstance(ours, dict):
        for key, value in ours.items():
            if not isinstance(theirs, dict) or key not in theirs:
                if value not in (None, [], {}, "", False):
                    yield f"{path}.{key}"
            else:
                yield from lost(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(theirs) != len(ours):
            yield path
        else:
            for index, value in enumerate(ours):
                yield from lost(value, theirs[index], f"{path}[{index}]")


# --- provisioning ----------------------------------------------------------------------------------------------


def provisioned(kind: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(
        (GRAFANA / "provisioning" / kind / "agentbench.yaml").read_text("utf-8")
    )
    return document


def test_an_exemplar_leads_to_the_trace_store() -> None:
    sources = {source["uid"]: source for source in provisioned("datasources")["datasources"]}
    (way,) = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert sources[way["datasourceUid"]]["type"] == "jaeger"
    assert way["name"] == "trace_id"
    assert "$${" in way["urlDisplayLabel"]  # a single $ would be read as a variable of the environment
    assert sources["prometheus"]["isDefault"]


def test_dashboards_are_read_where_compose_puts_them() -> None:
    (provider,) = provisioned("dashboards")["providers"]
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    mounts = compose["services"]["grafana"]["volumes"]
    assert f"../grafana/dashboards:{provider['options']['path']}:ro" in mounts
    assert "../grafana/provisioning:/etc/grafana/provisioning:ro" in mounts
