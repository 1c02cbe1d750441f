"""Fixtures for tests marked ``stack``: servers that other people wrote, started for real.

Where they cannot be had the tests are skipped, unless AGENTBENCH_REQUIRE_STACK=1 makes that a failure.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

from tests.stack.servers import RunningServer, ServerUnavailable, StartAimock, aimock_server, llama_cpp_server


def _start(started: ExitStack, server: AbstractContextManager[RunningServer]) -> RunningServer:
    try:
        return started.enter_context(server)
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
