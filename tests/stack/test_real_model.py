"""`once` against a real language model on llama.cpp's own HTTP server."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.stack.servers import RunningServer

pytestmark = pytest.mark.stack

CASES = ("ordinary_chat", "device_volume_silent", "web_search_two_answers")
RUN_LIMIT_S = 240
MAX_TOKENS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCycle:
    """What one `once --config` left behind. ``server_ms``: llama.cpp's own prompt + eval time per call."""

    exit_code: int
    report: dict[str, Any]
    spans_file: Path
    server_ms: list[float]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [call for run in self.report["runs"] for call in run["model_calls"]]


def run_cli(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agentbench_otel", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )


def server_times_ms(log: str) -> list[float]:
    """llama.cpp logs for each request what it also puts on the last chunk as ``timings``."""
    prompt = re.findall(r"prompt eval time =\s*([\d.]+) ms", log)
    generated = re.findall(r"^\s+eval time =\s*([\d.]+) ms", log, re.MULTILINE)
    return [float(one) + float(other) for one, other in zip(prompt, generated, strict=True)]


@pytest.fixture(scope="module")
def live(llama_cpp: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> LiveCycle:
    folder = tmp_path_factory.mktemp("live")
    config, spans, report = folder / "live.yaml", folder / "spans.jsonl", folder / "report.json"
    config.write_text(
        "schema_version: 1\n"
        f"targets:\n- {{name: smol, base_url: {llama_cpp.base_url}, model: smollm2, max_tokens: {MAX_TOKENS}}}\n"
        # The same prompts each time, so that the model says the same: with a nonce it now and then begins a
        # tool call that max_tokens cuts, and this server then ends its stream with an error, without usage.
        f"benchmark: {{cases: [{', '.join(CASES)}], prompt_cache: allow}}\n"
    )
    log_before = len(server_times_ms(llama_cpp.log_path.read_text()))
    done = run_cli("once", "--config", config, "--spans", spans, "--format", "json", "--output", report)
    assert done.returncode in (0, 3), done.stderr
    return LiveCycle(
        exit_code=done.returncode,
        report=json.loads(report.read_text()),
        spans_file=spans,
        server_ms=server_times_ms(llama_cpp.log_path.read_text())[log_before:],
    )


def test_every_case_runs_in_both_modes_and_a_failed_one_says_why(live: LiveCycle) -> None:
    runs = live.report["runs"]
    assert [(run["case_id"], run["mode"]) for run in runs] == [
        (case, mode) for case in CASES for mode in ("dual_agent", "chat_agent_tools")
    ]
    failed = [run for run in runs if run["status"] == "failed"]
    assert live.exit_code == (3 if failed else 0)
    for run in failed:
        assert run["error"] or run["semantic_failures"]


def test_the_server_reports_usage_and_the_totals_are_their_sums(live: LiveCycle) -> None:
    for run in live.report["runs"]:
        usages = [call["usage"] for call in run["model_calls"]]
        assert usages
        assert run["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in usages)
        assert run["completion_tokens"] == sum(usage["completion_tokens"] for usage in usages)


def test_times_are_measured_and_in_their_natural_order(live: LiveCycle) -> None:
    for call in live.calls:
        assert 0 < call["provider_ttft_ms"] <= call["token_ttft_ms"] <= call["stream_ms"]
        assert call["await_count"] > 1
        assert call["connect_ms"] > 0
    for run in live.report["runs"]:
        assert run["provider_stream_ms"] <= run["turn_wall_time_ms"]
        parts = run["turn_provider_ms"] + run["turn_handler_ms"] + run["harness_ms"]
        assert parts == pytest.approx(run["turn_wall_time_ms"], abs=0.002)


def test_stream_time_agrees_with_the_servers_own_account(live: LiveCycle) -> None:
    assert len(live.server_ms) == len(live.calls)
    for call, server_ms in zip(live.calls, live.server_ms, strict=True):
        assert call["stream_ms"] == pytest.approx(server_ms, rel=0.10, abs=30)


def test_measure_gives_the_same_numbers_from_the_spans_alone(live: LiveCycle) -> None:
    again = run_cli("measure", live.spans_file, "--format", "json")
    assert again.returncode == live.exit_code, again.stderr
    assert json.loads(again.stdout)["runs"] == live.report["runs"]
