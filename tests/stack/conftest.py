"""Fixtures for tests marked ``stack``: servers that other people wrote, started for real.

Where they cannot be had the tests are skipped, unless AGENTBENCH_REQUIRE_STACK=1 makes that a failure.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.stack.servers import (
    RunningLlmock,
    RunningPrometheus,
    RunningServer,
    ServerUnavailable,
    StartAimock,
    StartLlmock,
    StartPrometheus,
    aimock_server,
    llama_cpp_server,
    llmock_server,
    prometheus_server,
    promtool_path,
)

Wanted = TypeVar("Wanted")
Server = TypeVar("Server", RunningServer, RunningLlmock, RunningPrometheus)


def _start(started: ExitStack, server: AbstractContextManager[Server]) -> Server:
    return _have(lambda: started.enter_context(server))


def _have(wanted: Callable[[], Wanted]) -> Wanted:
    try:
        return wanted()
    except ServerUnavailable as unavailable:
        reason = str(unavailable)
    # Outside the handler, or pytest prints the reason twice.
    if os.environ.get("AGENTBENCH_REQUIRE_STACK") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """llama.cpp with SmolLM2, one for the whole session: its prompt cache outlives a test."""
    with ExitStack() as started:
        yield _start(started, llama_cpp_server(tmp_path_factory.mktemp("llama_cpp")))


@pytest.fixture
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartAimock]:
    """Start an aimock with the given fixtures; the end of the test stops all that it started."""
    with ExitStack() as started:

        def start(fixtures: Sequence[Mapping[str, Any]]) -> RunningServer:
            return _start(started, aimock_server(tmp_path_factory.mktemp("aimock"), fixtures))

        yield start


@pytest.fixture(scope="module")
def llmock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartLlmock]:
    """Start an llmock with the given delays; the end of the module stops all that it started."""
    with ExitStack() as started:

        def start(*, latency_ms: int = 0, stream_chunk_delay_ms: int = 0) -> RunningLlmock:
            workdir = tmp_path_factory.mktemp("llmock")
            delays = {"latency_ms": latency_ms, "stream_chunk_delay_ms": stream_chunk_delay_ms}
            return _start(started, llmock_server(workdir, **delays))

        yield start


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartPrometheus]:
    """Start a Prometheus that scrapes the given host:port; the end of the module stops it."""
    with ExitStack() as started:

        def start(target: str) -> RunningPrometheus:
            return _start(started, prometheus_server(tmp_path_factory.mktemp("prometheus"), target))

        yield start


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The program that checks what Prometheus is given."""
    return _have(promtool_path)
