"""What a PromQL query asks for."""

from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser as promql

from agentbench_otel import names

VARIABLES = {
    "$__rate_interval": "1m",
    "$__range": "6h",
    "$__interval": "1m",
    "$window": "1h",
    "${datasource}": "prometheus",
    "$job": ".+",
    "$instance": ".+",
    "$target": ".+",
    "$case": ".+",
    "$mode": ".+",
}
COUNTER_FUNCTIONS = {"rate", "irate", "increase"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """``functions``: those around it, the innermost last. ``has_range``: whether it selects a range."""

    metric: str
    matchers: dict[str, str]
    functions: tuple[str, ...]
    has_range: bool


def expand(query: str, **values: str) -> str:
    """With a value in place of each variable of Grafana."""
    for name, value in {**VARIABLES, **{f"${key}": value for key, value in values.items()}}.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    return query


def parse(query: str) -> promql.Expr:
    """Raises:
    ValueError: The query is wrong, its types included.
    """
    return promql.parse(expand(query))


def selectors(expr: promql.Expr, functions: tuple[str, ...] = ()) -> Iterator[Selector]:
    if isinstance(expr, promql.VectorSelector):
        yield _selector(expr, functions, has_range=False)
    elif isinstance(expr, promql.MatrixSelector):
        yield _selector(expr.vector_selector, functions, has_range=True)
    elif isinstance(expr, promql.Call):
        for argument in expr.args:
            yield from selectors(argument, (*functions, expr.func.name))
    elif isinstance(expr, promql.BinaryExpr):
        yield from selectors(expr.lhs, functions)
        yield from selectors(expr.rhs, functions)
    elif isinstance(expr, promql.AggregateExpr | promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        yield from selectors(expr.expr, functions)


def _selector(vector: promql.VectorSelector, functions: tuple[str, ...], *, has_range: bool) -> Selector:
    matchers = {matcher.name: matcher.value for matcher in vector.matchers.matchers}
    return Selector(metric=vector.name or "", matchers=matchers, functions=functions, has_range=has_range)


def grouping_labels(expr: promql.Expr) -> Iterator[str]:
    """The labels of every ``by``."""
    if isinstance(expr, promql.AggregateExpr):
        if expr.modifier is not None:
            yield from expr.modifier.labels
        yield from grouping_labels(expr.expr)
    elif isinstance(expr, promql.Call):
        for argument in expr.args:
            yield from grouping_labels(argument)
    elif isinstance(expr, promql.BinaryExpr):
        yield from grouping_labels(expr.lhs)
        yield from grouping_labels(expr.rhs)
    elif isinstance(expr, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        yield from grouping_labels(expr.expr)


def known_metric(name: str) -> names.Metric | None:
    """The metric of ours that has this name in Prometheus, its histogram parts included."""
    for metric in names.metrics_of("1.41"):
        parts = ("_bucket", "_sum", "_count") if metric.kind is names.MetricKind.HISTOGRAM else ("",)
        if name in [metric.prometheus_name + part for part in parts]:
            return metric
    return None
