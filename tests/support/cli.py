"""Runs the real command line in processes of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentbench_otel

ROOT = Path(agentbench_otel.__file__).parents[1]
COMMAND = (sys.executable, "-W", "error", "-m", "agentbench_otel")
LIMIT_S = 30.0  # no process of a test may take longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A process that has ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        """The JSON report on stdout."""
        document: dict[str, Any] = json.loads(self.stdout)
        return document

    @property
    def runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.report["runs"]
        return runs


def environment(**variables: str) -> dict[str, str]:
    """Only what a process needs: nothing of the caller's environment may change a result."""
    search_path = os.pathsep.join(filter(None, (variables.pop("PYTHONPATH", ""), str(ROOT))))
    return {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": search_path, "LANG": "C.UTF-8", **variables}


def run_cli(*arguments: str, cwd: Path, variables: Mapping[str, str] | None = None) -> Finished:
    """Run one command to its end, with stdin closed."""
    process = subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**(variables or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT_S,
        check=False,
    )
    return Finished(exit_code=process.returncode, stdout=process.stdout, stderr=process.stderr)


class RunningCli:
    """A command that is under way."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def send(self, signal_number: int) -> None:
        self._process.send_signal(signal_number)

    def wait(self) -> Finished:
        stdout, stderr = self._process.communicate(timeout=LIMIT_S)
        return Finished(exit_code=self._process.returncode, stdout=stdout, stderr=stderr)


@contextmanager
def running_cli(*arguments: str, cwd: Path, variables: Mapping[str, str] | None = None) -> Iterator[RunningCli]:
    """Start a command; it does not outlive the block."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**(variables or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            yield RunningCli(process)
        finally:
            process.kill()
