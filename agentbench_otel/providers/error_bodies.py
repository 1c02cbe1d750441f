"""What a server says when it refuses: the known shapes of error bodies, as short and safe words."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentbench_otel.json_text import load_json_prefix
from agentbench_otel.redaction import redact

_WORDS_LIMIT = 300
_HTML_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    """What a server said, in full: `short_words` makes it fit to be told.

    ``code`` is a number or a text, as the server gave it; ``param`` names the request parameter that it means.
    """

    message: str
    code: str | int | None = None
    param: str | None = None

    def words(self, secrets: Iterable[str]) -> str:
        """Message and code, short and without the secrets."""
        words = short_words(self.message, secrets) or "no message"
        return f"{words} (code {short_words(str(self.code), secrets)})" if self.code else words


def short_words(text: str, secrets: Iterable[str] = ()) -> str:
    """One printable line of at most 300 characters, without the secrets: redacted first, so that no part of one
    is left where the line is cut."""
    text = redact(text, secrets)
    words = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return words if len(words) <= _WORDS_LIMIT else words[: _WORDS_LIMIT - 1] + "…"


def read_error(payload: Any) -> ServerError | None:
    """The error that a JSON value reports, in any of the known shapes; None when it reports none.

    Shapes: ``{error: {message, type, param, code}}``, ``{error: text}``, ``{object: "error", message, …}``,
    ``{error_code, message}``, ``{detail: …}``, ``{success: false, errors: […]}``, ``{error: {code, status,
    details}}``.
    """
    if not isinstance(payload, dict):
        return None
    error = payload.get("error")
    if isinstance(error, dict) and error:
        return _server_error(error, _message(error) or _message(payload))
    if error:
        return _server_error(payload, _message({"message": error}))
    is_chunk = bool(payload.get("choices"))  # then only a whole error counts, not a field that others use too
    if payload.get("object") == "error" or (not is_chunk and (payload.get("error_code") or payload.get("detail"))):
        return _server_error(payload, _message(payload))
    errors = payload.get("errors")
    if payload.get("success") is False and isinstance(errors, list) and errors:
        first = errors[0] if isinstance(errors[0], dict) else {"message": errors[0]}
        return _server_error(first, _message(first))
    return None


def read_body_error(payload: Any) -> ServerError | None:
    """As `read_error`, of a whole body: there the error may also stand in a list, or be a filter's verdict
    inside a completion. In a stream the latter is a note, not an error."""
    if isinstance(payload, list):
        return read_body_error(payload[0]) if payload else None
    error = read_error(payload)
    choices = payload.get("choices") if isinstance(payload, dict) else None
    if error is not None or not isinstance(choices, list):
        return error
    verdicts = [choice.get("content_filter_results") for choice in choices if isinstance(choice, dict)]
    return next((found for verdict in verdicts if (found := read_error(verdict)) is not None), None)


def read_error_body(text: str) -> ServerError:
    """The error of an HTTP answer other than 200: JSON, an event stream with one error, HTML or plain text."""
    stripped = text.strip().removeprefix("\ufeff").removeprefix("data:").strip()
    try:
        error = read_body_error(load_json_prefix(stripped))
    except ValueError:
        error = None
    if error is not None:
        return error
    if stripped.startswith("<"):
        title = _HTML_TITLE.search(stripped)
        return ServerError(message=f"an HTML page: {title[1]}" if title else "an HTML page")
    return ServerError(message=stripped)


def _server_error(payload: dict[str, Any], message: str) -> ServerError:
    return ServerError(
        message=message or "error without a message",
        code=_code(payload),
        param=_text(payload.get("param")) or _location(payload.get("detail")),
    )


def _message(payload: dict[str, Any]) -> str:
    for key in ("message", "msg", "detail", "error_description"):
        value = payload.get(key)
        if isinstance(value, str) and value:
            return value
        if value:
            return json.dumps(value, ensure_ascii=False)
    return ""


def _code(payload: dict[str, Any]) -> str | int | None:
    for key in ("code", "error_code", "status", "type"):
        value = payload.get(key)
        if type(value) is int:
            return value
        if isinstance(value, str) and value:
            return value
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _location(detail: Any) -> str | None:
    """``[{"loc": ["body", "max_tokens"], …}]`` → ``max_tokens``."""
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        location = detail[0].get("loc")
        if isinstance(location, list) and location:
            return _text(str(location[-1]))
    return None
