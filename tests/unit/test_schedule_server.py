"""The schedule server tells the truth: other tests compare the client with its times."""

import json
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.schedule_server import RequestRecord, ScheduleServer, parse_scenario

TOLERANCE_NS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a blocking socket read: the body without HTTP chunk framing, and when each read returned."""

    status: int
    body: bytes
    reads: list[tuple[int, bytes]]
    sent_ns: int

    @property
    def deltas(self) -> list[dict[str, object]]:
        events = [line[5:].strip() for line in self.body.splitlines() if line.startswith(b"data:")]
        chunks = [json.loads(event) for event in events if event != b"[DONE]"]
        return [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]

    def joined(self, field: str) -> str:
        return "".join(str(delta.get(field, "")) for delta in self.deltas)


class BlockingClient:
    """One connection, nothing but a socket."""

    def __init__(self, server: ScheduleServer) -> None:
        port = int(server.base_url.split(":")[2].partition("/")[0])
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def ask(self, model: str, **fields: object) -> Answer:
        body = json.dumps({"model": model, "stream": True, "messages": [], **fields}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n\r\n"
        sent_ns = time.perf_counter_ns()
        self._socket.sendall(head.encode() + body)
        reads: list[tuple[int, bytes]] = []
        received = b""
        while not _is_whole(received):
            data = self._socket.recv(65536)
            reads.append((time.perf_counter_ns(), data))
            assert data, "the server closed the connection without a reset"
            received += data
        answer_head, _, answer_body = received.partition(b"\r\n\r\n")
        if b"chunked" in answer_head:
            answer_body = _unchunked(answer_body)
        return Answer(status=int(answer_head.split()[1]), body=answer_body, reads=reads, sent_ns=sent_ns)


def _is_whole(received: bytes) -> bool:
    head, separator, body = received.partition(b"\r\n\r\n")
    if b"chunked" in head:
        return body.endswith(b"\r\n0\r\n\r\n")
    return bool(separator) and len(body) == int(head.rpartition(b": ")[2])


def _unchunked(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(parts)


@pytest.fixture(scope="module")
def running_server() -> Iterator[ScheduleServer]:
    with ScheduleServer() as server:
        yield server


@pytest.fixture
def server(running_server: ScheduleServer) -> ScheduleServer:
    running_server.reset()
    return running_server


@pytest.fixture
def client(server: ScheduleServer) -> Iterator[BlockingClient]:
    connected = BlockingClient(server)
    yield connected
    connected.close()


def _lateness_ns(record: RequestRecord) -> list[int]:
    return [chunk.written_ns - record.t0_ns - chunk.offset_ns for chunk in record.chunks]


def _worst_of_medians(rows: list[list[int]]) -> float:
    """For each chunk the middle one of three repeats: on two busy cores one of them may be preempted."""
    medians: list[float] = [statistics.median(column) for column in zip(*rows, strict=True)]
    return max(medians)


def test_chunks_are_written_when_they_are_due(server: ScheduleServer, client: BlockingClient) -> None:
    answers = [client.ask("truth-ttft30-itl5-n20") for _ in range(3)]
    records = server.truth()

    assert [chunk.offset_ns for chunk in records[0].chunks] == [30_000_000 + 5_000_000 * k for k in range(20)]
    lateness_ns = [_lateness_ns(record) for record in records]
    assert min(min(row) for row in lateness_ns) >= 0
    assert _worst_of_medians(lateness_ns) < TOLERANCE_NS
    pairs = list(zip(answers, records, strict=True))
    request_ns = [record.t0_ns - answer.sent_ns for answer, record in pairs]
    assert min(request_ns) > 0
    assert statistics.median(request_ns) < TOLERANCE_NS


def test_a_client_in_another_process_sees_the_write_times(server: ScheduleServer, client: BlockingClient) -> None:
    answers = [client.ask("truth-ttft20-itl5-n10") for _ in range(3)]

    transit_ns = []
    for answer, record in zip(answers, server.truth(), strict=True):
        arrivals = [at_ns for at_ns, data in answer.reads for _ in range(data.count(b'"content":"'))]
        writes = [chunk.written_ns for chunk in record.chunks]
        transit_ns.append([arrival - write for arrival, write in zip(arrivals, writes, strict=True)])
    assert min(min(row) for row in transit_ns) > 0
    assert _worst_of_medians(transit_ns) < TOLERANCE_NS


def test_a_burst_is_one_write_when_its_last_chunk_is_due(server: ScheduleServer, client: BlockingClient) -> None:
    answer = client.ask("truth-ttft10-itl5-n10-burst5")
    (record,) = server.truth()

    assert [chunk.offset_ns for chunk in record.chunks] == [30_000_000] * 5 + [55_000_000] * 5
    assert len({chunk.written_ns for chunk in record.chunks}) == 2
    assert {data.count(b'"content":"') % 5 for _, data in answer.reads} == {0}


def test_a_cut_resets_the_connection_when_its_chunk_is_due(server: ScheduleServer, client: BlockingClient) -> None:
    with pytest.raises(ConnectionResetError):
        client.ask("truth-ttft10-itl5-n10-cut3")
    (record,) = server.truth()

    assert record.outcome == "cut"
    assert len(record.chunks) == 3
    assert record.last_write_ns == record.chunks[-1].written_ns


def test_line_ends_and_spaces_are_as_asked(client: BlockingClient) -> None:
    plain = client.ask("truth-ttft1-itl1-n2").body
    odd = client.ask("truth-ttft1-itl1-n2-crlf-nospace").body

    assert plain.startswith(b'data: {"id"')
    assert plain.endswith(b"\n\ndata: [DONE]\n\n")
    assert plain.count(b"\n\n") == 4
    assert odd.startswith(b'data:{"id"')
    assert odd.endswith(b"\r\n\r\ndata:[DONE]\r\n\r\n")
    assert odd.count(b"\n") == odd.count(b"\r\n") == 8


def test_a_split_chunk_arrives_in_two_reads(server: ScheduleServer, client: BlockingClient) -> None:
    answer = client.ask("truth-ttft40-itl40-n1-split30")
    (record,) = server.truth()

    first_half = next(data for _, data in answer.reads if b'data: {"id"' in data)
    assert b'"content"' not in first_half
    assert answer.joined("content") == "alpha"
    assert record.chunks[0].offset_ns == 40_000_000


def test_what_is_not_a_chunk_is_in_the_stream_but_not_in_the_record(
    server: ScheduleServer, client: BlockingClient
) -> None:
    answer = client.ask("truth-ttft20-itl5-n2-role2-empty4-ping6-tail10", stream_options={"include_usage": True})
    (record,) = server.truth()

    assert answer.deltas[:2] == [{"role": "assistant", "content": ""}, {"content": ""}]
    assert answer.body.count(b": ping\n\n") == 3
    assert b'"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}' in answer.body
    assert [chunk.kind for chunk in record.chunks] == ["text", "text"]
    assert record.last_write_ns is not None
    assert record.last_write_ns - record.t0_ns >= 35_000_000


def test_reasoning_takes_the_first_chunks_in_the_form_asked_for(
    server: ScheduleServer, client: BlockingClient
) -> None:
    field = client.ask("truth-ttft1-itl1-n4-reason2")
    other_field = client.ask("truth-ttft1-itl1-n4-reasonalt2")
    tags = client.ask("truth-ttft1-itl1-n4-think2")

    assert (field.joined("reasoning_content"), field.joined("content")) == ("alpha bravo", "alpha bravo")
    assert (other_field.joined("reasoning"), other_field.joined("content")) == ("alpha bravo", "alpha bravo")
    assert tags.joined("content") == "<think>alpha bravo</think>alpha bravo"
    for record in server.truth():
        assert [chunk.kind for chunk in record.chunks] == ["reasoning", "reasoning", "text", "text"]


@pytest.mark.parametrize("pieces", [1, 12, 120])
def test_a_text_event_follows_the_visible_chunks(
    server: ScheduleServer, client: BlockingClient, pieces: int
) -> None:
    answer = client.ask(f"truth-ttft1-itl0.1-n{pieces + 2}-event2")
    (record,) = server.truth()

    text, _, markup = answer.joined("content").partition("<event ")
    name, _, arguments = markup.removesuffix("</event>").partition(">")
    assert text == "alpha bravo"
    assert name == 'name="device.volume.adjust"'
    assert json.loads(arguments) == {"mode": "absolute", "value": 30}
    assert [chunk.kind for chunk in record.chunks] == ["text"] * 2 + ["event"] * pieces
    assert all(chunk.text for chunk in record.chunks)


@pytest.mark.parametrize("chunk_count", [2, 3, 4, 51, 300])
def test_tool_calls_are_whole_however_many_chunks_carry_them(
    server: ScheduleServer, client: BlockingClient, chunk_count: int
) -> None:
    answer = client.ask(f"truth-ttft1-itl0.1-n{chunk_count}-tool2")
    (record,) = server.truth()

    names, arguments = ["", ""], ["", ""]
    for delta in answer.deltas[:-1]:
        (call,) = json.loads(json.dumps(delta["tool_calls"]))
        names[call["index"]] += call["function"].get("name", "")
        arguments[call["index"]] += call["function"]["arguments"]
    assert names == ["device_volume_adjust", "calendar_schedule_create"]
    assert json.loads(arguments[0]) == {"mode": "absolute", "value": 30}
    assert json.loads(arguments[1])["title"] == "Design review"
    assert b'"finish_reason":"tool_calls"' in answer.body
    assert [chunk.kind for chunk in record.chunks] == ["tool_call"] * chunk_count


def test_a_stall_moves_its_chunk_and_all_later_ones() -> None:
    scenario = parse_scenario("truth-ttft10-itl5-n4-stall100at2")

    assert [scenario.due_ns(k) // 1_000_000 for k in range(4)] == [10, 15, 120, 125]


def test_errors_are_answered_and_recorded(server: ScheduleServer, client: BlockingClient) -> None:
    asked_for = client.ask("truth-err429")
    mistyped = client.ask("truth-tfft200")

    assert asked_for.status == 429
    assert mistyped.status == 400
    assert b"no option 'tfft200'" in mistyped.body
    assert [record.outcome for record in server.truth()] == ["refused", "refused"]


def test_a_reused_connection_is_known(server: ScheduleServer, client: BlockingClient) -> None:
    for _ in range(2):
        client.ask("truth-ttft1-itl1-n1-eofnodone", temperature=0)
    first, second = server.truth()

    assert (first.connection_requests, second.connection_requests) == (1, 2)
    assert first.accepted_ns == second.accepted_ns
    assert first.body == second.body
    assert first.body["temperature"] == 0
    assert first.outcome == "complete"


def test_the_process_ends_with_the_context() -> None:
    with ScheduleServer("truth-ttft1-itl1-n1-conn30") as server:
        client = BlockingClient(server)
        client.ask("any model")
        client.close()
        (record,) = server.truth()
        process = server._process

    assert record.t0_ns - record.accepted_ns >= 30_000_000
    assert process.poll() is not None
