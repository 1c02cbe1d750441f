"""A chat-completions server whose timing is known: every write stands on an absolute schedule.

The schedule starts at t0, when the last byte of the request was read: chunk i is written at
``t0 + ttft + i * itl``, so errors do not add up. The server keeps what it planned and what it did.
It runs in a process of its own (`ScheduleServer` starts one): a busy client must not delay the server.

The model name chooses the scenario: options after the word ``truth``, joined by ``-``, times in ms,
chunks numbered from 0. A name without that word gets the default scenario; an option that is unknown
or impossible gets a 400.

    truth-ttft200-itl20-n51   51 chunks: the first after 200 ms, then one every 20 ms (the default)
    role5      a role-only chunk 5 ms after t0        empty50    a chunk with content "" at 50 ms
    reason10   the first 10 chunks are reasoning_content          reasonalt10  ... named reasoning
    think10    the first 10 chunks are content inside <think>..</think>
    tool2      all other chunks are the deltas of 2 native tool calls
    texttool   all other chunks are pieces of one text event       event3  3 visible chunks go first
    mt4        4 words a chunk, 4 tokens in usage     burst5     5 chunks a write, when the last is due
    split8     each chunk in two writes, the first 8 ms early      ping30  a comment every 30 ms until ttft
    crlf       CRLF line ends                         nospace    "data:{" for "data: {"
    hdr100     response headers at 100 ms             tail30     finish, usage, [DONE] 30 ms after the last
    usage      usage always (else as include_usage)   nousage    usage never
    stall300at20  300 ms more before chunk 20         err429     HTTP 429 at once
    cut20      reset when chunk 20 is due             eofnodone  no [DONE]
    conn50     in --default only: 50 ms from accept to the first read, like a slow TLS handshake
"""

import argparse
import contextlib
import dataclasses
import http.client
import itertools
import json
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

DEFAULT_MODEL = "truth-ttft200-itl20-n51"
PROMPT_TOKENS = 7
SPIN_NS = 150_000  # a sleep ends up to 0.1 ms late; the rest of the way is spun
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel")
TOOLS = (
    ("device_volume_adjust", '{"mode":"absolute","value":30}'),
    (
        "calendar_schedule_create",
        '{"title":"Design review","start_at":"2026-07-14T09:30:00+08:00","timezone":"Asia/Shanghai"}',
    ),
)

