"""Writes ``grafana/dashboards/*.json``: ``python grafana/generate.py``; with ``--check`` it only compares.

Plain dicts in, classic dashboard JSON out. Every metric comes from `agentbench_otel.names`, so that a renamed one
fails here and not on somebody's screen.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentbench_otel import names
from agentbench_otel.names import Metric

DASHBOARDS = Path(__file__).parent / "dashboards"
SCHEMA_VERSION = 41
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24

PROCESS = 'job=~"$job", instance=~"$instance"'
TARGET = PROCESS + ', target=~"$target"'
SERIES = TARGET + ', case=~"$case", mode=~"$mode"'
BY_SERIES = "target, case, mode"
LEGEND = "{{target}} {{case}} {{mode}}"

GREEN, RED, YELLOW, BLUE, PURPLE, GREY, ORANGE = "green", "red", "yellow", "blue", "purple", "text", "orange"

Panel = dict[str, Any]


# --- queries ---------------------------------------------------------------------------------------------------


def of(metric: Metric, selector: str, suffix: str = "") -> str:
    """A selector of one metric, by the name that it has in Prometheus."""
    return f"{metric.prometheus_name}{suffix}{{{selector}}}"


def increase(metric: Metric, selector: str, suffix: str = "") -> str:
    """Over the window of the dashboard, which holds several runs: ``$__rate_interval`` knows the scrapes only."""
    return f"increase({of(metric, selector, suffix)}[$window])"


def quantile(share: float, metric: Metric, selector: str, by: str = "") -> str:
    """Where there was no run in the window there is no quantile: NaN is not at least 0."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share:g}, sum by ({labels}) ({increase(metric, selector, '_bucket')})) >= 0"


def mean(metric: Metric, selector: str, by: str) -> str:
    total = f"sum by ({by}) ({increase(metric, selector, '_sum')})"
    return f"{total} / (sum by ({by}) ({increase(metric, selector, '_count')}) > 0)"


def pass_rate(selector: str, by: str = "") -> str:
    """Aborted runs count in no rate; without a run there is no rate, not 0."""
    grouped = f" by ({by})" if by else ""
    passed = increase(names.RUNS, selector + ', status="passed"')
    ended = increase(names.RUNS, selector + ', status!="aborted"')
    return f"sum{grouped} ({passed}) / (sum{grouped} ({ended}) > 0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    expr: str
    legend: str = "__auto"
    is_instant: bool = False
    has_exemplars: bool = False
    format: str = "time_series"


def targets(queries: Sequence[Query]) -> list[dict[str, Any]]:
    return [
        {
            "refId": chr(ord("A") + position),
            "datasource": DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend,
            "format": query.format,
            "instant": query.is_instant,
            "range": not query.is_instant,
            "exemplar": query.has_exemplars,
        }
        for position, query in enumerate(queries)
    ]


# --- panels ----------------------------------------------------------------------------------------------------


def panel(
    kind: str,
    title: str,
    description: str,
    metrics: Sequence[Metric | str],
    queries: Sequence[Query],
    *,
    width: int,
    height: int,
    unit: str = "none",
    options: Mapping[str, Any] | None = None,
    custom: Mapping[str, Any] | None = None,
    **defaults: Any,
) -> Panel:
    """``metrics`` are named at the end of the description, so that a reader finds them in the table of README."""
    named = ", ".join(f"`{one if isinstance(one, str) else one.prometheus_name}`" for one in metrics)
    return {
        "type": kind,
        "title": title,
        "description": f"{description}\n\nMetric: {named}",
        "datasource": DATASOURCE,
        "targets": targets(queries),
        "gridPos": {"w": width, "h": height},
        "fieldConfig": {
            "defaults": {"unit": unit, "noValue": "No runs", "custom": dict(custom or {}), **defaults},
            "overrides": [],
        },
        "options": dict(options or {}),
    }


def thresholds(*steps: tuple[str, float | None]) -> dict[str, Any]:
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in steps]}


def stat(
    title: str,
    description: str,
    metrics: Sequence[Metric | str],
    expr: str,
    *,
    unit: str,
    judged: dict[str, Any] | None = None,
    mappings: Sequence[Mapping[str, Any]] = (),
) -> Panel:
    """A tile. ``judged``: thresholds; only a judged tile has a colour."""
    return panel(
        "stat",
        title,
        description,
        metrics,
        [Query(expr=expr, is_instant=True)],
        width=4,
        height=4,
        unit=unit,
        mappings=list(mappings),
        thresholds=judged or thresholds((GREY, None)),
        options={
            "colorMode": "value" if judged else "none",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        },
    )


