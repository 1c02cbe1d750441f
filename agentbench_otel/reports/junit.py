"""The report as JUnit XML: a suite per target, a test case per counted run."""

import re
from itertools import groupby
from xml.etree import ElementTree as ET

from agentbench_otel.records.results import CycleReport, RunResult
from agentbench_otel.reports import words

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: CycleReport) -> str:
    counted = [run for run in report.runs if not run.warmup]
    root = ET.Element("testsuites", _totals(counted, name="agentbench-otel"))
    for target, runs in groupby(counted, key=lambda run: run.target):
        group = list(runs)
        suite = ET.SubElement(
            root, "testsuite", {**_totals(group, name=target), "timestamp": group[0].started_at.isoformat()}
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
            "classname": f"{run.target}.{run.mode.value}",
            "name": f"{run.case_id.value} #{run.iteration}",
            "time": f"{(run.turn_wall_time_ms or 0.0) / 1000:.6f}",
        },
    )
    if run.error is not None:
        _problem(case, "error", run.error.kind, run)
    elif run.semantic_failures:
        _problem(case, "failure", run.semantic_failures[0].kind.value, run)
    details = [f"trace_id: {run.trace_id}", *(f"warning: {warning}" for warning in run.warnings)]
    ET.SubElement(case, "system-out").text = _xml("\n".join(details))
    return case


def _problem(case: ET.Element, tag: str, kind: str, run: RunResult) -> None:
    lines = list(words.problems(run))
    element = ET.SubElement(case, tag, {"type": kind, "message": _xml(lines[0])})
    element.text = _xml("\n".join(lines))


def _xml(text: str) -> str:
    """XML 1.0 can't hold every character, and a server's words may."""
    return _NOT_XML.sub("\ufffd", text)
