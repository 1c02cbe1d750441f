"""What people and CI read: nothing unmeasured is written as 0, and a server's words stay words."""

import json
import re
import unicodedata
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from agentbench_otel.app import make_report
from agentbench_otel.cli.output import exit_code, render
from agentbench_otel.records.results import (
    CycleReport,
    FailureKind,
    ModelCallResult,
    RunFault,
    RunResult,
    SemanticFailure,
    Status,
)
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.reports.junit import render_junit
from agentbench_otel.reports.markdown import render_markdown
from agentbench_otel.reports.table import render_table
from tests.support.results import a_result

FIGURES = (
    "visible TTFT",
    "token TTFT",
    "elapsed",
    "stream",
    "consumer",
    "turn wall",
    "tokens",
    "tools",
    "overlap",
)
HOSTILE = (
    "magenta[35m]0;title\x07 \x9b31m back\b\x7f up\x0b\x0c\x1c nul\x00 tab\t a\nb\rc\x85d\u2028e\u2029f "
    "\u202eodd\u2066 | cell | <script>alert(1)</script> & ]]> [link](http://x) ![i](x) `code` *b* _i_ #1 \ufffe"
)
STARTED_AT = datetime(2026, 7, 14, 9, 30, tzinfo=UTC)

NUMBERS: dict[str, Any] = {
    "visible_ttft_ms": 103.5,
    "token_ttft_ms": 102.5,
    "provider_await_ms": 204.5,
    "provider_stream_ms": 205.5,
    "consumer_ms": 6.5,
    "turn_wall_time_ms": 1234.5,
    "total_tokens": 15,
}


def run_result(**fields: Any) -> RunResult:
    """A run that passed, unless the fields say otherwise."""
    own = {"target": "local", "model": "small", "mock": False, "trace_id": "7" * 32, "started_at": STARTED_AT}
    return a_result(**{**own, **NUMBERS, **fields})


def run_with_error(kind: str, message: str, **fields: Any) -> RunResult:
    """A run that ended in an error; its numbers stay, as those of a run that raised do."""
    return run_result(status=Status.FAILED, error=RunFault(kind=kind, message=message), **fields)


def run_with_failures(*failures: tuple[FailureKind, str], **fields: Any) -> RunResult:
    """A run that ended without an error and did not do what its case promises."""
    told = tuple(SemanticFailure(kind=kind, message=message) for kind, message in failures)
    return run_result(status=Status.FAILED, semantic_failures=told, **fields)


def unmeasured_run(**fields: Any) -> RunResult:
    """A run that ended in an error before anything was measured."""
    nothing = {**dict.fromkeys(NUMBERS), "tool_handler_ms": None, "model_calls": ()}
    return run_with_error("connect_error", "target local: connection failed", **{**nothing, **fields})


def model_call(**fields: Any) -> ModelCallResult:
    return run_result().model_calls[0].model_copy(update=fields)


def cycle_report(*runs: RunResult, mock: bool = False) -> CycleReport:
    return make_report(runs, is_mock=mock, started_at=STARTED_AT, finished_at=STARTED_AT)


def table(report: CycleReport) -> list[str]:
    return render_table(report, has_color=False).splitlines()


def rows(lines: list[str], cell: str) -> list[list[str]]:
    """The lines that begin with a cell, cut into their cells."""
    return [re.split(r" {2,}", line) for line in lines if line.startswith(cell)]


