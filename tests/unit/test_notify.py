"""What a service manager hears of us."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentbench_otel.daemon.notify import Supervisor


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(2)
        yield listener


def supervisor(manager: socket.socket) -> Supervisor:
    return Supervisor({"NOTIFY_SOCKET": manager.getsockname()})


def test_each_state_is_one_message(manager: socket.socket) -> None:
    ours = supervisor(manager)
    ours.ready("measures 2 target(s)")
    ours.alive()
    ours.stopping()
    assert [manager.recv(4096).decode() for _ in range(3)] == [
        "READY=1\nSTATUS=measures 2 target(s)",
        "WATCHDOG=1",
        "STOPPING=1",
    ]


def test_a_reload_tells_when_it_began_on_the_monotonic_clock(manager: socket.socket) -> None:
    before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    supervisor(manager).reloading()
    state, _, told = manager.recv(4096).decode().partition("\nMONOTONIC_USEC=")
    assert state == "RELOADING=1"
    assert before_us <= int(told) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_an_abstract_address_begins_with_a_zero_byte() -> None:
    name = f"agentbench-test-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(2)
        Supervisor({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert listener.recv(4096) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all"])
def test_without_a_manager_nothing_happens(address: str) -> None:
    ours = Supervisor({"NOTIFY_SOCKET": address})
    ours.ready("x")
    ours.alive()
