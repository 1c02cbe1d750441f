"""The real daemon, from its start to its end."""

import signal
import socket
import time
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import run_cli
from tests.support.daemon import QUICK, a_target, config_of, running_daemon
from tests.support.otlp_receiver import http_receiver
from tests.support.raw_server import RawServer

MOCK_RUNS = 2  # of one cycle of a quick config


def mock_config(**sections: Any) -> dict[str, Any]:
    return config_of([a_target()], **sections)


def slot_phase_s(name: str, interval_s: int) -> int:
    return int.from_bytes(sha256(name.encode()).digest(), "big") % interval_s


# --- a day in its life -----------------------------------------------------------------------------------------


def test_it_measures_at_once_when_nothing_is_known_and_tells_everywhere(tmp_path: Path) -> None:
    with running_daemon(mock_config(), "--mock", cwd=tmp_path) as daemon:
        runs = daemon.until_runs(MOCK_RUNS)
        daemon.until(lambda: daemon.logged("cycle completed"))
        assert {(run["target"], run["case_id"], run["mock"]) for run in runs} == {
            ("local", "ordinary_chat", True),
            ("local", "session_terminate", True),
        }
        assert daemon.get("/-/healthy").status_code == 200
        assert daemon.get("/-/ready").status_code == 200
        run_id = runs[0]["run_id"]
        assert daemon.get(f"/api/v1/runs/{run_id}").json() == runs[0]
        assert run_id in daemon.get(f"/runs/{run_id}").text
        assert "local" in daemon.get("/").text
        daemon.until_metric("agentbench_cycles_total", 1, target="local", outcome="completed")
        daemon.until(
            lambda: (
                sum(value for (name, _), value in daemon.metrics().items() if name == "agentbench_runs_total") == 2
            )
        )
        listed = run_cli("history", "list", "--database", "history.db", "--format", "json", cwd=tmp_path)
        assert [run["run_id"] for run in listed.report["runs"]] == [run["run_id"] for run in runs]
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
    assert len(daemon.logged('msg="run ')) == MOCK_RUNS
    assert all(line.startswith("time=") for line in daemon.log)


def test_a_restart_doubles_no_slot_and_knows_the_past(tmp_path: Path) -> None:
    with running_daemon(mock_config(), "--mock", cwd=tmp_path) as daemon:
        daemon.until(lambda: daemon.logged("cycle completed"))
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
    with running_daemon(mock_config(), "--mock", cwd=tmp_path) as daemon:
        assert daemon.get("/-/ready").status_code == 200
        time.sleep(1.5)  # more than a look at the clocks: nothing may come of it
        assert len(daemon.runs()) == MOCK_RUNS
        series = {"target": "local", "case": "ordinary_chat", "mode": "dual_agent"}
        assert daemon.metric("agentbench_last_run_success", **series) is not None
        assert daemon.metric("agentbench_runs_total", status="passed", **series) == 0
        assert daemon.metric("agentbench_last_cycle_timestamp_seconds", target="local") is not None
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
    with running_daemon(mock_config(), "--mock", "--run-now", cwd=tmp_path) as daemon:
        daemon.until_runs(2 * MOCK_RUNS)


def test_a_cycle_starts_at_its_slot(tmp_path: Path) -> None:
    phase_s = slot_phase_s("local", 12)
    time.sleep(-(time.time() - phase_s) % 12)  # a first cycle late in its interval would hold the next one back
    with running_daemon(mock_config(schedule={"every": "12s"}), "--mock", cwd=tmp_path) as daemon:
        newest = daemon.until_runs(MOCK_RUNS + 1, limit_s=30)[0]  # of the second cycle; the first was due before
        lateness_s = daemon.metric("agentbench_schedule_lateness_seconds", target="local")
    started_s = datetime.fromisoformat(newest["started_at"]).timestamp()
    assert (started_s - phase_s) % 12 < 2
    assert lateness_s is not None
    assert 0 <= lateness_s < 1


# --- config ----------------------------------------------------------------------------------------------------