def markdown_rows(report: CycleReport) -> list[list[str]]:
    """The cells of each table line, unescaped."""
    lines = [line for line in render_markdown(report).splitlines() if line.startswith("|")]
    return [
        [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]


def junit(report: CycleReport) -> ET.Element:
    return ET.fromstring(render_junit(report))


# --- the table -----------------------------------------------------------------------------------------------


def test_a_run_is_a_line_of_figures() -> None:
    lines = table(cycle_report(run_result(tool_count=2, parallel_events_overlapped=True)))
    assert lines[0] == "local · small · times in ms"
    assert rows(lines, "case") == [["case", "mode", "status", *FIGURES]]
    figures = ["103.5", "102.5", "204.5", "205.5", "6.50", "1234.5", "15", "2", "yes"]
    assert rows(lines, "ordinary_chat") == [["ordinary_chat", "dual_agent", "passed", *figures]]
    assert lines[-1] == "1 attempted, 1 passed, 0 failed"


def test_what_was_not_measured_is_never_0() -> None:
    (cells,) = rows(table(cycle_report(unmeasured_run())), "ordinary_chat")
    assert cells[3:] == ["n/a"] * 7 + ["0", "–"]


@pytest.mark.parametrize(("overlapped", "word"), [(True, "yes"), (False, "no"), (None, "–")])
def test_the_overlap_is_yes_no_or_not_asked(overlapped: bool | None, word: str) -> None:
    (cells,) = rows(table(cycle_report(run_result(parallel_events_overlapped=overlapped))), "ordinary_chat")
    assert cells[-1] == word


def test_a_measured_0_is_a_0() -> None:
    (cells,) = rows(table(cycle_report(run_result(visible_ttft_ms=0.0, total_tokens=0))), "ordinary_chat")
    assert (cells[3], cells[9]) == ("0.00", "0")


def test_long_figures_and_names_are_never_cut() -> None:
    name, model = "n" * 63, "m" * 200
    run = run_result(
        target=name,
        model=model,
        case_id=CaseId.CALENDAR_SCHEDULE_TEMPLATE,
        mode=Mode.CHAT_AGENT_TOOLS,
        warmup=True,
        **dict.fromkeys(("visible_ttft_ms", "token_ttft_ms", "provider_await_ms"), 86_400_000.125),
        **dict.fromkeys(("provider_stream_ms", "consumer_ms", "turn_wall_time_ms"), 86_400_000.125),
        total_tokens=10**15,
    )
    lines = table(cycle_report(run, run, run))
    assert lines[0] == f"{name} · {model} · times in ms"
    assert rows(lines, "calendar")[0] == [
        "calendar_schedule_template",
        "chat_agent_tools",
        "passed (warm-up)",
        *["86400000.1"] * 6,
        str(10**15),
        "0",
        "–",
    ]
    assert not any("…" in line for line in lines)


def test_an_aggregate_with_the_longest_names_is_not_cut() -> None:
    run = run_result(target="n" * 63, case_id=CaseId.CALENDAR_SCHEDULE_TEMPLATE, turn_wall_time_ms=86_400_000.125)
    lines = table(cycle_report(run, run))
    (cells,) = rows(lines, "n" * 63 + " calendar")
    assert cells[0] == "n" * 63 + " calendar_schedule_template dual_agent"
    assert cells[6] == "86400000.1 (86400000.1–86400000.1)"


def test_a_long_message_stays_on_one_line() -> None:
    message = "word " * 400 + "end"
    lines = table(cycle_report(run_with_error("http_500", message)))
    assert any(line.endswith(message) for line in lines)


def test_no_line_of_the_table_ends_with_a_blank() -> None:
    lines = table(cycle_report(run_result(), unmeasured_run(), run_result(warmup=True), run_result()))
    assert all(line == line.rstrip() for line in lines)


def test_each_target_has_its_own_table() -> None:
    lines = table(cycle_report(run_result(target="a"), run_result(target="b", model="other")))
    assert [line for line in lines if "times in ms" in line] == [
        "a · small · times in ms",
        "b · other · times in ms",
    ]
    assert len(rows(lines, "case")) == 2


def test_a_mock_is_called_a_mock() -> None:
    report = cycle_report(run_result(mock=True), mock=True)
    assert table(report)[0] == "local · small · scripted mock · times in ms"
    assert "(scripted mock)" in render_markdown(report)


def test_a_failed_run_says_why_with_all_its_reasons() -> None:
    run = run_with_error(
        "http_429",
        "slow down",
        iteration=3,
        semantic_failures=run_with_failures((FailureKind.USAGE_MISSING, "no usage")).semantic_failures,
    )
    text = "\n".join(table(cycle_report(run)))
    assert "local ordinary_chat dual_agent #3" in text
    assert text.index("http_429: slow down") < text.index("usage_missing: no usage")
    assert text.endswith("1 attempted, 0 passed, 1 failed")


def test_a_warning_names_its_run() -> None:
    text = "\n".join(table(cycle_report(run_result(warnings=("call 1: the answer was cut",), iteration=2))))
    assert "warning" in text
    assert "local ordinary_chat dual_agent #2" in text
    assert "call 1: the answer was cut" in text


def test_the_table_has_color_only_when_asked() -> None:
    report = cycle_report(run_result(), run_with_error("http_500", "x"))
    assert "\x1b" not in render_table(report, has_color=False)
    assert "\x1b[31m" in render_table(report, has_color=True)


# --- several runs, warm-ups ----------------------------------------------------------------------------------


def test_several_runs_of_a_case_have_a_line_with_median_and_range() -> None:
    runs = [run_result(iteration=n, turn_wall_time_ms=wall) for n, wall in enumerate((30.0, 10.0, 11.0), 1)]
    for lines in (rows(table(cycle_report(*runs)), "local ordinary"), markdown_rows(cycle_report(*runs))):
        line = next(line for line in lines if line[0] == "local ordinary_chat dual_agent")
        assert line[1:] == [
            "3/3",
            "103.5 (103.5–103.5)",
            "102.5 (102.5–102.5)",
            "204.5 (204.5–204.5)",
            "205.5 (205.5–205.5)",
            "11.00 (10.00–30.00)",
            "0.00 (0.00–0.00)",
        ]


def test_one_run_has_no_aggregate() -> None:
    report = cycle_report(run_result(), run_result(case_id=CaseId.SESSION_TERMINATE))
    assert "median" not in render_table(report, has_color=False)
    assert "median" not in render_markdown(report)


def test_an_aggregate_of_nothing_measured_is_never_0() -> None:
    report = cycle_report(unmeasured_run(), unmeasured_run(iteration=2))
    (line,) = rows(table(report), "local ordinary")
    assert line[1:] == ["0/2", *["n/a"] * 6]
    assert ["local ordinary_chat dual_agent", "0/2", *["n/a"] * 6] in markdown_rows(report)


def test_a_doubtful_median_is_said_in_the_table_and_in_markdown() -> None:
    report = cycle_report(run_result(turn_wall_time_ms=10.0), run_result(turn_wall_time_ms=100.0, iteration=2))
    words = "the median turn wall of 55.0 ms is doubtful"
    assert words in render_table(report, has_color=False)
    assert words in render_markdown(report)


def test_warm_ups_are_marked_and_counted_nowhere() -> None:
    report = cycle_report(
        run_with_error("http_500", "cold", warmup=True), run_result(), run_result(iteration=2), mock=False
    )
    lines = table(report)
    assert [cells[2] for cells in rows(lines, "ordinary_chat")] == ["failed (warm-up)", "passed", "passed"]
    assert lines[-1] == "2 attempted, 2 passed, 0 failed"
    assert rows(lines, "local ordinary")[0][1] == "2/2"
    assert [cells[3] for cells in markdown_rows(report)[2:5]] == ["failed (warm-up)", "passed", "passed"]
    assert junit(report).get("tests") == "2"
    assert exit_code(report) == 0


def test_a_report_without_runs_is_still_a_report() -> None:
    report = cycle_report()
    assert table(report)[-1] == "0 attempted, 0 passed, 0 failed"
    assert junit(report).attrib["tests"] == "0"
    assert render_markdown(report).startswith("## agentbench-otel: 0 attempted")
    assert json.loads(render(report, "json", is_for_terminal=False))["runs"] == []


# --- Markdown ------------------------------------------------------------------------------------------------


def test_a_markdown_row_has_a_cell_for_each_column() -> None:
    report = cycle_report(run_result(), unmeasured_run(mode=Mode.CHAT_AGENT_TOOLS))
    header, rule, passed, failed = markdown_rows(report)
    assert header == ["target", "case", "mode", "status", *FIGURES]
    assert rule == ["---"] * 4 + ["---:"] * 9
    assert passed[:5] == ["local", "ordinary_chat", "dual_agent", "passed", "103.5"]
    assert failed[4:] == ["n/a"] * 7 + ["0", "–"]


def test_markdown_headline_gives_the_counts() -> None:
    report = cycle_report(run_result(), run_with_error("http_500", "x", iteration=2))
    assert render_markdown(report).splitlines()[0] == "## agentbench-otel: 2 attempted, 1 passed, 1 failed"


@pytest.mark.parametrize("markup", ["\\", "`", "*", "_", "{", "}", "[", "]", "<", ">", "|"])
def test_markup_in_a_servers_words_is_escaped(markup: str) -> None:
    text = render_markdown(cycle_report(run_with_error("http_500", f"a{markup}b", warnings=(f"c{markup}d",))))
    assert f"a\\{markup}b" in text
    assert f"c\\{markup}d" in text


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_a_line_end_in_a_servers_words_starts_no_line_of_ours(line_end: str) -> None:
    report = cycle_report(run_with_error("http_500", f"a{line_end}## b"))
    for text in (render_markdown(report), render_table(report, has_color=False)):
        assert not any(line.lstrip().startswith("## b") for line in text.splitlines())


# --- JUnit ---------------------------------------------------------------------------------------------------


def test_junit_counts_errors_and_failures_apart() -> None:
    root = junit(
        cycle_report(
            run_result(),
            run_with_error("http_401", "no", iteration=2),
            run_with_failures((FailureKind.NO_OVERLAP, "did not overlap"), iteration=3),
            run_result(iteration=1, warmup=True),
            run_result(target="other"),
        )
    )
    counts = {"tests": "4", "failures": "1", "errors": "1"}
    assert {key: root.get(key) for key in counts} == counts
    assert [
        (suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in root
    ] == [
        ("local", "3", "1", "1"),
        ("other", "1", "0", "0"),
    ]
    assert len(root.findall(".//testcase")) == 4


def test_a_run_with_an_error_and_failures_is_one_junit_error_that_tells_both() -> None:
    failed = run_with_failures((FailureKind.USAGE_MISSING, "no usage"))
    run = run_with_error("http_401", "no", semantic_failures=failed.semantic_failures)
    (case,) = junit(cycle_report(run)).findall(".//testcase")
    assert case.find("failure") is None
    (error,) = case.findall("error")
    assert error.get("type") == "http_401"
    assert error.get("message") == "http_401: no"
    assert error.text == "http_401: no\nusage_missing: no usage"


def test_a_junit_case_says_what_ran_and_how_long() -> None:
    (suite,) = junit(cycle_report(run_result(iteration=2, warnings=("slow",))))
    assert suite.get("timestamp") == "2026-07-14T09:30:00+00:00"
    (case,) = suite
    assert case.get("classname") == "local.dual_agent"
    assert case.get("name") == "ordinary_chat #2"
    assert case.get("time") == "1.234500"
    assert case.findtext("system-out") == f"trace_id: {'7' * 32}\nwarning: slow"


def test_junit_gives_no_time_to_a_run_that_has_none() -> None:
    (case,) = junit(cycle_report(unmeasured_run())).findall(".//testcase")
    assert case.get("time") is None


def test_junit_is_valid_whatever_a_spans_file_holds() -> None:
    """``measure`` reads files of other people; the target and the error kind are texts there."""
    run = run_with_error(f"kind{HOSTILE}", HOSTILE, target=f"name{HOSTILE}", trace_id="0\x1b")
    assert len(junit(cycle_report(run)).findall(".//error")) == 1


# --- JSON ----------------------------------------------------------------------------------------------------


def test_json_keeps_null_apart_from_0() -> None:
    document = json.loads(render(cycle_report(unmeasured_run(tool_count=0)), "json", is_for_terminal=False))
    (run,) = document["runs"]
    assert run["turn_wall_time_ms"] is None
    assert run["total_tokens"] is None
    assert run["parallel_events_overlapped"] is None
    assert run["tool_count"] == 0
    assert run["model_calls"] == []


def test_json_holds_the_report_as_it_is() -> None:
    call = model_call(error=RunFault(kind="http_500", message="x"), usage=None)
    report = cycle_report(run_with_error("http_500", "x", model_calls=(call,)), run_result(iteration=2))
    assert CycleReport.model_validate_json(render(report, "json", is_for_terminal=False)) == report


# --- a server's words ----------------------------------------------------------------------------------------


def hostile_report() -> CycleReport:
    """Words of a server, or of a file that another person made, in every place that a report shows."""
    told = run_with_failures((FailureKind.UNKNOWN_EVENT, f"unknown {HOSTILE}")).semantic_failures
    call = model_call(finish_reason=HOSTILE, response_model=HOSTILE, error=RunFault(kind="x", message=HOSTILE))
    fields = {"semantic_failures": told, "warnings": (HOSTILE,), "model_calls": (call,), "model": HOSTILE}
    return cycle_report(
        run_with_error("in_stream_error", HOSTILE, **fields),
        run_with_error("in_stream_error", HOSTILE, target=HOSTILE, **fields),
        run_with_error("in_stream_error", HOSTILE, target=HOSTILE, iteration=2, **fields),
    )


@pytest.mark.parametrize("format_name", ["table", "json", "markdown", "junit"])
def test_a_servers_words_reach_the_terminal_without_control_characters(format_name: str) -> None:
    text = render(hostile_report(), format_name, is_for_terminal=False)
    assert {char for char in text if unicodedata.category(char) == "Cc"} <= {"\n", "\t"}


def test_a_color_table_holds_no_escape_sequence_but_its_own() -> None:
    text = render_table(hostile_report(), has_color=True)
    assert "\x1b[31m" in text  # ours: a failed run
    assert "\x1b[35m" not in text  # the server's
    assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_hostile_message_leaves_the_rows_of_the_table_alone() -> None:
    cells = rows(table(hostile_report()), "ordinary_chat")
    assert [line[:3] for line in cells] == [["ordinary_chat", "dual_agent", "failed"]] * 3


def test_a_hostile_message_makes_no_html_and_no_table_of_ours() -> None:
    text = render_markdown(hostile_report())
    assert "<script" not in text.replace("\\<", "")
    widths = {len(re.split(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| ")}
    assert widths == {15, 10}


def test_a_hostile_message_leaves_junit_valid_and_its_counts_right() -> None:
    root = junit(hostile_report())
    assert (root.get("tests"), root.get("errors"), root.get("failures")) == ("3", "3", "0")
    first = root.findall(".//error")[0]
    assert "<script>alert(1)</script> & ]]>" in str(first.get("message"))


# --- the exit code -------------------------------------------------------------------------------------------


def test_the_exit_code_is_0_when_all_passed() -> None:
    assert exit_code(cycle_report(run_result())) == 0


def test_the_exit_code_is_3_when_a_run_failed() -> None:
    assert exit_code(cycle_report(run_result(), run_with_failures((FailureKind.NO_OVERLAP, "x")))) == 3


def test_the_exit_code_is_1_when_a_run_failed_by_a_bug_of_ours() -> None:
    assert exit_code(cycle_report(run_with_error("http_500", "x"), run_with_error("internal", "x"))) == 1


def test_the_exit_code_is_1_even_when_the_bug_was_in_a_warm_up() -> None:
    assert exit_code(cycle_report(run_with_error("internal", "x", warmup=True), run_result())) == 1


def test_a_run_that_failed_without_words_is_still_counted() -> None:
    report = cycle_report(run_result(status=Status.FAILED))
    assert report.summary.failed == 1
    assert exit_code(report) == 3
