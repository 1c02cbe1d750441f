"""Who may ask: HTTP basic authentication against bcrypt hashes, and requests that a browser was tricked into."""

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

import bcrypt
from pydantic import SecretStr

_CACHE_SIZE = 100
_NOBODY = bcrypt.hashpw(secrets.token_bytes(16), bcrypt.gensalt(rounds=10))
"""Checked for users that do not exist, so that they take as long as those that do."""


class PasswordCheck:
    """Checks credentials. Those that were right are remembered by a keyed hash: bcrypt takes 0.1 s of CPU, and a
    Prometheus asks every few seconds."""

    def __init__(self, hashes: Mapping[str, SecretStr]) -> None:
        self._hashes = {user: secret.get_secret_value().encode() for user, secret in hashes.items()}
        self._key = secrets.token_bytes(32)
        self._right: set[bytes] = set()
        self._lock = threading.Lock()

    @property
    def is_needed(self) -> bool:
        return bool(self._hashes)

    def knows(self, authorization: str) -> bool:
        """Whether this Authorization header was right before; answers at once."""
        return self._tag(authorization) in self._right

    def is_right(self, authorization: str) -> bool:
        """Takes the time of one bcrypt check, right or wrong."""
        user, password = _credentials(authorization)
        expected = self._hashes.get(user)
        is_right = (
            bcrypt.checkpw(password[:72], _NOBODY if expected is None else expected) and expected is not None
        )
        if is_right:
            with self._lock:
                if len(self._right) >= _CACHE_SIZE:
                    self._right.clear()
                self._right.add(self._tag(authorization))
        return is_right

    def _tag(self, authorization: str) -> bytes:
        return hmac.digest(self._key, authorization.encode(), hashlib.sha256)


def _credentials(authorization: str) -> tuple[str, bytes]:
    """User and password; both empty for what is no basic authentication."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", b""
    try:
        user, _, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return user.decode(), password
    except (binascii.Error, UnicodeDecodeError):
        return "", b""


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that another site made it send this request."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


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
