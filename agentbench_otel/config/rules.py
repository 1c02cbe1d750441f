"""What a single value of the config may be. The errors read "what is wrong; what is allowed", and none echoes a
value that may be a secret."""

import re
import unicodedata
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import SecretStr
from pydantic_core import PydanticCustomError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
DURATION = re.compile(r"([1-9][0-9]*)(s|m|h|d|w)")
_PLAIN_HOST = re.compile(r"[A-Za-z0-9_.-]+")
_NO_URL = "is no valid URL; give a host and a port of 1 to 65535 at most"
_LONGEST_S = 520 * 604_800
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BCRYPT_HASH = re.compile(r"\$2[aby]\$(0[4-9]|1[0-9]|2[0-9]|3[01])\$[./A-Za-z0-9]{53}")
_RESERVED_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"}
)

Item = TypeVar("Item")


def _url(value: str, *, example: str, userinfo_advice: str, rest_advice: str) -> str:
    """An http or https URL. The value may hold a password or a token, so no message echoes it."""
    if not value:
        raise ValueError(f"must not be empty; give an http or https URL, for example {example}")
    if any(char.isspace() for char in value):
        raise ValueError("must not contain white space; give an http or https URL")
    if _is_invisible(value):
        raise ValueError("must not contain control or invisible characters; give an http or https URL")
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_NO_URL) from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("has the wrong scheme; allowed are http and https")
    if "@" in parts.netloc:
        raise ValueError(f"must not contain userinfo; {userinfo_advice}")
    if not host or port == 0:
        raise ValueError("must have a host and, if any, a port of 1 to 65535")
    if "?" in value:
        raise ValueError(f"must not contain a query; {rest_advice}")
    if "#" in value:
        raise ValueError(f"must not contain a fragment; {rest_advice}")
    if not _is_host(host, value):
        raise ValueError(_NO_URL)
    return value


def _is_host(host: str, url: str) -> bool:
    if _PLAIN_HOST.fullmatch(host) and not host.replace(".", "").isdigit() and "xn--" not in host:
        return True
    try:
        ip_address(host)
        return True
    except ValueError:
        if host.replace(".", "").isdigit():
            return False
    import httpx  # 0.1 s, and hardly any config needs it

    try:
        return bool(httpx.URL(url).host)
    except (httpx.InvalidURL, ValueError):
        return False


def base_url(value: str) -> str:
    return _url(
        value,
        example="http://127.0.0.1:8080/v1",
        userinfo_advice="give the key with api_key_env or api_key_file",
        rest_advice="only /chat/completions is appended to it",
    )


def collector_url(value: str) -> str:
    example = "http://127.0.0.1:4318"
    return _url(
        value,
        example=example,
        userinfo_advice="give a key with OTEL_EXPORTER_OTLP_HEADERS",
        rest_advice=f"give the URL of the collector, for example {example}",
    )


def _is_invisible(value: str) -> bool:
    return any(unicodedata.category(char).startswith("C") for char in value)


def target_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "is no valid name; allowed are 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or a digit"
        )
    return value


def stripped_text(value: str) -> str:
    stripped = value.strip()
    if not stripped:
        raise ValueError("must not be empty; give a text with at least one character that is not white space")
    if _is_invisible(stripped):
        raise ValueError("must not contain control or invisible characters; give a printable text")
    return stripped


def variable_name(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError("is no name of an environment variable; allowed are letters, digits and _ (not the key!)")
    return value


def header_names(value: object) -> object:
    """Checks the names first: where a blank is missing after a colon, a name is half a secret."""
    if not isinstance(value, dict):
        return value
    seen: set[str] = set()
    for name in value:
        if not _HEADER.fullmatch(name):
            raise _header_error(
                name, "has a name that is no HTTP header name; allowed are letters, digits and !#$%&'*+.^_`|~-"
            )
        lower = name.lower()
        if lower == "authorization":
            raise _header_error(name, "must not set authorization; give the key with api_key_env or api_key_file")
        if lower in _RESERVED_HEADERS:
            raise _header_error(name, f"must not set {lower}; it is set by the client")
        if lower in seen:
            raise _header_error(name, f"has {lower} twice; each name may stand once, whatever its case")
        seen.add(lower)
    return value


def header_values(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, secret in value.items():
        text = secret.get_secret_value()
        if not text.isascii() or not text.isprintable() or text != text.strip():
            raise _header_error(
                name, f"has a value for {name} that can't be sent; allowed are printable ASCII characters"
            )
    return value


def _header_error(name: str, words: str) -> PydanticCustomError:
    """``at`` leads to the line; the path in the message ends at the headers."""
    return PydanticCustomError("header", "{words}", {"words": words, "at": name})


def password_hashes(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for user, secret in value.items():
        if not user or ":" in user or not user.isprintable():
            raise ValueError("has a user name that can't be sent; allowed are printable characters without ':'")
        if not _BCRYPT_HASH.fullmatch(secret.get_secret_value()):
            raise PydanticCustomError(
                "password",
                "{words}",
                {
                    "words": "must be a bcrypt hash, never a password; for example of `htpasswd -nB user`",
                    "at": user,
                },
            )
    return value


def no_duplicates(values: tuple[Item, ...]) -> tuple[Item, ...]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"lists {value} twice; each value may stand once")
    return values


def duration_seconds(value: object) -> object:
    """``5m`` → 300. Anything else than such a text is left for pydantic to refuse."""
    if isinstance(value, str):
        match = DURATION.fullmatch(value)
        if match is None:
            raise ValueError("is no duration; allowed are a whole number and a unit: 30s, 5m, 2h, 90d, 1w")
        seconds = int(match[1][:12]) * _SECONDS[match[2]]
        if seconds > _LONGEST_S:
            raise ValueError("is longer than ten years; allowed is up to 520w")
        return seconds
    raise ValueError("is no duration; write a text such as 30s, 5m, 2h, 90d or 1w")


def listen_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and int(port) <= 65535
    if host.startswith("[") and host.endswith("]"):
        is_host = _is_ip_address(host[1:-1], version=6)
    else:
        is_host = bool(_PLAIN_HOST.fullmatch(host))
    if not is_host or not is_port:
        raise ValueError('is no address; write host:port, for example "127.0.0.1:9464" or "[::1]:9464"')
    return value


def _is_ip_address(text: str, *, version: int) -> bool:
    try:
        return ip_address(text).version == version
    except ValueError:
        return False


def cron_expression(value: str) -> str:
    from cronsim import CronSim, CronSimError

    try:
        CronSim(value, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError:
        raise ValueError('is no cron expression; write five fields, for example "*/10 * * * *"') from None
    return value


def time_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is no time zone; write an IANA name, for example UTC or Europe/Berlin") from None
    return value


def not_empty(values: tuple[Item, ...]) -> tuple[Item, ...]:
    if not values:
        raise ValueError("must not be empty; list at least 1")
    return values


def integer_1(value: object) -> object:
    if type(value) is not int or value != 1:
        raise ValueError("must be the integer 1; nothing else is allowed")
    return value