def lines(
    title: str,
    description: str,
    metrics: Sequence[Metric | str],
    queries: Sequence[Query],
    *,
    unit: str,
    width: int = 12,
    is_stacked: bool = False,
    are_steps: bool = False,
    **defaults: Any,
) -> Panel:
    """``are_steps``: gauges of the last run hold their value until the next one."""
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "stepAfter" if are_steps else "linear",
        "lineWidth": 1,
        "fillOpacity": 30 if is_stacked else 0,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if is_stacked else "none", "group": "A"},
    }
    options = {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel(
        "timeseries",
        title,
        description,
        metrics,
        queries,
        width=width,
        height=8,
        unit=unit,
        options=options,
        custom=custom,
        min=0,
        **defaults,
    )


def heatmap(title: str, description: str, metric: Metric) -> Panel:
    query = Query(
        expr=f"sum by (le) ({increase(metric, SERIES, '_bucket')})",
        legend="{{le}}",
        has_exemplars=True,
        format="heatmap",
    )
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": True},
        "yAxis": {"unit": "s", "axisPlacement": "left"},
    }
    return panel("heatmap", title, description, [metric], [query], width=12, height=8, unit="s", options=options)


def states(
    title: str, description: str, metric: Metric, expr: str, words: tuple[str, str], *, width: int = WIDTH
) -> Panel:
    """A state timeline of 0 and 1."""
    mapping = {
        "type": "value",
        "options": {
            "0": {"text": words[0], "color": RED, "index": 0},
            "1": {"text": words[1], "color": GREEN, "index": 1},
        },
    }
    options = {
        "alignValue": "left",
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "single"},
    }
    query = Query(expr=expr, legend=LEGEND)
    return panel(
        "state-timeline",
        title,
        description,
        [metric],
        [query],
        width=width,
        height=8,
        options=options,
        mappings=[mapping],
        thresholds=thresholds((GREY, None)),
    )


def row(title: str) -> Panel:
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": WIDTH, "h": 1}}


# --- dashboards ------------------------------------------------------------------------------------------------

LINK_TO_STATUS = "Open the status page of the daemon for the reasons."


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    uid: str
    title: str
    description: str
    panels: Callable[[], Sequence[Panel]]
    is_of_series: bool = True
    """Whether it has variables for target, case and mode."""
    tags: Sequence[str] = field(default=("agentbench",))