def test_a_reload_takes_a_good_config_and_nothing_of_a_bad_one(tmp_path: Path) -> None:
    with running_daemon(mock_config(), "--mock", cwd=tmp_path) as daemon:
        daemon.until(lambda: daemon.logged("cycle completed"))
        assert daemon.metric("agentbench_config_last_reload_successful") == 1

        daemon.write_config(config_of([a_target("other")]))
        daemon.send(signal.SIGHUP)
        daemon.until(lambda: {run["target"] for run in daemon.runs()} == {"local", "other"})
        daemon.until(lambda: daemon.metric("agentbench_cycle_interval_seconds", target="other") == 3600)
        daemon.until(lambda: not [labels for (_, labels) in daemon.metrics() if ("target", "local") in labels])

        daemon.write_config("schema_version: 1\ntargets: [{name: other, base_url: 'ftp://x', model: m}]\n")
        daemon.send(signal.SIGHUP)
        daemon.until_metric("agentbench_config_last_reload_successful", 0)
        assert "wrong scheme" in daemon.logged("the config was not taken")[0]
        assert "wrong scheme" in daemon.get("/").text
        assert daemon.metric("agentbench_cycle_interval_seconds", target="other") == 3600

        daemon.write_config(config_of([a_target("other"), a_target("third")]))
        daemon.send(signal.SIGHUP)
        daemon.until_metric("agentbench_config_last_reload_successful", 1)
        daemon.until(lambda: "third" in {run["target"] for run in daemon.runs()})
        assert len([run for run in daemon.runs() if run["target"] == "other"]) == MOCK_RUNS  # it kept its state


def test_the_lifecycle_interface_is_closed_unless_it_is_enabled(tmp_path: Path) -> None:
    with running_daemon(mock_config(), "--mock", cwd=tmp_path) as daemon:
        assert daemon.post("/-/reload").status_code == 403
        assert daemon.post("/api/v1/cycles", json={"target": "local"}).status_code == 403


def test_with_it_a_cycle_can_be_asked_for_and_the_config_read_anew(tmp_path: Path) -> None:
    config = mock_config(web={"listen": "127.0.0.1:0", "enable_lifecycle": True})
    with running_daemon(config, "--mock", cwd=tmp_path) as daemon:
        daemon.until(lambda: daemon.logged("cycle completed"))
        assert daemon.post("/api/v1/cycles", json={"target": "local"}).status_code == 202
        daemon.until_runs(2 * MOCK_RUNS)
        assert daemon.post("/api/v1/cycles", json={"target": "nobody"}).status_code == 404
        assert daemon.post("/-/reload").status_code == 200
        daemon.write_config("schema_version: 2")
        refused = daemon.post("/-/reload")
        assert refused.status_code == 400
        assert "must be the integer 1" in refused.text


