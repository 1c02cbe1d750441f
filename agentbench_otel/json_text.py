"""JSON as servers write it: what Python's parser lets through or trips over is dealt with here, once."""

import json
from typing import Any


def load_json(text: str, *, is_strict: bool = False) -> Any:
    """The value of a JSON text.

    Lone surrogates become U+FFFD: they can be neither logged nor sent back. ``is_strict`` also refuses NaN and
    Infinity, which Python reads and JSON does not have.

    Raises:
        ValueError: Not JSON, or nested without end.
    """
    try:
        value = json.loads(text, parse_constant=_refuse if is_strict else None)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _without_surrogates(value) if "\\ud" in text.lower() else value


def load_object(text: str) -> dict[str, Any] | None:
    """The JSON object of a text, strictly parsed; None when it is none. A lenient parser would repair cut
    arguments into plausible wrong ones."""
    try:
        value = load_json(text, is_strict=True)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def load_json_prefix(text: str) -> Any:
    """As `load_json`, of the value that the text begins with, whatever follows it."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _without_surrogates(value) if "\\ud" in text[:end].lower() else value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
