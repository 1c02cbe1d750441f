"""What pydantic found → lines that a person can act on. No message holds a value that may be a secret."""

import difflib
import re
from typing import Any

from agentbench_otel.config.model import allowed_keys
from agentbench_otel.config.yaml_lines import Path

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TYPE_WORDS = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a mapping",
    type(None): "nothing",
}
_WANTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def path_words(path: Path) -> str:
    """``("targets", 0, "base_url")`` → ``targets[0].base_url``; empty for the document. It ends before a key
    that is no plain word: where a blank is missing after a colon, a key is half a secret."""
    words = ""
    for step in path:
        if isinstance(step, str) and not _PLAIN_KEY.fullmatch(step):
            break
        words += f"[{step}]" if isinstance(step, int) else f".{step}" if words else str(step)
    return words


def nearest(word: str, allowed: list[str]) -> str:
    """`` (did you mean X?)``, or nothing when no allowed word is near."""
    matches = difflib.get_close_matches(word, allowed, n=1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def problem_words(problem: Any, path: Path) -> str:
    """``what is wrong; what is allowed`` for one of pydantic's ``ErrorDetails``."""
    kind: str = problem["type"]
    context: dict[str, Any] = problem.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing":
        return "is missing; it is required"
    if kind == "extra_forbidden":
        return _unknown_key(path)
    if kind in _WANTED:
        got = _TYPE_WORDS.get(type(problem["input"]), "something else")
        return f"must be {_WANTED[kind]}, not {got}"
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        limit = context[key]
        limit_words = f"{limit:g}" if isinstance(limit, float) else str(limit)
        return f"is {problem['input']}; allowed is {words} {limit_words}"
    if kind == "header":
        return str(context["words"])
    if kind == "finite_number":
        return f"must be a finite number, not {problem['input']}"
    if kind == "enum" or kind == "literal_error":
        return _not_allowed(problem["input"], context["expected"])
    return str(problem["msg"])


def _unknown_key(path: Path) -> str:
    keys = allowed_keys(path[:-1])
    name = str(path[-1])
    if not _PLAIN_KEY.fullmatch(name):
        return f"has a key that is not known (is a blank missing after its colon?); allowed are {', '.join(keys)}"
    if name in ("api_key", "key", "token", "api_token"):
        return "is not allowed: a key never stands in the file; name it with api_key_env or api_key_file"
    return f"is not a known key{nearest(name, keys)}; allowed are {', '.join(keys)}"


def _not_allowed(value: object, expected: str) -> str:
    allowed = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    if not isinstance(value, str):
        return f"must be one of {', '.join(allowed)}, not {_TYPE_WORDS.get(type(value), 'something else')}"
    return f"is {value[:64]!r}{nearest(value, allowed)}; allowed are {', '.join(allowed)}"