ChunkKind = Literal["reasoning", "text", "event", "tool_call"]
Outcome = Literal["open", "complete", "cut", "refused", "client_left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The options of a model name. A field ``x_ns`` is the option ``x``, which is given in ms."""

    ttft_ns: int = 200_000_000
    itl_ns: int = 20_000_000
    n: int = 51
    role_ns: int | None = None
    empty_ns: int | None = None
    reason: int = 0
    reasonalt: int = 0
    think: int = 0
    tool: int = 0
    texttool: bool = False
    event: int | None = None
    mt: int = 1
    burst: int = 1
    split_ns: int = 0
    ping_ns: int = 0
    crlf: bool = False
    nospace: bool = False
    hdr_ns: int = 0
    conn_ns: int = 0
    tail_ns: int = 0
    usage: bool = False
    nousage: bool = False
    stall_ns: int = 0
    stall_at: int = 0
    err: int | None = None
    cut: int | None = None
    eofnodone: bool = False

    def __post_init__(self) -> None:
        least = self.reasoning_count + (self.event or 0) + max(self.tool, int(self.has_text_event))
        if self.n < max(1, least):
            raise ValueError(f"n{self.n} is too few chunks for the other options")
        if self.burst < 1 or self.mt < 1 or (self.burst > 1 and self.split_ns):
            raise ValueError("burst and mt are 1 or more, and burst does not go with split")
        if self.tool and self.has_text_event:
            raise ValueError("tool does not go with texttool or event")
        first_byte_ns = self.ttft_ns - self.split_ns
        if (self.n > 1 and self.split_ns > self.itl_ns) or first_byte_ns < max(
            self.role_ns or 0, self.empty_ns or 0, self.hdr_ns
        ):
            raise ValueError("a split chunk begins after the one before, the first after role, empty and hdr")

    @property
    def reasoning_count(self) -> int:
        return self.reason + self.reasonalt + self.think

    @property
    def has_text_event(self) -> bool:
        return self.texttool or self.event is not None

    def due_ns(self, index: int) -> int:
        """When a chunk is due, from t0."""
        return self.ttft_ns + index * self.itl_ns + (self.stall_ns if index >= self.stall_at else 0)


def parse_scenario(*model_names: str) -> Scenario:
    """Read the options of model names; a later name overrides an earlier one.

    Raises:
        ValueError: An option that does not exist, or options that do not go together.
    """
    types = {item.name: item.type for item in dataclasses.fields(Scenario)}
    values: dict[str, Any] = {}
    for name in model_names:
        for option in filter(None, name.partition("truth")[2].split("-")):
            if stall := re.fullmatch(r"stall([\d.]+)at(\d+)", option):
                values |= {"stall_ns": round(float(stall[1]) * 1e6), "stall_at": int(stall[2])}
                continue
            match = re.fullmatch(r"([a-z]+)([\d.]*)", option)
            word, number = match.groups() if match else ("", "")
            if number and f"{word}_ns" in types:
                values[f"{word}_ns"] = round(float(number) * 1e6)
            elif word in types and bool(number) != (types[word] is bool):
                values[word] = int(number) if number else True
            else:
                raise ValueError(f"model {name!r}: no option {option!r}")
    return Scenario(**values)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One generated delta; ``text`` is what it says, without the think tags."""

    kind: ChunkKind
    text: str
    delta: dict[str, object]


def generate(scenario: Scenario) -> Iterator[Chunk]:
    """The chunks of an answer: reasoning first, then text, then a text event or tool calls."""
    for index in range(scenario.reasoning_count):
        text = _words(index, scenario.mt)
        think_index = index - scenario.reason - scenario.reasonalt
        if index < scenario.reason:
            yield Chunk("reasoning", text, {"reasoning_content": text})
        elif think_index < 0:
            yield Chunk("reasoning", text, {"reasoning": text})
        else:
            opening = "<think>" if think_index == 0 else ""
            closing = "</think>" if think_index == scenario.think - 1 else ""
            yield Chunk("reasoning", text, {"content": opening + text + closing})
    count = scenario.n - scenario.reasoning_count
    if scenario.tool:
        for call in range(scenario.tool):
            yield from _tool_call(call, count * (call + 1) // scenario.tool - count * call // scenario.tool)
        return
    visible_count = (scenario.event or 0) if scenario.has_text_event else count
    for index in range(visible_count):
        text = _words(index, scenario.mt)
        yield Chunk("text", text, {"content": text})
    for piece in _text_event(count - visible_count):
        yield Chunk("event", piece, {"content": piece})


def _words(index: int, count: int) -> str:
    text = " ".join(WORDS[(index * count + k) % len(WORDS)] for k in range(count))
    return f" {text}" if index else text


def _tool_call(call: int, count: int) -> Iterator[Chunk]:
    """A call in ``count`` deltas: id and name, then the arguments; all at once when there is but one."""
    name, arguments = TOOLS[call % len(TOOLS)]
    fragments = _pieces(arguments, count) if count == 1 else ["", *_pieces(arguments, count - 1)]
    for index, fragment in enumerate(fragments):
        delta: dict[str, object] = {"index": call, "function": {"arguments": fragment}}
        if index == 0:
            function = {"name": name, "arguments": fragment}
            delta = {"index": call, "id": f"call_{call}", "type": "function", "function": function}
        yield Chunk("tool_call", fragment, {"tool_calls": [delta]})


def _text_event(count: int) -> list[str]:
    return _pieces('<event name="device.volume.adjust">{"mode":"absolute","value":30}</event>', count)


def _pieces(text: str, count: int) -> list[str]:
    """Cut text into ``count`` pieces, none empty: spaces inside the JSON object make a short text longer."""
    head, brace, tail = text.rpartition("}")
    text = head + " " * (count - len(text)) + brace + tail
    return [text[len(text) * k // count : len(text) * (k + 1) // count] for k in range(count)]


@dataclass(frozen=True, slots=True)
class Write:
    """One send: ``chunks`` are those that it completes."""

    due_ns: int
    payload: bytes
    chunks: tuple[Chunk, ...] = ()


class Wire:
    """How events look in this scenario."""

    def __init__(self, scenario: Scenario, model: str, *, has_usage: bool) -> None:
        self.event_end = "\r\n\r\n" if scenario.crlf else "\n\n"
        self.has_usage = has_usage
        self._field = "data:" if scenario.nospace else "data: "
        self._envelope = {
            "id": "chatcmpl-truth",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
        }

    def event(self, value: object) -> bytes:
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        return f"{self._field}{text}{self.event_end}".encode()

    def chunk(self, delta: dict[str, object], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        no_usage_yet = {"usage": None} if self.has_usage else {}
        return self.event({**self._envelope, "choices": [choice], **no_usage_yet})

    def usage(self, scenario: Scenario) -> bytes:
        completion_tokens = scenario.n * scenario.mt
        usage: dict[str, object] = {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": completion_tokens,
            "total_tokens": PROMPT_TOKENS + completion_tokens,
        }
        if scenario.reasoning_count:
            reasoning_tokens = scenario.reasoning_count * scenario.mt
            usage["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
        return self.event({**self._envelope, "choices": [], "usage": usage})


def plan(scenario: Scenario, model: str, *, wants_usage: bool) -> list[Write]:
    """Every write of a response body, in order; the last one ends the stream."""
    wire = Wire(scenario, model, has_usage=(wants_usage or scenario.usage) and not scenario.nousage)
    writes = [*_preamble(scenario, wire), *_content(scenario, wire)]
    writes.sort(key=lambda write: write.due_ns)  # stable: a half stays before its other half
    tail = wire.chunk({}, "tool_calls" if scenario.tool else "stop")
    if wire.has_usage:
        tail += wire.usage(scenario)
    if not scenario.eofnodone:
        tail += wire.event("[DONE]")
    return [*writes, Write(scenario.due_ns(scenario.n - 1) + scenario.tail_ns, tail)]


def _preamble(scenario: Scenario, wire: Wire) -> Iterator[Write]:
    if scenario.role_ns is not None:
        yield Write(scenario.role_ns, wire.chunk({"role": "assistant", "content": ""}))
    if scenario.empty_ns is not None:
        yield Write(scenario.empty_ns, wire.chunk({"content": ""}))
    if scenario.ping_ns:
        for due_ns in range(scenario.ping_ns, scenario.due_ns(0) - scenario.split_ns, scenario.ping_ns):
            yield Write(due_ns, f": ping{wire.event_end}".encode())


def _content(scenario: Scenario, wire: Wire) -> Iterator[Write]:
    chunks = tuple(generate(scenario))
    for start in range(0, len(chunks), scenario.burst):
        group = chunks[start : start + scenario.burst]
        due_ns = scenario.due_ns(start + len(group) - 1)
        payload = b"".join(wire.chunk(chunk.delta) for chunk in group)
        half = len(payload) // 2 if scenario.split_ns else 0
        if half:
            yield Write(due_ns - scenario.split_ns, payload[:half])
        yield Write(due_ns, payload[half:], group)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkWrite:
    """A chunk that was written: due at ``t0_ns + offset_ns``, sent at ``written_ns`` (before the call)."""

    kind: ChunkKind
    text: str
    offset_ns: int
    written_ns: int


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """What the server did for one request; absolute times are `time.perf_counter_ns` of this machine."""

    body: Any
    headers: dict[str, str]
    accepted_ns: int
    connection_requests: int  # 1 on a new connection, more on a reused one
    t0_ns: int
    head_written_ns: int | None = None
    chunks: list[ChunkWrite] = field(default_factory=list)
    last_write_ns: int | None = None
    outcome: Outcome = "open"


class Service:
    """The server side: accepts, answers, and keeps a record of each request."""

    def __init__(self, default_model: str) -> None:
        self._default_model = default_model
        self._records: list[RequestRecord] = []
        self._lock = threading.Lock()

    def serve(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            accepted_ns = time.perf_counter_ns()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._converse, args=(connection, accepted_ns), daemon=True).start()

    def _converse(self, connection: socket.socket, accepted_ns: int) -> None:
        with contextlib.suppress(ConnectionError), connection, connection.makefile("rb") as reader:
            _wait_until(accepted_ns + parse_scenario(self._default_model).conn_ns)
            for number in itertools.count(1):
                request_line = reader.readline().split()
                if len(request_line) != 3:
                    return
                headers = {}
                while line := reader.readline().strip():
                    name, _, value = line.decode("latin-1").partition(":")
                    headers[name.lower()] = value.strip()
                text = reader.read(int(headers.get("content-length", "0")))
                record = RequestRecord(
                    body=None,
                    headers=headers,
                    accepted_ns=accepted_ns,
                    connection_requests=number,
                    t0_ns=time.perf_counter_ns(),
                )
                method, path = request_line[0].decode(), request_line[1].decode()
                if (method, path) == ("POST", "/v1/chat/completions"):
                    self._chat(connection, record, text)
                elif path == "/truth":
                    _reply(connection, 200, self._truth(method))
                else:
                    _reply(connection, 404, {"error": {"message": f"no {method} {path}"}})
                if record.outcome in ("cut", "client_left") or headers.get("connection") == "close":
                    return

    def _truth(self, method: str) -> list[dict[str, Any]]:
        with self._lock:
            if method == "DELETE":
                self._records.clear()
            return [dataclasses.asdict(record) for record in self._records]

    def _chat(self, connection: socket.socket, record: RequestRecord, text: bytes) -> None:
        with self._lock:
            self._records.append(record)
        try:
            record.body = json.loads(text)
            model = str(record.body["model"])
            scenario = parse_scenario(self._default_model, model)
            if not record.body.get("stream"):
                raise ValueError("this server only streams")
        except (ValueError, KeyError, TypeError) as error:
            record.outcome = "refused"
            return _reply(connection, 400, {"error": {"message": str(error), "type": "bad_scenario"}})
        if scenario.err:
            record.outcome = "refused"
            message = f"the scenario asks for {scenario.err}"
            return _reply(connection, scenario.err, {"error": {"message": message, "code": scenario.err}})
        wants_usage = bool((record.body.get("stream_options") or {}).get("include_usage"))
        writes = plan(scenario, model, wants_usage=wants_usage)
        try:
            self._stream(connection, record, scenario, writes)
        except ConnectionError:
            record.outcome = "client_left"

    def _stream(
        self, connection: socket.socket, record: RequestRecord, scenario: Scenario, writes: list[Write]
    ) -> None:
        _wait_until(record.t0_ns + scenario.hdr_ns)
        record.head_written_ns = time.perf_counter_ns()
        connection.sendall(HEAD)
        for write in writes:
            is_last = write is writes[-1]
            frame = b"%x\r\n%b\r\n%b" % (len(write.payload), write.payload, b"0\r\n\r\n" if is_last else b"")
            _wait_until(record.t0_ns + write.due_ns)
            if scenario.cut is not None and len(record.chunks) >= scenario.cut and (write.chunks or is_last):
                record.outcome = "cut"
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            # Noted before it is sent: a client that has seen a byte finds it in the truth.
            written_ns = time.perf_counter_ns()
            with self._lock:
                record.last_write_ns = written_ns
                record.outcome = "complete" if is_last else "open"
                record.chunks += [
                    ChunkWrite(kind=chunk.kind, text=chunk.text, offset_ns=write.due_ns, written_ns=written_ns)
                    for chunk in write.chunks
                ]
            connection.sendall(frame)


def _wait_until(target_ns: int) -> None:
    while (left_ns := target_ns - SPIN_NS - time.perf_counter_ns()) > 0:
        time.sleep(left_ns / 1e9)
    while time.perf_counter_ns() < target_ns:
        pass


def _reply(connection: socket.socket, status: int, value: object) -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} Truth\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)


class ScheduleServer:
    """The client side: runs the server in a process of its own for the life of the `with`."""

    def __init__(self, default_model: str = DEFAULT_MODEL) -> None:
        self._command = [sys.executable, "-I", __file__, "--until-stdin-closes", "--default", default_model]

    def __enter__(self) -> Self:
        # The pipe to its standard input closes with this process, however it ends: no server is left behind.
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        word, _, port = self._process.stdout.readline().partition(" ")
        if word != "ready":
            self.__exit__(None, None, None)
            raise RuntimeError(f"schedule server: it did not start (exit code {self._process.returncode})")
        self._port = int(port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:  # closes the pipes and waits
            self._process.terminate()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def truth(self) -> list[RequestRecord]:
        """The records of the requests since the start or the last `reset`, oldest first."""
        documents = self._ask("GET")
        return [
            RequestRecord(**{**document, "chunks": [ChunkWrite(**chunk) for chunk in document["chunks"]]})
            for document in documents
        ]

    def reset(self) -> None:
        self._ask("DELETE")

    def _ask(self, method: str) -> list[dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, "/truth")
            documents: list[dict[str, Any]] = json.load(connection.getresponse())
        return documents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--default", default=DEFAULT_MODEL, help="the scenario of a model name without options")
    parser.add_argument("--until-stdin-closes", action="store_true")
    options = parser.parse_args()
    parse_scenario(options.default)
    sys.setswitchinterval(1e-4)  # a connection that spins must not hold up the others for 5 ms
    listener = socket.create_server(("127.0.0.1", options.port), backlog=128)
    sys.stdout.write(f"ready {listener.getsockname()[1]}\n")
    sys.stdout.flush()
    service = Service(options.default)
    if options.until_stdin_closes:
        threading.Thread(target=service.serve, args=(listener,), daemon=True).start()
        sys.stdin.buffer.read()
    else:
        service.serve(listener)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
