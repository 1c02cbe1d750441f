"""The OpenAI client against aimock, a mock server of another project that keeps the times of its fixtures."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.stack.servers import RunningServer, StartAimock
from tests.stack.test_real_model import run_cli

pytestmark = pytest.mark.stack

TTFT_MS, TOKENS_PER_S = 300, 40
INTERVAL_MS = 1000 / TOKENS_PER_S
TEXT = "The sea is calm today and the sun is warm."
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
VOLUME = {"id": "call_a", "name": "device_volume_adjust", "arguments": {"mode": "absolute", "value": 30}}
CALENDAR = {
    "id": "call_b",
    "name": "calendar_schedule_create",
    "arguments": {
        "title": "Design review",
        "start_at": "2026-07-14T09:30:00+08:00",
        "timezone": "Asia/Shanghai",
    },
}


def run_case(server: RunningServer, folder: Path, case: str, mode: str, *, runs: int) -> list[dict[str, Any]]:
    config = folder / "aimock.yaml"
    config.write_text(
        "schema_version: 1\n"
        f"targets: [{{name: aimock, base_url: {server.base_url}, model: any}}]\n"
        f"benchmark: {{cases: [{case}], modes: [{mode}], runs_per_case: {runs}}}\n"
    )
    report = folder / "report.json"
    done = run_cli("once", "--config", config, "--format", "json", "--output", report)
    assert done.returncode in (0, 3), done.stderr
    found: list[dict[str, Any]] = json.loads(report.read_text())["runs"]
    return found


def least_disturbed(calls: list[dict[str, Any]], field: str) -> float:
    """The shortest time of several calls: a busy machine makes times longer, never shorter."""
    return min(float(call[field]) for call in calls)


def test_first_token_gaps_and_stream_time_are_as_the_fixture_says(aimock: StartAimock, tmp_path: Path) -> None:
    chunk_size = 6
    text_chunks = -(-len(TEXT) // chunk_size)
    server = aimock(
        [
            {
                "match": {"userMessage": "Hello"},
                "response": {"content": TEXT, "usage": USAGE},
                "streamingProfile": {"ttft": TTFT_MS, "tps": TOKENS_PER_S},
                "chunkSize": chunk_size,
            }
        ]
    )
    runs = run_case(server, tmp_path, "ordinary_chat", "dual_agent", runs=3)
    calls = [run["model_calls"][0] for run in runs]
    assert [run["status"] for run in runs] == ["passed"] * 3
    assert {call["chunk_count"] for call in calls} == {text_chunks}
    # The role chunk comes at ttft, the first text one interval later, and the finish chunk is a chunk too.
    assert least_disturbed(calls, "provider_ttft_ms") == pytest.approx(TTFT_MS, abs=12)
    assert least_disturbed(calls, "token_ttft_ms") == pytest.approx(TTFT_MS + INTERVAL_MS, abs=12)
    expected_stream_ms = TTFT_MS + (text_chunks + 1) * INTERVAL_MS
    assert least_disturbed(calls, "stream_ms") == pytest.approx(expected_stream_ms, abs=20)
    assert least_disturbed(calls, "max_chunk_gap_ms") == pytest.approx(INTERVAL_MS, abs=8)
    for call in calls:
        assert {key: call["usage"][key] for key in USAGE} == USAGE


def test_native_parallel_tool_calls_pass_and_their_handlers_overlap(aimock: StartAimock, tmp_path: Path) -> None:
    server = aimock(
        [
            {
                "match": {"userMessage": "set volume"},
                "response": {"content": "I will do both.", "toolCalls": [VOLUME, CALENDAR], "usage": USAGE},
                "streamingProfile": {"ttft": 50, "tps": 100},
            }
        ]
    )
    (run,) = run_case(server, tmp_path, "parallel_volume_schedule", "chat_agent_tools", runs=1)
    assert run["semantic_failures"] == []
    assert run["status"] == "passed"
    assert run["parallel_events_overlapped"] is True
    assert run["tool_event_names"] == ["device.volume.adjust", "calendar.schedule.create"]


def test_text_events_of_another_server_are_decoded(aimock: StartAimock, tmp_path: Path) -> None:
    markup = '<event name="device.volume.adjust">{"mode":"absolute","value":30}</event>'
    server = aimock(
        [
            {
                "match": {"userMessage": "set volume"},
                "response": {"content": f"I will do that. {markup}", "usage": USAGE},
                "streamingProfile": {"ttft": 50, "tps": 200},
                "chunkSize": 5,
            }
        ]
    )
    (run,) = run_case(server, tmp_path, "device_volume_silent", "dual_agent", runs=1)
    assert run["semantic_failures"] == []
    assert run["event_sources"] == ["text_event"]
    assert run["visible_ttft_ms"] < run["provider_stream_ms"]


def test_a_grounded_second_call_gets_the_tools_answer(aimock: StartAimock, tmp_path: Path) -> None:
    search = {"id": "call_s", "name": "knowledge_web_search", "arguments": {"query": "event batch safety"}}
    match = {"userMessage": "event batch safety"}
    server = aimock(
        [
            {
                "match": {**match, "hasToolResult": False},
                "response": {"content": "I will check.", "toolCalls": [search], "usage": USAGE},
            },
            {
                "match": {**match, "hasToolResult": True},
                "response": {"content": "Batches are resolved first.", "usage": USAGE},
            },
        ]
    )
    (run,) = run_case(server, tmp_path, "web_search_two_answers", "chat_agent_tools", runs=1)
    assert run["semantic_failures"] == []
    assert run["model_call_count"] == 2
    assert run["total_tokens"] == 2 * USAGE["total_tokens"]
    assert [call["connection_reused"] for call in run["model_calls"]] == [False, True]