def overview() -> list[Panel]:
    good = thresholds((RED, None), (YELLOW, 0.9), (GREEN, 0.99))
    none_is_good = thresholds((GREEN, None), (RED, 1))
    age = f"time() - max by ({BY_SERIES}) ({of(names.LAST_RUN_TIMESTAMP, SERIES)})"
    return [
        row("Is it well?"),
        stat(
            "Pass rate",
            "Share of runs in the window that did all that their case promises. Below 99 %: see which series fails in"
            f" the state timeline, then why under semantic failures. {LINK_TO_STATUS}",
            [names.RUNS],
            pass_rate(SERIES),
            unit="percentunit",
            judged=good,
        ),
        stat(
            "Runs",
            "Runs that ended in the window. None: look at the cycles of the Daemon dashboard.",
            [names.RUNS],
            f"sum({increase(names.RUNS, SERIES)})",
            unit="short",
        ),
        stat(
            "Visible TTFT p50",
            "Median time from the start of a turn to its first visible text, over the window. From buckets: the exact"
            " value of the last run stands in the trend below.",
            [names.VISIBLE_TTFT],
            quantile(0.5, names.VISIBLE_TTFT, SERIES),
            unit="s",
        ),
        stat(
            "Failing series",
            "Series whose last run failed. Each is red in the state timeline.",
            [names.LAST_SUCCESS],
            f"sum({of(names.LAST_SUCCESS, SERIES)} == bool 0)",
            unit="short",
            judged=none_is_good,
        ),
        stat(
            "Oldest last run",
            "Age of the last run of the series that waited longest. More than two intervals: the daemon is late,"
            " backs off, or is out of budget; see the Daemon dashboard.",
            [names.LAST_RUN_TIMESTAMP],
            f"max({age})",
            unit="s",
        ),
        stat(
            "Tokens per run",
            "Mean of input and output tokens per run, as reported. Sudden changes mean another prompt, model or"
            " tokenizer.",
            [names.RUN_TOKENS, names.RUNS],
            f"sum({increase(names.RUN_TOKENS, SERIES + ', type=~' + chr(34) + 'input|output' + chr(34))})"
            f" / (sum({increase(names.RUNS, SERIES)}) > 0)",
            unit="short",
        ),
        states(
            "Last run",
            f"Whether the last run of each series passed. Red: that series fails now. {LINK_TO_STATUS}",
            names.LAST_SUCCESS,
            f"max by ({BY_SERIES}) ({of(names.LAST_SUCCESS, SERIES)})",
            ("failed", "passed"),
        ),
        row("Trends"),
        lines(
            "Visible TTFT of the last run",
            "Exact, one step per run. A step that stays is a change of the endpoint; a single spike is one slow run.",
            [names.LAST_VISIBLE_TTFT],
            [Query(expr=f"max by ({BY_SERIES}) ({of(names.LAST_VISIBLE_TTFT, SERIES)})", legend=LEGEND)],
            unit="s",
            are_steps=True,
        ),
        lines(
            "Pass rate over time",
            "Per series, over the window. Falling: compare with semantic failures and model call outcomes.",
            [names.RUNS],
            [Query(expr=pass_rate(SERIES, BY_SERIES), legend=LEGEND)],
            unit="percentunit",
            max=1,
        ),
        lines(
            "Semantic failures by kind",
            "What runs got wrong, per window. usage_missing is the endpoint's accounting; event and tool kinds are the"
            " model's behaviour; no_overlap means that parallel tools ran one after the other.",
            [names.SEMANTIC_FAILURES],
            [Query(expr=f"sum by (kind) ({increase(names.SEMANTIC_FAILURES, SERIES)}) > 0", legend="{{kind}}")],
            unit="short",
        ),
        lines(
            "Model calls that failed, by outcome",
            "Errors of the endpoint or the way to it, per window. http_4xx: the key, the quota or the request;"
            " timeouts and truncation: the endpoint or the network.",
            [names.MODEL_CALLS],
            [
                Query(
                    expr=f"sum by (outcome) ({increase(names.MODEL_CALLS, SERIES + ', outcome!=' + chr(34) + 'ok' + chr(34))}) > 0",
                    legend="{{outcome}}",
                )
            ],
            unit="short",
        ),
        row("Alerts and series"),
        {
            "type": "alertlist",
            "title": "Firing alerts",
            "description": "Alerts of agentbench that fire now; each has a runbook.\n\nMetric: `ALERTS`",
            "datasource": DATASOURCE,
            "gridPos": {"w": 8, "h": 9},
            "options": {
                "alertInstanceLabelFilter": '{alertname=~"Agentbench.*"}',
                "maxItems": 20,
                "sortOrder": 1,
                "stateFilter": {"error": True, "firing": True, "noData": False, "normal": False, "pending": True},
                "viewMode": "list",
            },
        },
        series_table(),
    ]


def series_table() -> Panel:
    def instant(expr: str) -> Query:
        return Query(expr=expr, is_instant=True, format="table")

    table = panel(
        "table",
        "Series",
        "Every series with its last numbers; click a target for its latency. No visible TTFT: the run showed nothing.",
        [names.LAST_SUCCESS, names.LAST_VISIBLE_TTFT, names.LAST_TURN_WALL, names.RUNS],
        [
            instant(f"max by ({BY_SERIES}) ({of(names.LAST_SUCCESS, SERIES)})"),
            instant(f"max by ({BY_SERIES}) ({of(names.LAST_VISIBLE_TTFT, SERIES)})"),
            instant(f"max by ({BY_SERIES}) ({of(names.LAST_TURN_WALL, SERIES)})"),
            instant(pass_rate(SERIES, BY_SERIES)),
        ],
        width=16,
        height=9,
        options={
            "showHeader": True,
            "cellHeight": "sm",
            "footer": {"show": False, "reducer": ["sum"], "fields": ""},
        },
    )
    renamed = {
        "Value #A": "last run",
        "Value #B": "visible TTFT",
        "Value #C": "turn wall",
        "Value #D": "pass rate",
    }
    table["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": renamed},
        },
    ]
    latency = "/d/agentbench-latency?var-target=${__data.fields.target}&${__url_time_range}"
    table["fieldConfig"]["overrides"] = [
        override("visible TTFT", unit="s"),
        override("turn wall", unit="s"),
        override("pass rate", unit="percentunit"),
        override(
            "last run",
            mappings=[
                {
                    "type": "value",
                    "options": {"0": {"text": "failed", "index": 0}, "1": {"text": "passed", "index": 1}},
                }
            ],
        ),
        override("target", links=[{"title": "Latency of ${__value.text}", "url": latency, "targetBlank": False}]),
    ]
    return table


