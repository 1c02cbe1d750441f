"""What an endpoint does not take, learned from its refusals, and left out or renamed from then on.

A refused call is never repeated inside itself: it ends as a failure, the endpoint's adaptations grow by one,
and who made the run makes it again. So no measured time holds a refusal, every parameter is adapted at most
once, and every result tells which adaptations its requests had.
"""

import re
from collections.abc import Mapping
from typing import Any

from agentbench_otel.errors import ProviderError

_REFUSING_STATUSES = frozenset({400, 422, 500})
"""500 too: some gateways turn the refusal of the server behind them into one."""

_PARAMETERS = {
    "stream_options": re.compile(r"\b(?:stream_options|include_usage)\b"),
    "max_completion_tokens": re.compile(r"\bmax_completion_tokens\b"),
    "max_tokens": re.compile(r"\bmax_tokens\b"),
    "temperature": re.compile(r"\btemperature\b"),
    "tool_choice": re.compile(r"\btool_choice\b"),
}
"""What may be adapted, with the words by which a message without ``param`` names it. The model, the messages,
``stream`` and the tools may not: without them it would be another measurement."""

_REFUSAL = re.compile(
    r"not (?:allowed|supported|permitted|accepted|recogni[sz]ed|a known|valid)|unsupported|unknown|unexpected"
    r"|unrecogni[sz]ed|forbidden|extra (?:inputs|fields)|deprecated|does ?n[o']t support|only the default"
)
_NEAR = 48
_TOO_MUCH = re.compile(r"too (?:large|high|big|long)|at most|less than|exceed|maximum context|greater than")


class EndpointProfile:
    """The adaptations of one endpoint; shared by all runs against it."""

    def __init__(self) -> None:
        self._refused: dict[str, None] = {}  # in the order of the refusals

    @property
    def adaptation_count(self) -> int:
        return len(self._refused)

    def adapt(self, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The body as the endpoint takes it, and what was changed in it, in the words that results carry."""
        adapted, changes = dict(body), []
        for parameter in self._refused:
            if parameter not in adapted:
                continue
            value = adapted.pop(parameter)
            if parameter == "max_tokens" and "max_completion_tokens" not in self._refused:
                adapted["max_completion_tokens"] = value
                changes.append("max_completion_tokens instead of max_tokens")
            else:
                changes.append(f"{parameter} left out")
        return adapted, changes

    def learn(self, error: ProviderError, sent: Mapping[str, Any]) -> str | None:
        """The parameter of the request ``sent`` that the error refuses, if it is news; it is remembered."""
        if error.http_status not in _REFUSING_STATUSES:
            return None
        parameter = _named_parameter(error, sent)
        if parameter is None or parameter in self._refused:
            return None
        self._refused[parameter] = None
        return parameter


def _named_parameter(error: ProviderError, sent: Mapping[str, Any]) -> str | None:
    words = str(error).lower()
    if _TOO_MUCH.search(words):
        return None  # the value is refused, not the parameter: the user must choose another one
    if error.param:
        named = re.split(r"[.\[]", error.param)[0]
        return named if named in _PARAMETERS and named in sent else None
    found = {name: match.start() for name, word in _PARAMETERS.items() if (match := word.search(words))}
    in_request = [name for name in found if name in sent and _is_refused_at(words, found[name])]
    return min(in_request, key=lambda name: found[name]) if in_request else None


def _is_refused_at(words: str, position: int) -> bool:
    """Whether a word of refusal stands near: a message may name a parameter for another reason."""
    return _REFUSAL.search(words[max(0, position - _NEAR) : position + _NEAR]) is not None
