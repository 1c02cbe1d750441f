"""Log lines that people and machines read."""

import json
import logging
import sys
from typing import Any

import pytest

from agentbench_otel.daemon.journal import Journal
from agentbench_otel.daemon.logs import LineFormatter, LogFormat
from agentbench_otel.records.results import FailureKind, RunFault, SemanticFailure
from tests.support.results import a_result


def line(message: str, fields: dict[str, Any] | None = None, log_format: LogFormat = "logfmt") -> str:
    record = logging.LogRecord("agentbench_otel.x", logging.WARNING, __file__, 1, message, (), None)
    record.created = 1_800_000_000.25
    if fields is not None:
        record.fields = fields
    return LineFormatter(log_format).format(record)


def test_a_line_has_utc_time_level_message_and_fields() -> None:
    told = line("run passed", {"target": "local", "ms": 12.5, "warmup": None, "mock": True})
    assert (
        told == 'time=2027-01-15T08:00:00.250+00:00 level=warning msg="run passed" target=local ms=12.5 mock=true'
    )


@pytest.mark.parametrize("text", ['a "b"', "two\nlines", "a=b", "", "\x1b[31m", "back\\slash"])
def test_what_would_break_a_line_is_quoted(text: str) -> None:
    told = line("x", {"error": text})
    assert "\n" not in told
    assert "\x1b" not in told
    assert json.loads(told.partition("error=")[2]) == text


def test_json_has_the_same_fields_in_one_line() -> None:
    told = json.loads(line("two\nlines", {"runs": 3}, "json"))
    assert told == {"time": "2027-01-15T08:00:00.250+00:00", "level": "warning", "msg": "two\nlines", "runs": 3}


@pytest.mark.parametrize("log_format", ["logfmt", "json"])
def test_a_traceback_stays_on_the_line(log_format: LogFormat) -> None:
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "bug", (), sys.exc_info())
    told = LineFormatter(log_format).format(record)
    assert "\n" not in told
    assert "ZeroDivisionError: oh" in told


FAILED = {
    "status": "failed",
    "semantic_failures": (
        SemanticFailure(kind=FailureKind.TOOL_COUNT, message="a"),
        SemanticFailure(kind=FailureKind.TOOL_COUNT, message="b"),
    ),
}
ABORTED = {"status": "failed", "error": RunFault(kind="aborted", message="aborted")}


def test_a_series_that_begins_to_fail_is_a_warning_and_its_recovery_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    journal = Journal()
    for changes in ({}, FAILED, ABORTED, {**FAILED, "warmup": True}, FAILED, {"warmup": True}, {}, {}):
        journal.accept(a_result(**changes), ())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "run passed"),
        ("WARNING", "run failed, unlike the one before"),
        ("INFO", "run failed"),
        ("INFO", "run failed"),
        ("INFO", "run failed"),
        ("INFO", "run passed"),
        ("INFO", "run passed again"),
        ("INFO", "run passed"),
    ]


def test_the_first_run_that_fails_is_a_warning_too(caplog: pytest.LogCaptureFixture) -> None:
    Journal().accept(a_result(**FAILED), ())
    assert caplog.records[0].levelname == "WARNING"
    fields = caplog.records[0].__dict__["fields"]
    assert fields["failures"] == "tool_count"
    assert fields["visible_ttft_ms"] is None or fields["visible_ttft_ms"] > 0


def test_another_mode_is_another_series(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal()
    journal.accept(a_result(**FAILED), ())
    journal.accept(a_result(**FAILED, mode="chat_agent_tools"), ())
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
