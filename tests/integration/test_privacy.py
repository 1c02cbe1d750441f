"""Keys, headers and content stay here: a server sends back what it was sent, and nothing that leaves tells it."""

import asyncio
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentbench_otel import app
from agentbench_otel.config.model import Otlp, Telemetry
from agentbench_otel.records.results import RunResult
from agentbench_otel.runner import Runner, plan_runs
from agentbench_otel.telemetry.metrics_page import MetricsPage
from agentbench_otel.telemetry.prometheus import PrometheusReader
from agentbench_otel.telemetry.run_metrics import PlannedSeries
from tests.support.cli import run_cli
from tests.support.otlp_receiver import grpc_receiver, http_receiver
from tests.support.raw_server import RawServer, http_answer
from tests.support.recorded_runs import Keep, record_runs, run_metrics

KEY = "sk-keycanary-7f3a9b21c4d8"
HEADER = "hdrcanary 5e0f11aa22bb"
COLLECTOR_TOKEN = "otlpcanary-99ddee01"
CONTENT = "contentcanary"
CANARIES = ("keycanary", "7f3a9b21", "hdrcanary", "5e0f11aa", "otlpcanary")
ALL_OF_IT = f"you sent authorization: Bearer {KEY} and x-tenant: {HEADER}"


def stream(*chunks: object, ending: str = "data: [DONE]\n\n") -> bytes:
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + ending
    return http_answer(body, headers="content-type: text/event-stream\r\n")


def chunk(delta: object, finish_reason: str | None = None) -> object:
    return {
        "id": KEY,
        "model": f"m {HEADER}",
        "system_fingerprint": KEY,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }


CALL = {"index": 0, "id": KEY, "function": {"name": f"tool {KEY}", "arguments": json.dumps({"a": ALL_OF_IT})}}
WHOLE_ERROR = {"error": {"message": ALL_OF_IT, "type": KEY, "code": KEY, "param": HEADER}}
ECHOES = {
    "a JSON error": http_answer(json.dumps(WHOLE_ERROR), status="401 Unauthorized"),
    "a detail": http_answer(json.dumps({"detail": [{"msg": ALL_OF_IT, "loc": [KEY]}]}), status="422 No"),
    "plain text": http_answer(ALL_OF_IT, status="500 Internal Server Error"),
    "a page": http_answer(f"<html><title>{ALL_OF_IT}</title>{KEY}</html>", status="502 Bad Gateway"),
    "headers": http_answer("", status="429 Slow", headers=f"retry-after: {KEY}\r\nx-echo: {ALL_OF_IT}\r\n"),
    "a reason phrase": http_answer("", status=f"400 {ALL_OF_IT}"),
    "a redirect": http_answer("", status="302 Found", headers=f"location: http://x/?key={KEY}\r\n"),
    "no stream": http_answer(json.dumps({"hello": ALL_OF_IT}), headers="content-type: application/json\r\n"),
    "an error in the stream": stream(chunk({"content": "a"}), WHOLE_ERROR),
    "malformed JSON": stream(ending=f'data: {{"{ALL_OF_IT}\n\n'),
    "a cut stream": stream(chunk({"content": "a"}), ending=f"data: {ALL_OF_IT}"),
    "ids and names": stream(chunk({"tool_calls": [CALL]}), chunk({}, finish_reason=f"end {KEY}")),
    "not HTTP": f"{ALL_OF_IT}\r\n\r\n".encode(),
    "an absurd header": f"HTTP/1.1 200 OK\r\n{ALL_OF_IT}\x00\r\n\r\n".encode(),
}


def write_config(directory: Path, base_url: str, *, collector: str | None = None) -> Path:
    file = directory / "config.yaml"
    telemetry = "" if collector is None else f"telemetry:\n  otlp: {{endpoint: '{collector}'}}\n"
    file.write_text(
        "schema_version: 1\n"
        "targets:\n"
        "  - name: echo\n"
        f"    base_url: {base_url}\n"
        "    model: tiny\n"
        "    api_key_env: CANARY_KEY\n"
        f"    headers: {{x-tenant: '{HEADER}'}}\n"
        "benchmark:\n"
        "  cases: [web_search_two_answers]\n"
        f"{telemetry}",
        encoding="utf-8",
    )
    return file


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """All that left of the runs, by the way it took."""

    results: Sequence[RunResult]
    texts: dict[str, str]


@pytest.fixture
def collector_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={COLLECTOR_TOKEN}")


