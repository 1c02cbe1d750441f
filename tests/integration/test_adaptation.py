"""Endpoints that refuse a parameter: the run is made again without it, visibly, and holds no refusal."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agentbench_otel import app
from agentbench_otel.records.results import RunResult
from agentbench_otel.runner import Runner, plan_runs
from tests.support.chat import target

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


class PickyServer(ThreadingHTTPServer):
    """Refuses the parameters in ``refused`` one at a time, as OpenAI does, and answers the rest."""

    daemon_threads = True

    def __init__(self, *refused: str) -> None:
        super().__init__(("127.0.0.1", 0), _PickyHandler)
        self.refused = refused
        self.bodies: list[dict[str, Any]] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _PickyHandler(BaseHTTPRequestHandler):
    server: PickyServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        refused = next((name for name in self.server.refused if name in body), None)
        if refused is not None:
            error = {
                "message": f"Unsupported parameter: '{refused}'",
                "param": refused,
                "code": "unsupported_parameter",
            }
            return self._answer(400, json.dumps({"error": error}))
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": {"content": "Hello there."}, "finish_reason": "stop"}]}
        ]
        if "stream_options" in body:
            chunks.append({"choices": [], "usage": USAGE})
        return self._answer(
            200, "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        )

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class named it
        """Nothing is logged."""


@contextmanager
def picky(*refused: str) -> Iterator[PickyServer]:
    with PickyServer(*refused) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def run_twice(server: PickyServer, folder: Path) -> list[RunResult]:
    """Two runs of the ordinary case against one target."""
    file = folder / "picky.yaml"
    file.write_text(
        f"schema_version: 1\ntargets: [{{name: picky, base_url: {server.base_url}, model: demo}}]\n"
        "benchmark: {cases: [ordinary_chat], modes: [dual_agent], runs_per_case: 2}\n"
    )
    config, endpoints = app.load_live_config(file, {})
    runner = Runner(
        config,
        client_factory=endpoints.make_client,
        adaptation_count=endpoints.adaptation_count,
        is_mock=False,
        sinks=[],
    )

    async def all_runs() -> list[RunResult]:
        return [await runner.run(plan) for plan in plan_runs(config.targets, config.benchmark)]

    return asyncio.run(all_runs())


def test_a_refused_parameter_costs_one_request_for_the_endpoint_and_no_measured_time(tmp_path: Path) -> None:
    with picky("max_tokens") as server:
        first, second = run_twice(server, tmp_path)
    assert [first.status.value, second.status.value] == ["passed", "passed"]
    for result in (first, second):
        (call,) = result.model_calls
        assert call.adaptations == ("max_completion_tokens instead of max_tokens",)
        assert call.error is None
    assert [("max_tokens" in body, "max_completion_tokens" in body) for body in server.bodies] == [
        (True, False),
        (False, True),
        (False, True),
    ]


def test_several_refusals_are_learned_one_after_the_other(tmp_path: Path) -> None:
    with picky("temperature", "max_tokens", "max_completion_tokens") as server:
        first, _ = run_twice(server, tmp_path)
    assert first.model_calls[0].adaptations == ("temperature left out", "max_tokens left out")
    assert len(server.bodies) == 5


def test_without_stream_options_usage_is_missing_and_the_run_says_so(tmp_path: Path) -> None:
    with picky("stream_options") as server:
        first, _ = run_twice(server, tmp_path)
    assert first.model_calls[0].adaptations == ("stream_options left out",)
    assert first.total_tokens is None
    assert [failure.kind.value for failure in first.semantic_failures] == ["usage_missing"]


def test_what_may_not_be_left_out_fails_the_run_at_once(tmp_path: Path) -> None:
    with picky("messages") as server:
        first, second = run_twice(server, tmp_path)
    assert len(server.bodies) == 2
    for result in (first, second):
        assert result.error is not None
        assert result.error.kind == "http_400"
        assert result.model_calls[0].adaptations == ()


def test_a_probe_adapts_too() -> None:
    with picky("temperature") as server:
        result = app.probe_endpoint(target(server.base_url), api_key=None, message="Hello.", tools=[])
    assert result.error is None
    assert result.adaptations == ("temperature left out",)
