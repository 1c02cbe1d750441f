"""A server that says exactly the bytes it is given, or nothing at all, to every connection."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self


class RawServer:
    """Reads each request up to its blank line, sends ``answer`` and, unless ``stays_silent``, closes.

    ``then`` is sent ``after_s`` later.
    """

    def __init__(
        self, answer: bytes = b"", *, stays_silent: bool = False, then: bytes = b"", after_s: float = 0.0
    ) -> None:
        self._answer = answer
        self._stays_silent = stays_silent
        self._then = then
        self._after_s = after_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.requests: list[bytes] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _answer_to(self, connection: socket.socket) -> None:
        connection.sendall(self._answer)
        if self._then:
            time.sleep(self._after_s)
            connection.sendall(self._then)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request and (data := connection.recv(65536)):
                request += data
            self.requests.append(request)
            self._answer_to(connection)
            if not self._stays_silent:
                connection.shutdown(socket.SHUT_WR)


class DripServer(RawServer):
    """Sends its answer byte by byte."""

    def __init__(self, answer: bytes, *, interval_s: float) -> None:
        super().__init__(answer)
        self._interval_s = interval_s

    def _answer_to(self, connection: socket.socket) -> None:
        for position in range(len(self._answer)):
            connection.sendall(self._answer[position : position + 1])
            time.sleep(self._interval_s)


def http_answer(body: str | bytes, *, status: str = "200 OK", headers: str = "") -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(raw)}\r\n{headers}\r\n".encode() + raw
