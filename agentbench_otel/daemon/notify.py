"""Telling systemd how we are: the notification protocol, which takes no library.

Source: sd_notify(3). Without ``NOTIFY_SOCKET`` in the environment nothing is told.
"""

import socket
import time
from collections.abc import Mapping


class Supervisor:
    """The service manager that started us, if it wants to know."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def ready(self, status: str) -> None:
        self._tell(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """systemd refuses a reload that does not say when it began on the monotonic clock."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """Sent from the event loop: a loop that hangs is restarted by the watchdog."""
        self._tell("WATCHDOG=1")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto(state.encode(), self._address)
        except OSError:
            pass  # a manager that does not listen is no reason to fail
