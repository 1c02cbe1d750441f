"""Who may ask: the right host, not another site's page in a browser, the right password."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

import bcrypt
from anyio import CapacityLimiter, to_thread
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

_CACHE_SIZE = 100
_BCRYPT_SIZE_BYTES = 72  # bcrypt never looked further; newer libraries refuse what is longer
_CHALLENGE = {"www-authenticate": 'Basic realm="agentbench-otel", charset="UTF-8"'}


class Guard:
    """ASGI middleware in front of every route."""

    def __init__(
        self, app: ASGIApp, *, basic_auth: Mapping[str, SecretStr], listen_host: str, bound_host: str
    ) -> None:
        self._app = app
        self._check = PasswordCheck(basic_auth) if basic_auth else None
        self._listen_host = listen_host.lower()
        self._is_local = is_loopback(bound_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await self._refusal(Request(scope))
        await (self._app if refusal is None else refusal)(scope, receive, send)

    async def _refusal(self, request: Request) -> Response | None:
        """None: the request is let in."""
        if self._is_local and not self._is_our_host(request.headers.get("host", "")):
            # A page of another site whose name leads here (DNS rebinding) would be the same origin.
            return PlainTextResponse("this address serves only local names and the host of web.listen\n", 421)
        if request.method not in ("GET", "HEAD") and is_cross_site(request.headers):
            return PlainTextResponse("requests from other sites are refused\n", 403)
        authorization = request.headers.get("authorization", "")
        if self._check is not None and not await self._check.is_right(authorization):
            return PlainTextResponse("user and password are needed\n", 401, headers=_CHALLENGE)
        return None

    def _is_our_host(self, host: str) -> bool:
        name = host_of(host).lower()
        return not name or name == self._listen_host or is_loopback(name)  # HTTP/1.0 may have none; browsers do


class PasswordCheck:
    """Checks basic authentication. What was right is remembered by a keyed hash: bcrypt takes up to seconds of
    CPU, and a Prometheus asks every few seconds."""

    def __init__(self, hashes: Mapping[str, SecretStr]) -> None:
        self._hashes = {user: secret.get_secret_value().encode() for user, secret in hashes.items()}
        self._slowest = max(self._hashes.values(), key=_cost)
        self._key = secrets.token_bytes(32)
        self._right: set[bytes] = set()
        self._one_at_a_time = CapacityLimiter(1)  # a flood of guesses takes one core at most, and no other thread

    async def is_right(self, authorization: str) -> bool:
        """Of an Authorization header as it came."""
        tag = hmac.digest(self._key, authorization.encode(), hashlib.sha256)
        if tag in self._right:
            return True
        credentials = _credentials(authorization)
        if credentials is None:
            return False
        is_right = await to_thread.run_sync(self._matches, *credentials, limiter=self._one_at_a_time)
        if is_right:
            if len(self._right) >= _CACHE_SIZE:
                self._right.clear()
            self._right.add(tag)
        return is_right

    def _matches(self, user: str, password: bytes) -> bool:
        """A user that does not exist takes as long as one that does."""
        is_match = bcrypt.checkpw(password[:_BCRYPT_SIZE_BYTES], self._hashes.get(user, self._slowest))
        return is_match and user in self._hashes


def _cost(bcrypt_hash: bytes) -> int:
    """``$2b$12$…`` → 12."""
    return int(bcrypt_hash.split(b"$")[2])


def _credentials(authorization: str) -> tuple[str, bytes] | None:
    """User and password; None for what is no basic authentication."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return user.decode(), password
    except ValueError:  # no base64, or no UTF-8
        return None


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that another site made it send this request."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    return origin is not None and _netloc(origin) != headers.get("host")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    name = host.strip("[]")
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """``host:port`` → ``host``, as a listen address or a Host header has it."""
    if address.startswith("["):
        return address.partition("]")[0] + "]"
    return address.partition(":")[0]
