"""Secrets in texts that leave: servers quote what they were sent."""

from collections.abc import Iterable

SHORTEST_SECRET = 8
"""A shorter text is found by chance in too many others: redacting it would garble what was measured."""


def redact(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):  # one may begin with another
        text = text.replace(secret, "[redacted]") if secret else text
    return text
