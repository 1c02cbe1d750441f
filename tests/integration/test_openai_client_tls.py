"""TLS: its phase is measured apart, and a certificate that can't be trusted is an error of its own kind."""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests.support.chat import Streamed, openai_client, run, stream_and_close
from tests.support.raw_server import http_answer

HANDSHAKE_DELAY_S = 0.06
CHUNK = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}
ANSWER = http_answer(f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n")


def _read_request(connection: socket.socket) -> None:
    request = b""
    while b"\r\n\r\n" not in request:
        request += connection.recv(65536)
    head, _, body = request.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)


@contextmanager
def tls_server(authority: trustme.CA) -> Iterator[str]:
    """Answers one request per connection; the handshake begins 60 ms after the connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = listener.accept()
                time.sleep(HANDSHAKE_DELAY_S)  # what a client must count as TLS, not as the model
                with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
                    _read_request(connection)  # all of it: closing over unread bytes would reset the connection
                    connection.sendall(ANSWER)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def streamed_from(base_url: str) -> Streamed:
    return run(stream_and_close(openai_client(base_url)))


def test_the_handshake_is_a_phase_between_connect_and_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with tls_server(authority) as base_url:
        streamed = streamed_from(base_url)
    assert streamed.error is None
    assert streamed.text() == "Hello"
    phases = {phase.name: (phase.end_ns - phase.start_ns) / 1e6 for phase in streamed.exchange.phases}
    assert list(phases) == ["connect", "tls", "send", "first_byte"]
    assert phases["tls"] >= HANDSHAKE_DELAY_S * 1e3 * 0.9
    assert phases["connect"] < HANDSHAKE_DELAY_S * 1e3 / 2


def test_an_unknown_authority_is_a_tls_error_with_its_reason() -> None:
    with tls_server(trustme.CA()) as base_url:
        streamed = streamed_from(base_url)
    assert streamed.error is not None
    assert streamed.error.kind == "tls_error"
    assert "certificate" in str(streamed.error)


def test_a_plain_server_behind_https_is_a_tls_error() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    streamed = streamed_from(f"https://127.0.0.1:{listener.getsockname()[1]}/v1")
    listener.close()
    assert streamed.error is not None
    assert streamed.error.kind == "tls_error"