def override(column: str, **properties: Any) -> dict[str, Any]:
    return {
        "matcher": {"id": "byName", "options": column},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


def latency() -> list[Panel]:
    def last(metric: Metric, legend: str) -> Query:
        return Query(expr=f"avg({of(metric, SERIES)})", legend=legend)

    def percentiles(metric: Metric, title: str, description: str) -> Panel:
        return lines(
            title,
            f"{description} From buckets over the window: for windows of 20 runs and more.",
            [metric],
            [
                Query(expr=quantile(share, metric, SERIES), legend=f"p{share * 100:g}", has_exemplars=True)
                for share in (0.5, 0.95)
            ],
            unit="s",
        )

    parts = [
        (names.TURN_PROVIDER, "provider"),
        (names.TURN_HANDLER, "tool handlers"),
        (names.TURN_HARNESS, "harness"),
    ]
    by = "target"
    return [
        row("Where a turn's time goes"),
        lines(
            "Parts of the turn, last runs",
            "Mean over the chosen series; the three parts sum to the wall exactly. Harness above a few ms: this machine"
            " is too busy to measure.",
            [names.LAST_TURN_PROVIDER, names.LAST_TURN_HANDLER, names.LAST_TURN_HARNESS],
            [
                last(names.LAST_TURN_PROVIDER, "provider"),
                last(names.LAST_TURN_HANDLER, "tool handlers"),
                last(names.LAST_TURN_HARNESS, "harness"),
            ],
            unit="s",
            is_stacked=True,
            are_steps=True,
        ),
        lines(
            "Parts of the turn, mean over the window",
            "As beside, over all runs of the window.",
            [metric for metric, _ in parts],
            [Query(expr=mean(metric, SERIES, "job"), legend=legend) for metric, legend in parts],
            unit="s",
            is_stacked=True,
        ),
        lines(
            "Consumer time beside elapsed, last runs",
            "Elapsed is the sum of the waits for the provider; consumer time is what the agent did between items and is"
            " in neither. It is never stacked on the parts: it is inside harness and handlers.",
            [names.LAST_PROVIDER_AWAIT, names.LAST_CONSUMER, names.LAST_STREAM],
            [
                last(names.LAST_PROVIDER_AWAIT, "elapsed"),
                last(names.LAST_STREAM, "stream"),
                last(names.LAST_CONSUMER, "consumer"),
            ],
            unit="s",
            are_steps=True,
        ),
        lines(
            "Turn wall of the last run",
            "Exact, one step per run.",
            [names.LAST_TURN_WALL],
            [Query(expr=f"max by ({BY_SERIES}) ({of(names.LAST_TURN_WALL, SERIES)})", legend=LEGEND)],
            unit="s",
            are_steps=True,
        ),
        row("To the first word"),
        lines(
            "Provider, token and visible TTFT of the last runs",
            "First item of any kind, first generated piece, first text for the user. Token far above provider: the"
            " endpoint answers early and generates late. Visible far above token: the model thinks or calls tools first.",
            [names.LAST_PROVIDER_TTFT, names.LAST_TOKEN_TTFT, names.LAST_VISIBLE_TTFT],
            [
                last(names.LAST_PROVIDER_TTFT, "provider"),
                last(names.LAST_TOKEN_TTFT, "token"),
                last(names.LAST_VISIBLE_TTFT, "visible"),
            ],
            unit="s",
            are_steps=True,
        ),
        percentiles(
            names.VISIBLE_TTFT, "Visible TTFT percentiles", "Start of the turn to the first visible text."
        ),
        heatmap(
            "Visible TTFT distribution",
            "Two bands mean two kinds of answers: a warm and a cold cache, two replicas. A dot is a run: click it for"
            " its trace.",
            names.VISIBLE_TTFT,
        ),
        heatmap(
            "Turn wall distribution",
            "A dot is a run: click it for its trace.",
            names.TURN_WALL,
        ),
        row("While it streams"),
        percentiles(
            names.CALL_STREAM, "Stream time percentiles", "Start of a model call to the arrival of its last item."
        ),
        lines(
            "Largest chunk gap of the last runs",
            "Longest silence between two chunks that carried generated pieces. Seconds: the endpoint stalls, or batches"
            " what it sends.",
            [names.LAST_MAX_CHUNK_GAP],
            [Query(expr=f"max by ({BY_SERIES}) ({of(names.LAST_MAX_CHUNK_GAP, SERIES)})", legend=LEGEND)],
            unit="s",
            are_steps=True,
        ),
        percentiles(
            names.CALL_CONNECT,
            "Connect percentiles",
            "Name resolution and TCP. Rising: the network or the load balancer, not the model.",
        ),
        lines(
            "Provider's time per model call, mean",
            "By target, as the GenAI conventions name it, failed calls included.",
            [names.OPERATION_DURATION],
            [Query(expr=mean(names.OPERATION_DURATION, SERIES, by), legend="{{target}}")],
            unit="s",
        ),
    ]


def tools() -> list[Panel]:
    parallel = f'{TARGET}, mode=~"$mode", case="parallel_volume_schedule"'
    two_modes = f'{TARGET}, case=~"$case"'
    return [
        row("Parallelism"),
        states(
            "Parallel proof",
            "Whether the two handlers of the parallel case overlapped, by the intervals of their spans. No: they ran one"
            " after the other, or only one ran.",
            names.LAST_PARALLEL,
            f"max by ({BY_SERIES}) ({of(names.LAST_PARALLEL, parallel)})",
            ("no overlap", "overlapped"),
        ),
        lines(
            "Overlap of the parallel case",
            "Time in which both handlers ran, last run. The handlers wait for each other up to 50 ms.",
            [names.LAST_OVERLAP],
            [
                Query(
                    expr=f"max by ({BY_SERIES}) ({of(names.LAST_OVERLAP, parallel)})", legend="{{target}} {{mode}}"
                )
            ],
            unit="s",
            are_steps=True,
        ),
        lines(
            "Most handlers at once",
            "In the last run. 2 is right for the parallel case.",
            [names.LAST_CONCURRENCY],
            [
                Query(
                    expr=f"max by ({BY_SERIES}) ({of(names.LAST_CONCURRENCY, parallel)})",
                    legend="{{target}} {{mode}}",
                )
            ],
            unit="short",
            are_steps=True,
        ),
        row("Tools"),
        lines(
            "Tool handler p95",
            "Time in a tool's own code, by tool, over the window. The tools are in memory: milliseconds mean that this"
            " machine is too busy.",
            [names.TOOL_HANDLER],
            [
                Query(
                    expr=quantile(0.95, names.TOOL_HANDLER, SERIES, "tool"), legend="{{tool}}", has_exemplars=True
                )
            ],
            unit="s",
        ),
        lines(
            "Argument fallbacks",
            "Extra model calls, because the arguments of a tool call were invalid, per window. Rising: the model got"
            " worse at tool calls, or the endpoint at passing them on.",
            [names.MODEL_CALLS],
            [
                Query(
                    expr="sum by (target, mode) ("
                    + increase(names.MODEL_CALLS, SERIES + ', call_kind="argument_fallback"')
                    + ")",
                    legend="{{target}} {{mode}}",
                )
            ],
            unit="short",
        ),
        row("Text events against native tool calls"),
        *[
            lines(
                title,
                f"dual_agent writes events in its text, chat_agent_tools uses the provider's tool calls. {what}",
                [metric],
                [Query(expr=f"avg by (mode) ({of(metric, two_modes)})", legend="{{mode}}")],
                unit="s",
                are_steps=True,
            )
            for title, metric, what in (
                ("Visible TTFT by mode", names.LAST_VISIBLE_TTFT, "Mean of the last runs."),
                ("Turn wall by mode", names.LAST_TURN_WALL, "Mean of the last runs."),
            )
        ],
        lines(
            "Tokens by mode",
            "Mean of input and output tokens of the last runs. Native tools cost a longer prompt.",
            [names.LAST_TOKENS],
            [
                Query(
                    expr="avg by (mode, type) ("
                    + of(names.LAST_TOKENS, two_modes + ', type=~"input|output"')
                    + ")",
                    legend="{{mode}} {{type}}",
                )
            ],
            unit="short",
            are_steps=True,
        ),
        lines(
            "Pass rate by mode",
            "Over the window. One mode far below the other: the model, or the gateway's parser, is worse at that way of calling tools.",
            [names.RUNS],
            [Query(expr=pass_rate(two_modes, "mode"), legend="{{mode}}")],
            unit="percentunit",
            max=1,
        ),
    ]


def tokens() -> list[Panel]:
    def used(token_type: str) -> str:
        selector = f'{SERIES}, type="{token_type}"'
        return f"sum by (target) ({increase(names.RUN_TOKENS, selector)})"

    what = {
        "input": "Prompts and tool descriptions.",
        "output": "What was generated, reasoning included.",
        "cached": "The part of the input that came from the provider's cache. Above 0 with `prompt_cache: avoid`: the"
        " times are those of a warm cache.",
        "reasoning": "The part of the output that was spent on thinking.",
    }
    calls = increase(names.MODEL_CALLS, SERIES + ', outcome="ok"')
    return [
        row("Tokens as the providers report them"),
        *[
            lines(
                f"{token_type.capitalize()} tokens",
                f"{text} Per window, by target. Not reported is absent, never 0.",
                [names.RUN_TOKENS],
                [Query(expr=used(token_type), legend="{{target}}")],
                unit="short",
            )
            for token_type, text in what.items()
        ],
        row("Coverage"),
        lines(
            "Calls without usage",
            "Model calls whose provider reported no usage, per window. Any: those runs fail with usage_missing and have"
            " no totals; an endpoint may need `stream_options` or leaves usage out under load.",
            [names.USAGE_MISSING],
            [Query(expr=f"sum by (target) ({increase(names.USAGE_MISSING, SERIES)})", legend="{{target}}")],
            unit="short",
        ),
        lines(
            "Usage coverage",
            "Share of the calls that succeeded and reported usage.",
            [names.USAGE_MISSING, names.MODEL_CALLS],
            [
                Query(
                    expr=f"clamp_min(1 - sum by (target) ({increase(names.USAGE_MISSING, SERIES)})"
                    f" / (sum by (target) ({calls}) > 0), 0)",
                    legend="{{target}}",
                )
            ],
            unit="percentunit",
            max=1,
        ),
        lines(
            "Tokens of the last run",
            "Exact, one step per run.",
            [names.LAST_TOKENS],
            [
                Query(
                    expr=f"max by ({BY_SERIES}, type) ({of(names.LAST_TOKENS, SERIES)})",
                    legend=LEGEND + " {{type}}",
                )
            ],
            unit="short",
            are_steps=True,
        ),
        lines(
            "Tokens per model call, p95",
            "As the GenAI conventions name it, by type, over the window.",
            [names.TOKEN_USAGE],
            [
                Query(
                    expr=quantile(0.95, names.TOKEN_USAGE, SERIES, names.prometheus_label(names.TOKENS_TYPE)),
                    legend="{{" + names.prometheus_label(names.TOKENS_TYPE) + "}}",
                )
            ],
            unit="short",
        ),
    ]


def daemon() -> list[Panel]:
    def one(metric: Metric, legend: str = "__auto", selector: str = PROCESS) -> list[Query]:
        return [Query(expr=of(metric, selector), legend=legend)]

    def process(metric: str) -> list[Query]:
        return [Query(expr=f"{metric}{{{PROCESS}}}", legend="{{instance}}")]

    up = thresholds((RED, None), (GREEN, 1))
    quiet = thresholds((GREEN, None), (RED, 1))
    flag = [{"type": "value", "options": {"0": {"text": "no", "index": 0}, "1": {"text": "yes", "index": 1}}}]
    return [
        row("Is the measuring well?"),
        stat(
            "Config taken",
            "Whether the last reload was taken. No: the log and the status page say what is wrong; the old config runs.",
            [names.RELOAD_SUCCESSFUL],
            f"min({of(names.RELOAD_SUCCESSFUL, PROCESS)})",
            unit="none",
            judged=up,
            mappings=flag,
        ),
        stat(
            "Overdue",
            "How far the most overdue cycle is past its time. Above a minute: the event loop hangs, or targets wait for"
            " each other.",
            [names.NEXT_CYCLE_TIMESTAMP],
            f"clamp_min(max(time() - {of(names.NEXT_CYCLE_TIMESTAMP, TARGET)}), 0)",
            unit="s",
            judged=thresholds((GREEN, None), (YELLOW, 60), (RED, 300)),
        ),
        stat(
            "Stuck runs",
            "Runs that ignored their cancellation and were left, in the window. Any: a bug; at the configured number the"
            " daemon leaves for its supervisor.",
            [names.STUCK_RUNS],
            f"sum({increase(names.STUCK_RUNS, PROCESS)})",
            unit="short",
            judged=quiet,
        ),
        stat(
            "Budget used up",
            "Targets that are not measured until midnight UTC.",
            [names.BUDGET_EXHAUSTED],
            f"sum({of(names.BUDGET_EXHAUSTED, TARGET)})",
            unit="short",
            judged=quiet,
        ),
        stat(
            "Targets backed off",
            "Targets whose endpoint refused the key, the quota or the rate, and which are asked less often.",
            [names.CYCLE_STRETCH],
            f"sum({of(names.CYCLE_STRETCH, TARGET)} > bool 1)",
            unit="short",
            judged=quiet,
        ),
        stat(
            "Results not in the history",
            "Results that wait to be written. Above 0 for long: the disk is full or the file is locked; the log says.",
            [names.HISTORY_WAITING],
            f"sum({of(names.HISTORY_WAITING, PROCESS)})",
            unit="short",
            judged=quiet,
        ),
        row("Schedule"),
        lines(
            "Lateness",
            "How long after its slot the last cycle started. Seconds with one target: the machine is too busy; with many:"
            " they wait for their turn.",
            [names.SCHEDULE_LATENESS],
            one(names.SCHEDULE_LATENESS, "{{target}}", TARGET),
            unit="s",
            are_steps=True,
        ),
        lines(
            "Slots by outcome",
            "Per window. missed: nobody was there; skipped_overlap: the cycle before took too long; skipped_backoff and"
            " skipped_budget: on purpose.",
            [names.CYCLES],
            [Query(expr=f"sum by (outcome) ({increase(names.CYCLES, TARGET)})", legend="{{outcome}}")],
            unit="short",
        ),
        lines(
            "Cycle duration against interval",
            "A cycle near its interval loses runs.",
            [names.CYCLE_DURATION, names.CYCLE_INTERVAL],
            [
                Query(expr=of(names.CYCLE_DURATION, TARGET), legend="{{target}} took"),
                Query(expr=of(names.CYCLE_INTERVAL, TARGET), legend="{{target}} interval"),
            ],
            unit="s",
            are_steps=True,
        ),
        lines(
            "Runs that had no time",
            "Planned runs that were not started, per window. Lengthen the interval or shorten run_deadline_s.",
            [names.MISSED_RUNS],
            [Query(expr=f"sum by (target) ({increase(names.MISSED_RUNS, TARGET)})", legend="{{target}}")],
            unit="short",
        ),
        row("Process"),
        lines(
            "Event loop lag",
            "Worst of each minute. Above 5 ms while a call streams, the run carries a warning: give this process more CPU.",
            [names.LOOP_LAG],
            one(names.LOOP_LAG, "{{instance}}"),
            unit="s",
        ),
        lines(
            "CPU",
            "Cores used. A daemon is idle between cycles.",
            ["process_cpu_seconds_total"],
            [Query(expr=f"rate(process_cpu_seconds_total{{{PROCESS}}}[$__rate_interval])", legend="{{instance}}")],
            unit="short",
        ),
        lines(
            "Memory",
            "Resident. Growing for days: a leak; please report it.",
            ["process_resident_memory_bytes"],
            process("process_resident_memory_bytes"),
            unit="bytes",
        ),
        lines(
            "Open files",
            "Growing for days: a leak; please report it.",
            ["process_open_fds"],
            process("process_open_fds"),
            unit="short",
        ),
        row("What leaves"),
        lines(
            "Spans to the collector",
            "Per window, by outcome. failed or rejected: the log says why. Nothing measured depends on it.",
            [names.TELEMETRY_SPANS],
            [Query(expr=f"sum by (outcome) ({increase(names.TELEMETRY_SPANS, PROCESS)})", legend="{{outcome}}")],
            unit="short",
        ),
        lines(
            "Metric pushes",
            "Per window, by outcome; empty where metrics are pulled only.",
            [names.TELEMETRY_METRIC_PUSHES],
            [
                Query(
                    expr=f"sum by (outcome) ({increase(names.TELEMETRY_METRIC_PUSHES, PROCESS)})",
                    legend="{{outcome}}",
                )
            ],
            unit="short",
        ),
        lines(
            "History errors",
            "Writes that failed, and results that were lost, per window.",
            [names.HISTORY_WRITE_ERRORS, names.HISTORY_LOST_RUNS],
            [
                Query(expr=f"sum({increase(names.HISTORY_WRITE_ERRORS, PROCESS)})", legend="failed writes"),
                Query(expr=f"sum({increase(names.HISTORY_LOST_RUNS, PROCESS)})", legend="lost runs"),
            ],
            unit="short",
        ),
        lines(
            "Exports while a call may have streamed",
            "Per window. Any: cycles follow each other without a pause, and exporting may disturb what is measured.",
            [names.TELEMETRY_LOUD],
            [Query(expr=f"sum({increase(names.TELEMETRY_LOUD, PROCESS)})", legend="loud exports")],
            unit="short",
        ),
    ]


BOARDS = (
    Board(
        uid="agentbench-overview",
        title="agentbench / Overview",
        description="Which targets, cases and modes pass, how fast, and since when.",
        panels=overview,
    ),
    Board(
        uid="agentbench-latency",
        title="agentbench / Latency",
        description="Where a turn's time goes, down to the trace of a single run.",
        panels=latency,
    ),
    Board(
        uid="agentbench-tools",
        title="agentbench / Tools and parallelism",
        description="Tool handlers, the parallel proof, and the two ways of calling tools side by side.",
        panels=tools,
    ),
    Board(
        uid="agentbench-tokens",
        title="agentbench / Tokens",
        description="Tokens as the providers report them, and where they do not.",
        panels=tokens,
    ),
    Board(
        uid="agentbench-daemon",
        title="agentbench / Daemon",
        description="Whether the measuring itself is well.",
        panels=daemon,
        is_of_series=False,
    ),
)


# --- JSON ------------------------------------------------------------------------------------------------------


def variable(name: str, label: str, metric: Metric, selector: str) -> dict[str, Any]:
    query = (
        f"label_values({of(metric, selector)}, {name})"
        if selector
        else f"label_values({metric.prometheus_name}, {name})"
    )
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "sort": 1,
    }