def test_what_a_reload_can_t_change_is_told(tmp_path: Path) -> None:
    with running_daemon(mock_config(), "--mock", cwd=tmp_path) as daemon:
        assert daemon.get("/-/ready").status_code == 200
        daemon.write_config(mock_config(history={"path": "other.db"}))
        daemon.send(signal.SIGHUP)
        daemon.until(lambda: daemon.logged("changes of these need a restart: history"))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (mock_config(schedule={"every": "10s"}), "one run may take 11 s"),
        (mock_config(history={"path": "nowhere/history.db"}), "nowhere"),
        (config_of([a_target(api_key_env="NO_SUCH_KEY")]), "unset"),
    ],
)
def test_what_can_t_work_is_refused_at_the_start(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    with running_daemon(config, cwd=tmp_path) as daemon:
        assert daemon.wait() == 2
    assert words in "\n".join(daemon.log)
    assert "Traceback" not in "\n".join(daemon.log)


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with running_daemon(mock_config(web={"listen": listen}), "--mock", cwd=tmp_path) as daemon:
            assert daemon.wait() == 2
    assert listen in daemon.log[-1]


def test_a_second_daemon_on_the_same_history_is_refused(tmp_path: Path) -> None:
    with running_daemon(mock_config(), "--mock", cwd=tmp_path) as first:
        assert first.get("/-/ready").status_code == 200
        with running_daemon(mock_config(), "--mock", cwd=tmp_path) as second:
            assert second.wait() == 2
    assert "history.db" in second.log[-1]


def test_a_daemon_needs_a_config_or_the_mock(tmp_path: Path) -> None:
    done = run_cli("daemon", cwd=tmp_path)
    assert done.exit_code == 2
    assert "--mock" in done.stderr


# --- targets in trouble ----------------------------------------------------------------------------------------

ANSWERING = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
FIRST_WORD = ANSWERING + b'data: {"choices":[{"delta":{"content":"Hello"}}]}\n\n'
SHORT = {"connect_s": 0.3, "first_byte_s": 0.3, "idle_s": 0.3}


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose queue of connections is full: connecting to it hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        yield int(listener.getsockname()[1])
        for filler in fillers:
            filler.close()


def test_targets_that_hang_fail_with_their_reason_and_the_others_are_measured(
    tmp_path: Path, silent_port: int
) -> None:
    with (
        RawServer(stays_silent=True) as no_head,
        RawServer(ANSWERING, stays_silent=True) as no_body,
        RawServer(FIRST_WORD, stays_silent=True) as mid_stream,
    ):
        config = config_of(
            [
                a_target("connect", f"http://127.0.0.1:{silent_port}/v1", timeouts=SHORT),
                a_target("head", no_head.base_url, timeouts=SHORT),
                a_target("body", no_body.base_url, timeouts=SHORT),
                a_target("mid-stream", mid_stream.base_url, timeouts=SHORT),
            ],
            benchmark={**QUICK, "cases": ["ordinary_chat"]},
        )
        with running_daemon(config, cwd=tmp_path) as daemon:
            kinds = {run["target"]: run["error"]["kind"] for run in daemon.until_runs(4)}
            assert daemon.get("/-/healthy").status_code == 200
    assert kinds["connect"] == "connect_timeout"
    assert kinds["head"] == "first_byte_timeout"
    assert kinds["body"] in ("first_byte_timeout", "idle_timeout")
    assert kinds["mid-stream"] in ("first_byte_timeout", "idle_timeout")


def test_a_run_that_takes_too_long_ends_at_its_deadline(tmp_path: Path) -> None:
    with RawServer(stays_silent=True) as server:
        config = config_of([a_target("slow", server.base_url)], benchmark={**QUICK, "cases": ["ordinary_chat"]})
        with running_daemon(config, cwd=tmp_path) as daemon:
            (run,) = daemon.until_runs(1)
    assert run["error"]["kind"] == "run_deadline"


def test_an_endpoint_that_asks_for_less_is_asked_less(tmp_path: Path) -> None:
    refusal = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7200\r\ncontent-length: 2\r\n\r\n{}"
    with RawServer(refusal) as server:
        config = config_of([a_target("busy", server.base_url)])
        with running_daemon(config, cwd=tmp_path) as daemon:
            daemon.until(lambda: daemon.logged("cycle completed"))
            assert daemon.metric("agentbench_cycle_stretch", target="busy") == 2
            next_s = daemon.metric("agentbench_next_cycle_timestamp_seconds", target="busy")
            assert next_s is not None
            assert next_s >= time.time() + 7100
            assert daemon.runs()[0]["model_calls"][0]["retry_after_s"] == 7200


def test_a_budget_stops_its_target_and_can_be_alerted_on(tmp_path: Path) -> None:
    config = config_of(
        [a_target(budget={"max_runs_per_day": 1})], web={"listen": "127.0.0.1:0", "enable_lifecycle": True}
    )
    with running_daemon(config, "--mock", cwd=tmp_path) as daemon:
        daemon.until(lambda: daemon.logged("cycle completed"))
        daemon.until_metric("agentbench_budget_exhausted", 1, target="local")
        assert len(daemon.runs()) == 1
        assert daemon.post("/api/v1/cycles", json={"target": "local"}).status_code == 429
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
    with running_daemon(config, "--mock", "--run-now", cwd=tmp_path) as daemon:  # a restart does not fill it again
        daemon.until_metric("agentbench_budget_exhausted", 1, target="local")
        assert len(daemon.runs()) == 1


# --- its end ---------------------------------------------------------------------------------------------------


def hanging(server: RawServer, **sections: Any) -> dict[str, Any]:
    """One run that would take 60 s."""
    benchmark = {**QUICK, "cases": ["ordinary_chat"], "run_deadline_s": 60.0}
    return config_of([a_target("slow", server.base_url)], benchmark=benchmark, **sections)


def test_a_run_that_outlasts_the_grace_is_aborted_and_kept_and_counts_in_no_rate(tmp_path: Path) -> None:
    with RawServer(FIRST_WORD, stays_silent=True) as server:
        config = hanging(server, daemon={"shutdown_grace": "1s"})
        with running_daemon(config, cwd=tmp_path) as daemon:
            daemon.until(lambda: server.requests)
            start_s = time.monotonic()
            daemon.send(signal.SIGTERM)
            daemon.until(lambda: daemon.get("/-/ready").status_code == 503, limit_s=1)
            assert daemon.wait() == 0
            assert 0.9 < time.monotonic() - start_s < 6
    (run,) = run_cli("history", "list", "--database", "history.db", "--format", "json", cwd=tmp_path).report[
        "runs"
    ]
    assert run["error"]["kind"] == "aborted"
    assert run["visible_ttft_ms"] is not None  # what was measured before is kept


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_leaves_at_once(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with RawServer(stays_silent=True) as server, running_daemon(hanging(server), cwd=tmp_path) as daemon:
        daemon.until(lambda: server.requests)
        daemon.send(number)
        daemon.until(lambda: daemon.logged("stopping"))
        start_s = time.monotonic()
        daemon.send(number)
        assert daemon.wait() == code
        assert time.monotonic() - start_s < 2


# --- telemetry -------------------------------------------------------------------------------------------------


def test_a_stop_loses_no_span_that_a_live_collector_takes(tmp_path: Path) -> None:
    with http_receiver() as received:
        config = mock_config(telemetry={"otlp": {"endpoint": received.url}})
        with running_daemon(config, "--mock", cwd=tmp_path) as daemon:
            traces = {run["trace_id"] for run in daemon.until_runs(MOCK_RUNS)}
            daemon.send(signal.SIGTERM)
            assert daemon.wait() == 0
        assert {span.trace_id.hex() for span in received.spans} == traces


def test_a_dead_collector_is_told_once_and_changes_nothing(tmp_path: Path) -> None:
    config = mock_config(telemetry={"otlp": {"endpoint": "http://127.0.0.1:9"}})
    with running_daemon(config, "--mock", cwd=tmp_path) as daemon:
        daemon.until_runs(MOCK_RUNS)
        daemon.until(lambda: (daemon.metric("agentbench_telemetry_spans_total", outcome="failed") or 0) > 0)
        assert daemon.metric("agentbench_telemetry_last_success_timestamp_seconds", signal="traces") is None
        assert len(daemon.logged("does not take spans")) == 1
        start_s = time.monotonic()
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
        assert time.monotonic() - start_s < 5


def test_a_silent_collector_holds_the_end_up_for_less_than_5_s(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = mock_config(telemetry={"otlp": {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"}})
        with running_daemon(config, "--mock", cwd=tmp_path) as daemon:
            daemon.until_runs(MOCK_RUNS)
            start_s = time.monotonic()
            daemon.send(signal.SIGTERM)
            assert daemon.wait() == 0
            assert time.monotonic() - start_s < 5


def test_the_service_manager_hears_of_every_change(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        told: list[str] = []

        def until(state: str) -> None:
            while state not in told:
                told.extend(manager.recv(4096).decode().splitlines()[:1])

        variables = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with running_daemon(mock_config(), "--mock", cwd=tmp_path, variables=variables) as daemon:
            until("READY=1")
            until("WATCHDOG=1")
            daemon.send(signal.SIGHUP)
            until("RELOADING=1")
            told.remove("READY=1")
            until("READY=1")
            daemon.send(signal.SIGTERM)
            until("STOPPING=1")
            assert daemon.wait() == 0


def test_health_asks_the_daemon(tmp_path: Path) -> None:
    with running_daemon(mock_config(), "--mock", cwd=tmp_path) as daemon:
        assert daemon.get("/-/ready").status_code == 200
        well = run_cli("health", "--url", f"{daemon.url}/-/ready", cwd=tmp_path)
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
        gone = run_cli("health", "--url", f"{daemon.url}/-/ready", cwd=tmp_path)
    assert (well.exit_code, gone.exit_code) == (0, 1)
    assert "Traceback" not in gone.stderr


def test_the_log_can_be_json(tmp_path: Path) -> None:
    with running_daemon(mock_config(), "--mock", "--log-format", "json", cwd=tmp_path) as daemon:
        daemon.until(lambda: daemon.logged('"cycle completed"'))
    assert all(line.startswith('{"time": "') for line in daemon.log)
