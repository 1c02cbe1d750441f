"""The files of ``deploy/`` in the servers that read them: rules, alerts on their way, exemplars and their traces.

How long an alert waits, and that it is silent between rare runs, is for promtool's own unit tests of the rules.
"""

import http.server
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.stack.monitoring import DEPLOY, alertmanager_folder, deployed_alertmanager, deployed_prometheus
from tests.stack.servers import RunningPrometheus
from tests.support.daemon import QUICK, a_target, config_of, running_daemon

pytestmark = pytest.mark.stack

LIMIT_S = 30.0


def ran(*command: str | Path) -> str:
    """What a command says.

    Raises:
        AssertionError: It fails.
    """
    done = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def until(look: Callable[[], Any], what: str) -> Any:
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        found = look()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what} did not come within {LIMIT_S:g} s")


# --- what the tools say of the files ---------------------------------------------------------------------------


def test_promtool_takes_the_rules_and_their_tests_pass(promtool: Path) -> None:
    rules = DEPLOY / "prometheus"
    told = ran(
        promtool, "check", "rules", "--lint-fatal", rules / "recording.rules.yml", rules / "alerts.rules.yml"
    )
    assert told.count("SUCCESS") == 2
    assert "SUCCESS" in ran(promtool, "test", "rules", rules / "tests" / "alerts_test.yml")


def test_promtool_takes_the_config_of_prometheus(promtool: Path, tmp_path: Path) -> None:
    config = tmp_path / "prometheus.yml"
    config.write_bytes((DEPLOY / "prometheus" / "prometheus.yml").read_bytes())
    (tmp_path / "rules").mkdir()
    for file in (DEPLOY / "prometheus").glob("*.rules.yml"):
        (tmp_path / "rules" / file.name).write_bytes(file.read_bytes())
    told = ran(promtool, "check", "config", config)
    assert "2 rule files found" in told


def test_amtool_takes_the_config_of_alertmanager_and_routes_by_severity() -> None:
    amtool = alertmanager_folder() / "usr/bin/amtool"
    config = DEPLOY / "alertmanager" / "alertmanager.yml"
    assert "SUCCESS" in ran(amtool, "check-config", config)
    for severity in ("page", "ticket"):
        routed = ran(amtool, "config", "routes", "test", f"--config.file={config}", f"severity={severity}")
        assert routed.splitlines()[0] == severity


# --- a failure, from the run to the receiver -------------------------------------------------------------------


@contextmanager
def webhooks() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A receiver of alerts: its host:port, and the alerts so far."""
    received: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.extend({**alert, "receiver": self.path.strip("/")} for alert in body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class named it
            """Nothing is logged."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", received
        server.shutdown()


def firing(prometheus: RunningPrometheus) -> set[tuple[str, str]]:
    """Alerts that fire: name and target."""
    alerts = prometheus.ask("alerts")["alerts"]
    return {
        (alert["labels"]["alertname"], alert["labels"].get("target", ""))
        for alert in alerts
        if alert["state"] == "firing"
    }


def test_a_target_that_fails_is_told_to_its_receiver_and_so_is_its_recovery(tmp_path: Path) -> None:
    """One target is at a port where nobody listens; the daemon is asked for its cycles, as the schedule would."""
    benchmark = {**QUICK, "cases": ["ordinary_chat"]}
    lifecycle = {"listen": "127.0.0.1:0", "enable_lifecycle": True}
    config = config_of([a_target("broken")], benchmark=benchmark, web=lifecycle)
    for name in ("prometheus", "alertmanager"):
        (tmp_path / name).mkdir()
    with (
        running_daemon(config, cwd=tmp_path) as daemon,
        webhooks() as (receiver, received),
        deployed_alertmanager(tmp_path / "alertmanager", webhooks=receiver) as manager,
        deployed_prometheus(
            tmp_path / "prometheus", scraped=urlsplit(daemon.url).netloc, alertmanager=manager
        ) as prometheus,
    ):
        daemon.until_runs(1)
        for count in (2, 3):
            assert daemon.post("/api/v1/cycles", json={"target": "broken"}).status_code == 202
            daemon.until_runs(count)
        until(lambda: ("AgentbenchFailing", "broken") in firing(prometheus), "the alert")

        def told(status: str) -> list[dict[str, Any]]:
            return [
                alert
                for alert in received
                if alert["labels"]["alertname"] == "AgentbenchFailing" and alert["status"] == status
            ]

        (first, *_) = until(lambda: told("firing"), "the message")
        assert first["receiver"] == "ticket"
        assert first["labels"]["target"] == "broken"
        assert "3 runs in a row" in first["annotations"]["description"]

        daemon.write_config(config_of([a_target("other")], benchmark=benchmark, web=lifecycle))
        assert daemon.post("/-/reload").status_code == 200
        until(lambda: told("resolved"), "the message that it is over")
        assert ("AgentbenchFailing", "broken") not in firing(prometheus)


def test_a_config_that_is_not_taken_fires_until_one_is(tmp_path: Path) -> None:
    config = config_of([a_target()], web={"listen": "127.0.0.1:0", "enable_lifecycle": True})
    (tmp_path / "prometheus").mkdir()
    with (
        running_daemon(config, "--mock", cwd=tmp_path) as daemon,
        deployed_prometheus(tmp_path / "prometheus", scraped=urlsplit(daemon.url).netloc) as prometheus,
    ):
        daemon.until_runs(1)
        daemon.write_config("schema_version: 2")
        assert daemon.post("/-/reload").status_code == 400
        until(lambda: ("AgentbenchReloadFailed", "") in firing(prometheus), "the alert")
        daemon.write_config(config)
        assert daemon.post("/-/reload").status_code == 200
        until(lambda: ("AgentbenchReloadFailed", "") not in firing(prometheus), "its end")
        assert not firing(prometheus)
