"""The report as JUnit XML: a suite per target, a test case per counted run."""

from itertools import groupby
from xml.etree import ElementTree as ET

from agentbench_otel.records.results import CycleReport, RunResult
from agentbench_otel.reports import words


def render_junit(report: CycleReport) -> str:
    counted = [run for run in report.runs if not run.warmup]
    root = ET.Element("testsuites", _totals(counted, name="agentbench-otel"))
    for target, runs in groupby(counted, key=lambda run: run.target):
        group = list(runs)
        suite = ET.SubElement(
            root,
            "testsuite",
            {**_totals(group, name=words.printable(target)), "timestamp": group[0].started_at.isoformat()},
        )
        for run in group:
            suite.append(_case(run))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _totals(runs: list[RunResult], *, name: str) -> dict[str, str]:
    return {
        "name": name,
        "tests": str(len(runs)),
        "failures": str(sum(run.error is None and bool(run.semantic_failures) for run in runs)),
        "errors": str(sum(run.error is not None for run in runs)),
        "time": f"{sum(run.turn_wall_time_ms or 0.0 for run in runs) / 1000:.6f}",
    }


def _case(run: RunResult) -> ET.Element:
    case = ET.Element(
        "testcase",
        {
            "classname": words.printable(f"{run.target}.{run.mode.value}"),
            "name": f"{run.case_id.value} #{run.iteration}",
        },
    )
    if run.turn_wall_time_ms is not None:  # without a turn there is no time, and 0 would be one
        case.set("time", f"{run.turn_wall_time_ms / 1000:.6f}")
    if run.error is not None:
        _problem(case, "error", run.error.kind, run)
    elif run.semantic_failures:
        _problem(case, "failure", run.semantic_failures[0].kind.value, run)
    details = [words.printable(f"trace_id: {run.trace_id}"), *(f"warning: {text}" for text in words.warnings(run))]
    ET.SubElement(case, "system-out").text = "\n".join(details)
    return case


def _problem(case: ET.Element, tag: str, kind: str, run: RunResult) -> None:
    lines = list(words.problems(run))
    element = ET.SubElement(case, tag, {"type": words.printable(kind), "message": lines[0]})
    element.text = "\n".join(lines)