def run_against(answer: bytes, directory: Path) -> Left:
    kept, reader = Keep(), PrometheusReader()
    with RawServer(answer) as server, http_receiver() as received, run_metrics(reader) as metrics:
        file = write_config(directory, server.base_url, collector=received.url)
        config, endpoints = app.load_live_config(file, {"CANARY_KEY": KEY})
        plans = plan_runs(config.targets, config.benchmark)
        push = app.make_push(config, plans, os.environ, is_mock=False)
        assert push is not None
        metrics.plan(
            PlannedSeries(target=target, benchmark=config.benchmark, interval_s=None, is_mock=True)
            for target in config.targets
        )
        runner = Runner(
            config,
            client_factory=endpoints.make_client,
            adaptation_count=endpoints.adaptation_count,
            secrets_of=endpoints.secrets_of,
            is_mock=False,
            sinks=[kept, push, metrics],
        )

        async def all_runs() -> None:
            for plan in plans:
                await runner.run(plan)

        asyncio.run(all_runs())
        push.hand_over()
        page = MetricsPage(reader, [])
        sent = b"".join(server.requests)
    assert KEY.encode() in sent  # else nothing is proved
    assert HEADER.encode() in sent
    assert received.headers["authorization"] == COLLECTOR_TOKEN
    assert received.spans
    assert received.metrics
    results = [run.result for run in kept.runs]
    return Left(
        results=results,
        texts={
            "results": "\n".join(result.model_dump_json() for result in results),
            "spans": repr([run.spans for run in kept.runs]),
            "pushed spans": "".join(map(str, received.requests)),
            "pushed metrics": "".join(map(str, received.metric_requests)),
            "page": page.render("")[0].decode() + page.render("application/openmetrics-text")[0].decode(),
            "words": push.words() + repr(config) + repr(push),
        },
    )


def told(left: Left, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Which canary got out, and how."""
    log = "\n".join([*(record.getMessage() for record in caplog.records), caplog.text])
    texts = {**left.texts, "log": log}
    return [(way, canary) for way, text in texts.items() for canary in CANARIES if canary in text]


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.usefixtures("collector_token")
def test_no_way_out_tells_what_a_server_sends_back(
    echo: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), caplog.at_level(logging.DEBUG, "agentbench_otel"):
        left = run_against(ECHOES[echo], tmp_path)
    assert len(left.results) == 2
    assert all(result.status == "failed" for result in left.results)
    assert told(left, caplog) == []


@pytest.mark.usefixtures("collector_token")
def test_what_is_redacted_says_so(tmp_path: Path) -> None:
    left = run_against(ECHOES["a JSON error"], tmp_path)
    for way in ("results", "spans", "pushed spans"):
        assert "[redacted]" in left.texts[way]


@pytest.mark.usefixtures("collector_token")
def test_no_content_is_on_a_span_a_metric_or_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    call = {
        "index": 0,
        "id": "c1",
        "function": {"name": "knowledge_web_search", "arguments": json.dumps({"query": CONTENT})},
    }
    answer = stream(
        {"choices": [{"index": 0, "delta": {"content": f"I know {CONTENT}."}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]},
    )
    with caplog.at_level(logging.WARNING), caplog.at_level(logging.DEBUG, "agentbench_otel"):
        left = run_against(answer, tmp_path)
    assert any(result.model_calls[0].error is None for result in left.results)
    for way in ("spans", "pushed spans", "pushed metrics", "page", "words"):
        assert CONTENT not in left.texts[way], way
    assert CONTENT not in caplog.text


@pytest.mark.parametrize("echo", ["a JSON error", "ids and names"])
@pytest.mark.parametrize("format_name", ["table", "json", "markdown"])
def test_the_command_line_tells_none_of_it(tmp_path: Path, echo: str, format_name: str) -> None:
    spans_file = tmp_path / "spans.jsonl"
    with RawServer(ECHOES[echo]) as server, http_receiver(status=400) as received:
        file = write_config(tmp_path, server.base_url, collector=received.url)
        done = run_cli(
            "once",
            "--config",
            str(file),
            "--format",
            format_name,
            "--spans",
            str(spans_file),
            variables={"CANARY_KEY": KEY, "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={COLLECTOR_TOKEN}"},
            cwd=tmp_path,
        )
    assert done.exit_code == 3
    assert "HTTP 400" in done.stderr
    everything = done.stdout + done.stderr + spans_file.read_text(encoding="utf-8")
    assert [canary for canary in CANARIES if canary in everything] == []


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_what_a_collector_sends_back_of_its_headers_is_not_told(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{COLLECTOR_TOKEN},x-a=1")
    echo = f"token {COLLECTOR_TOKEN}\n\x1b[31mis over its quota" + "!" * 10_000
    receiver = http_receiver if protocol == "http/protobuf" else grpc_receiver
    with receiver(rejected=1, words=echo) as received:
        config = app.mock_config().model_copy(
            update={
                "telemetry": Telemetry(otlp=Otlp.model_validate({"endpoint": received.url, "protocol": protocol}))
            }
        )
        plans = plan_runs(config.targets, config.benchmark)[:1]
        push = app.make_push(config, plans, os.environ, is_mock=False)
        assert push is not None
        for run in record_runs(config, plans):
            push.accept(run.result, run.spans)
        push.hand_over()
    assert received.headers["authorization"] == f"Bearer {COLLECTOR_TOKEN}"
    words = push.words()
    assert words.count("token [redacted] [31mis over its quota!!!") == 2
    assert len(words) < 1000
    assert words.isprintable()
    assert COLLECTOR_TOKEN not in words + repr(push)
