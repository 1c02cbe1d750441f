"""Everything that can go wrong on the way to an endpoint → `ProviderError`, worded for who must fix it."""

import math
import os
import socket
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpcore
import httpx

from agentbench_otel.config import Target
from agentbench_otel.errors import ErrorKind, ProviderError, http_error_kind
from agentbench_otel.providers.error_bodies import read_error_body, short_words

_EXCEPTION_KINDS: tuple[tuple[type[Exception], ErrorKind], ...] = (
    (httpcore.ConnectTimeout, ErrorKind.CONNECT_TIMEOUT),
    (httpcore.TimeoutException, ErrorKind.FIRST_BYTE_TIMEOUT),
    (httpcore.NetworkError, ErrorKind.CONNECT_ERROR),
    (httpcore.RemoteProtocolError, ErrorKind.NOT_A_STREAM),
    (httpx.DecodingError, ErrorKind.NOT_A_STREAM),
)

TRANSPORT_ERRORS: tuple[type[Exception], ...] = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    httpx.HTTPError,
    httpx.InvalidURL,
)


def transport_failure(error: Exception, target: Target, *, has_read: bool) -> ProviderError:
    """An exception of httpcore or httpx, in words; their own texts are often empty.

    ``has_read``: whether any byte of an answer had come.
    """
    kind = next((kind for cls, kind in _EXCEPTION_KINDS if isinstance(error, cls)), ErrorKind.CONNECT_ERROR)
    causes = _causes(error)
    if kind is ErrorKind.CONNECT_ERROR and (tls := _first(causes, ssl.SSLError)):
        reason = getattr(tls, "verify_message", "") or getattr(tls, "reason", "") or "handshake failed"
        return ProviderError(ErrorKind.TLS_ERROR, f"target {target.name}: TLS: {short_words(str(reason))}")
    if isinstance(error, httpcore.RemoteProtocolError) and not has_read:
        kind = ErrorKind.EMPTY_RESPONSE
    return ProviderError(kind, f"target {target.name}: {_words(kind, error, causes, target)}")


def cut_words(error: Exception) -> str:
    """How a connection was lost in the middle of a body."""
    if isinstance(error, httpcore.RemoteProtocolError):
        return "closed in the middle of the body"
    return _system_words(_causes(error))


def _words(kind: ErrorKind, error: Exception, causes: list[BaseException], target: Target) -> str:
    limits = target.timeouts
    if kind is ErrorKind.CONNECT_TIMEOUT:
        return f"no connection within connect_s = {limits.connect_s:g}"
    if kind is ErrorKind.FIRST_BYTE_TIMEOUT:
        return f"no answer within first_byte_s = {limits.first_byte_s:g}"
    if kind is ErrorKind.EMPTY_RESPONSE:
        return "the server closed the connection without an answer"
    if kind is ErrorKind.NOT_A_STREAM:
        return f"the answer can't be read: {short_words(str(error)) or type(error).__qualname__}"
    if _first(causes, socket.gaierror):
        return "connection failed: the host of base_url has no address"
    is_connecting = isinstance(error, httpcore.ConnectError)
    return f"{'connection failed' if is_connecting else 'the connection was lost'}: {_system_words(causes)}"


def status_failure(
    response: httpx.Response, body: str, target: Target, secrets: Iterable[str] = ()
) -> ProviderError:
    """An answer with another status than 200. ``body`` may be cut."""
    error = read_error_body(body)
    status = response.status_code
    words = error.words(secrets) if body.strip() else "no body"
    hint = _hint(status, error.message, error.code, target)
    return ProviderError(
        http_error_kind(status),
        f"target {target.name}: HTTP {status}: {words}{hint}",
        http_status=status,
        code=error.code,
        param=error.param,
        retry_after_s=_retry_after_s(response.headers),
    )


def _hint(status: int, message: str, code: str | int | None, target: Target) -> str:
    if 300 <= status < 400:
        return "; redirects are not followed, because they would carry the key elsewhere: correct base_url"
    is_about_model = "model" in f"{code} {message}".lower()
    if status == 404 and not is_about_model and not target.base_url.rstrip("/").endswith("/v1"):
        return "; does base_url lack a /v1?"
    if "tool choice" in message.lower() and "enable-auto-tool-choice" in message:
        return "; the server must be started with these flags to take tools"
    return ""


def _retry_after_s(headers: httpx.Headers) -> float | None:
    """``retry-after-ms`` first, then ``retry-after`` as seconds or as an HTTP date; None when absent or junk."""
    try:
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        else:
            value = headers["retry-after"]
            is_number = value.replace(".", "", 1).isdigit()
            seconds = (
                float(value) if is_number else (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
            )
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _causes(error: BaseException) -> list[BaseException]:
    """The chain of causes and contexts, the error itself first; groups opened."""
    chain: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or one in chain:
            continue
        chain.append(one)
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
    return chain


def _first(causes: list[BaseException], cls: type[BaseException]) -> BaseException | None:
    return next((cause for cause in causes if isinstance(cause, cls)), None)


def _system_words(causes: list[BaseException]) -> str:
    """The operating system's words, as ``Connection refused``."""
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)
    return "the other side closed it"