def window() -> dict[str, Any]:
    """Runs are rare: a window of several of them, not of scrapes."""
    choices = ("15m", "1h", "6h", "1d", "7d")
    return {
        "name": "window",
        "label": "Window",
        "type": "custom",
        "query": ",".join(choices),
        "multi": False,
        "includeAll": False,
        "current": {"selected": True, "text": "1h", "value": "1h"},
        "options": [{"text": text, "value": text, "selected": text == "1h"} for text in choices],
    }


def variables(board: Board) -> list[dict[str, Any]]:
    found = [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "refresh": 1,
            "current": {},
            "multi": False,
            "includeAll": False,
        },
        variable("job", "Job", names.BUILD_INFO, ""),
        variable("instance", "Instance", names.BUILD_INFO, 'job=~"$job"'),
        variable("target", "Target", names.TARGET_INFO, PROCESS),
    ]
    if board.is_of_series:
        found += [
            variable("case", "Case", names.RUNS, TARGET),
            variable("mode", "Mode", names.RUNS, TARGET),
        ]
    return [*found, window()]


def placed(panels: Sequence[Panel]) -> Iterator[Panel]:
    """Left to right, top to bottom; each with an id of its own."""
    x, y, line_height = 0, 0, 0
    for number, one in enumerate(panels, start=1):
        size = one["gridPos"]
        if x + size["w"] > WIDTH:
            x, y, line_height = 0, y + line_height, 0
        yield {**one, "id": number, "gridPos": {"h": size["h"], "w": size["w"], "x": x, "y": y}}
        x, line_height = x + size["w"], max(line_height, size["h"])


def to_json(board: Board) -> str:
    document = {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": list(board.tags),
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "agentbench",
                "tags": ["agentbench"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
            }
        ],
        "annotations": {"list": []},
        "templating": {"list": variables(board)},
        "panels": list(placed(board.panels())),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is committed, write nothing")
    is_check = parser.parse_args().check
    wanted = {DASHBOARDS / f"{board.uid.removeprefix('agentbench-')}.json": to_json(board) for board in BOARDS}
    strays = [file for file in DASHBOARDS.glob("*") if file not in wanted]
    stale = [
        file for file, text in wanted.items() if not file.exists() or file.read_text(encoding="utf-8") != text
    ]
    if is_check:
        for file in stale:
            print(f"{file}: differs from what grafana/generate.py makes; run it", file=sys.stderr)
        for file in strays:
            print(f"{file}: is made by no dashboard of grafana/generate.py; remove it", file=sys.stderr)
        return 1 if stale or strays else 0
    for file in stale:
        file.write_text(wanted[file], encoding="utf-8")
        print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
