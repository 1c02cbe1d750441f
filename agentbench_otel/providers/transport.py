"""An httpx transport over sockets of our own that stamp each read, before anything is parsed.

Stamping after httpx has decoded the body would give the chunks of one read as many different times, each late
by the parsing of the ones before.
"""

import encodings.idna  # noqa: F401 - see `ArrivalTransport`
import ssl
from collections.abc import AsyncIterator

import anyio
import httpcore
import httpx

from agentbench_otel.ports import Clock
from agentbench_otel.providers.sockets import StampingBackend


class ArrivalTransport(httpx.AsyncBaseTransport):
    """Raises the exceptions of httpcore; the client translates them.

    httpcore (for its locks) and the resolver import modules at their first use: 20 to 30 ms that would be
    counted as the provider's in the first call. The lock below and an import above have them imported here.
    """

    def __init__(self, clock: Clock, *, tls: ssl.SSLContext | None) -> None:
        anyio.Lock()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=2,  # the second only while the first one's end is still being drained
            keepalive_expiry=4.0,  # servers close idle connections after 5 s; be the first
            http2=False,
            network_backend=StampingBackend(clock),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_ResponseStream(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _ResponseStream(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._response.aiter_stream():
            yield data

    async def aclose(self) -> None:
        await self._response.aclose()
