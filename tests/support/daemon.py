"""Runs the real daemon in a process of its own."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.cli import COMMAND, LIMIT_S, environment

QUICK = {"modes": ["dual_agent"], "cases": ["ordinary_chat", "session_terminate"], "run_deadline_s": 1.0}
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


def config_of(targets: Sequence[Mapping[str, Any]], **sections: Any) -> dict[str, Any]:
    """A quick config with a free port; ``sections`` replace its own."""
    return {
        "schema_version": 1,
        "targets": [{"model": "small", **target} for target in targets],
        "benchmark": QUICK,
        "schedule": {"every": "1h"},
        "history": {"path": "history.db"},
        "web": {"listen": "127.0.0.1:0"},
        **sections,
    }


def a_target(name: str = "local", base_url: str = "http://127.0.0.1:9/v1", **more: Any) -> dict[str, Any]:
    return {"name": name, "base_url": base_url, **more}


class RunningDaemon:
    """A daemon that is up. ``log``: its lines so far."""

    def __init__(self, process: "subprocess.Popen[str]", config_file: Path) -> None:
        self._process = process
        self.config_file = config_file
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line.rstrip("\n"))

    @property
    def url(self) -> str:
        def address() -> str | None:
            found = (re.search(r'msg="agentbench-otel serves" address=(\S+)', line) for line in tuple(self.log))
            return next((match[1] for match in found if match), None)

        return f"http://{self.until(address)}"

    def until(self, look: Callable[[], Any], *, limit_s: float = LIMIT_S) -> Any:
        """What ``look`` gives as soon as it gives something.

        Raises:
            AssertionError: The daemon ended, or the time was up.
        """
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            found = look()
            if found:
                return found
            assert self._process.poll() is None, self.log
            time.sleep(0.02)
        raise AssertionError(f"nothing came within {limit_s:g} s; the log: {self.log}")

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, trust_env=False, timeout=10, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, trust_env=False, timeout=20, **options)

    def runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.get("/api/v1/runs").json()["runs"]
        return runs

    def until_runs(self, count: int, *, limit_s: float = LIMIT_S) -> list[dict[str, Any]]:
        found = self.until(lambda: (runs := self.runs()) if len(self.runs()) >= count else None, limit_s=limit_s)
        assert isinstance(found, list)
        return found

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        text = self.get("/metrics", headers=OPENMETRICS).text
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float | None:
        """The one sample with at least these labels; None when there is none."""
        wanted = set(labels.items())
        found = [value for (known, own), value in self.metrics().items() if known == name and wanted <= own]
        assert len(found) <= 1, f"{name}{labels} is not one series"
        return found[0] if found else None

    def until_metric(self, name: str, value: float, **labels: str) -> None:
        self.until(lambda: self.metric(name, **labels) == value)

    def logged(self, words: str) -> list[str]:
        return [line for line in tuple(self.log) if words in line]

    def write_config(self, config: Mapping[str, Any] | str) -> None:
        text = config if isinstance(config, str) else json.dumps(config)
        self.config_file.write_text(text, encoding="utf-8")

    def send(self, signal_number: int) -> None:
        self._process.send_signal(signal_number)

    def wait(self) -> int:
        """The exit code."""
        code = self._process.wait(LIMIT_S)
        self._reader.join(5)
        return code


@contextmanager
def running_daemon(
    config: Mapping[str, Any] | None,
    *arguments: str,
    cwd: Path,
    variables: Mapping[str, str] | None = None,
) -> Iterator[RunningDaemon]:
    """Start a daemon; it does not outlive the block."""
    config_file = cwd / "agentbench.yaml"
    options = list(arguments)
    if config is not None:
        config_file.write_text(json.dumps(config), encoding="utf-8")
        options += ["--config", str(config_file)]
    with subprocess.Popen(
        [*COMMAND, "daemon", *options],
        cwd=cwd,
        env=environment(**(variables or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            yield RunningDaemon(process, config_file)
        finally:
            process.kill()
