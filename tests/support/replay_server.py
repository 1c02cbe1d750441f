"""Replays recorded streams over real sockets: what a server really sent, quirks and faults included.

The cases are the files of ``tests/contract/streams``. Parser tests need no socket: `load_case` and `frame_bytes`.
"""

import base64
import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NotRequired, Self, TypedDict

STREAMS = Path(__file__).parent.parent / "contract" / "streams"

# A client that connects and says nothing must not hold a thread for ever.
REQUEST_TIMEOUT_S = 30.0


class Repeat(TypedDict):
    """A part of a frame that is too long to write out."""

    repeat: str
    times: int


class Frame(TypedDict):
    """One flushed write, in the words of the case file: exactly one of the ``raw*`` keys is there.

    ``delay_ms`` is the pause before the write.
    """

    delay_ms: float
    raw: NotRequired[str]
    raw_b64: NotRequired[str]
    raw_parts: NotRequired[list[str | Repeat]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCase:
    """One recorded answer and what a right client makes of it.

    ``close`` is ``clean`` (the body ends in order) or ``abort`` (the socket closes without the end chunk).
    """

    id: str
    title: str
    status: int
    headers: Mapping[str, str]
    frames: tuple[Frame, ...]
    close: Literal["clean", "abort"]
    expect: Mapping[str, Any]

    @property
    def has_content_length(self) -> bool:
        return any(name.lower() == "content-length" for name in self.headers)


def load_case(path: Path) -> StreamCase:
    document = json.loads(path.read_text(encoding="utf-8"))
    return StreamCase(
        id=document["id"],
        title=document["title"],
        status=document["status"],
        headers=document["headers"],
        frames=tuple(document["frames"]),
        close=document["close"],
        expect=document["expect"],
    )


def load_cases(directory: Path = STREAMS) -> list[StreamCase]:
    """All cases of a directory, in the order of their file names."""
    return [load_case(path) for path in sorted(directory.glob("*.json"))]


def frame_bytes(frame: Frame) -> bytes:
    """The body bytes of one frame, without HTTP chunk framing."""
    if "raw_b64" in frame:
        return base64.b64decode(frame["raw_b64"])
    parts = frame["raw_parts"] if "raw_parts" in frame else [frame["raw"]]
    text = "".join(part if isinstance(part, str) else part["repeat"] * part["times"] for part in parts)
    # Half of a surrogate pair is legal in a JSON file, and some servers do send it.
    return text.encode("utf-8", "surrogatepass")


class ReplayServer:
    """Serves the cases on a free port of loopback, in threads of this process, for the life of the `with`.

    One request per connection: the server says ``connection: close``, because an aborted body leaves none.
    """

    def __init__(self, cases: Iterable[StreamCase] | None = None) -> None:
        self._cases = {case.id: case for case in (load_cases() if cases is None else cases)}
        self._requests: dict[str, list[object]] = {}
        self._writes: dict[str, list[list[int]]] = {}
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        self._listener = _Listener(self)
        self._thread = threading.Thread(
            target=self._listener.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="replay-server",
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing.set()  # wakes the threads that wait for the time of their next frame
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def base_url(self, case_id: str) -> str:
        """The base URL to configure in the client: it appends ``/chat/completions``."""
        if case_id not in self._cases:
            raise KeyError(f"replay server: no case {case_id!r}")
        return f"http://127.0.0.1:{self._listener.server_address[1]}/{case_id}/v1"

    def requests(self, case_id: str) -> list[object]:
        """The JSON bodies received for a case, oldest first."""
        with self._lock:
            return list(self._requests.get(case_id, []))

    def writes(self, case_id: str) -> list[list[int]]:
        """For each request, the `time.perf_counter_ns` just before each frame was written.

        Shorter than the frames of the case while the answer is under way, or when the client left.
        """
        with self._lock:
            return [list(times_ns) for times_ns in self._writes.get(case_id, [])]

    def find(self, method: str, path: str) -> StreamCase | None:
        """The case that answers a request; None is a 404, as for any URL that the client built wrongly."""
        case_id, _, rest = path.strip("/").partition("/")
        return self._cases.get(case_id) if (method, rest) == ("POST", "v1/chat/completions") else None

    def note_request(self, case: StreamCase, body: bytes) -> int:
        """Keep a request; the answer is its number among those of the case."""
        with self._lock:
            self._requests.setdefault(case.id, []).append(json.loads(body) if body else None)
            times = self._writes.setdefault(case.id, [])
            times.append([])
            return len(times) - 1

    def note_write(self, case: StreamCase, request_number: int) -> None:
        with self._lock:
            self._writes[case.id][request_number].append(time.perf_counter_ns())

    def wait_ms(self, delay_ms: float) -> bool:
        """Wait before a frame; False when the server is closing."""
        return not self._is_closing.wait(delay_ms / 1000) if delay_ms else not self._is_closing.is_set()


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, replay: ReplayServer) -> None:
        self.replay = replay
        super().__init__(("127.0.0.1", 0), _Connection)


class _Connection(socketserver.StreamRequestHandler):
    server: _Listener
    timeout = REQUEST_TIMEOUT_S
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):  # the client left: some cases make it leave
            self._answer()

    def _answer(self) -> None:
        request_line = self.rfile.readline().decode("latin-1").split()
        if len(request_line) != 3:
            return
        length = 0
        while line := self.rfile.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = self.rfile.read(length)

        case = self.server.replay.find(request_line[0], request_line[1])
        if case is None:
            self.wfile.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            self._replay(case, self.server.replay.note_request(case, body))

    def _replay(self, case: StreamCase, request_number: int) -> None:
        replay = self.server.replay
        framing = {} if case.has_content_length else {"transfer-encoding": "chunked"}
        headers = {**case.headers, **framing, "connection": "close"}
        head = [f"HTTP/1.1 {case.status} Replayed", *(f"{name}: {value}" for name, value in headers.items())]
        self.wfile.write("\r\n".join([*head, "", ""]).encode("latin-1"))
        for frame in case.frames:
            data = frame_bytes(frame)
            if data and not case.has_content_length:  # an empty HTTP chunk would end the body
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if not replay.wait_ms(frame["delay_ms"]):
                return
            replay.note_write(case, request_number)
            self.wfile.write(data)
        if case.close == "clean" and not case.has_content_length:
            self.wfile.write(b"0\r\n\r\n")
