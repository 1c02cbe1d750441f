"""``/metrics``: the metrics of runs rendered once per change, those of the daemon itself at each scrape."""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric as Family
from prometheus_client.core import Sample
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.exposition import generate_latest as generate_plain
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from agentbench_otel import names
from agentbench_otel.telemetry.prometheus import PrometheusReader

_END = b"# EOF\n"
_NEVER = re.compile(r"q=0(\.0*)?")

Generate = Callable[[Collector], bytes]


class MetricsPage:
    """``refresh`` does the work that grows with the config; a scrape adds a few dozen lines to its bytes.

    It may be called from any thread. Whoever measures calls ``refresh`` when no model call streams.
    """

    def __init__(self, runs: PrometheusReader, own: Iterable[Callable[[], Iterable[Family]]]) -> None:
        """``own``: give what is rendered at each scrape."""
        self._runs = runs
        self._own = tuple(own)
        self._lock = threading.Lock()
        self._formats = {
            "openmetrics": _Format(generate_openmetrics, CONTENT_TYPE_LATEST, is_wanted=True),  # by Prometheus
            "plain": _Format(generate_plain, CONTENT_TYPE_PLAIN_0_0_4),
        }

    def refresh(self) -> None:
        """Render the metrics of runs anew, in each format that was ever asked for."""
        with self._lock:
            families = self._runs.families()
            for text in self._formats.values():
                if text.is_wanted:
                    text.render(families)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type, by the Accept header of the request.

        All names are plain, so every escaping that Prometheus 3 asks for gives the same bytes.
        """
        text = self._formats["openmetrics" if "application/openmetrics-text" in _media_types(accept) else "plain"]
        if not text.rendered:  # not only when it was never asked for: another thread may be about to render it
            text.is_wanted = True
            self.refresh()
        own = _Families([family for give in self._own for family in give()])
        return text.rendered + text.generate(own), text.content_type


class _Format:
    """One text format, and what was rendered in it: anew only for the targets whose series changed.

    Ten thousands of lines take a second, and a cycle changes those of one target.
    """

    def __init__(self, generate: Generate, content_type: str, *, is_wanted: bool = False) -> None:
        self.generate = generate
        self.content_type = content_type
        self.is_wanted = is_wanted
        self.rendered = b""
        self._parts: dict[tuple[str, str], _Part] = {}

    def render(self, families: Iterable[Family]) -> None:
        texts: list[bytes] = []
        parts: dict[tuple[str, str], _Part] = {}
        for family in families:
            head = self._text(family, [])
            texts.append(head)
            for target, samples in _by_target(family).items():
                key = family.name, target
                content = hash(tuple(map(_content, samples)))
                known = self._parts.get(key)
                if known is None or known.content != content:
                    known = _Part(content, self._text(family, samples).removeprefix(head))
                parts[key] = known
                texts.append(known.text)
        self._parts = parts
        self.rendered = b"".join(texts)

    def _text(self, family: Family, samples: list[Sample]) -> bytes:
        one = Family(family.name, family.documentation, family.type, family.unit)
        one.samples = samples
        return self.generate(_Families([one])).removesuffix(_END)


@dataclass(frozen=True, slots=True)
class _Part:
    content: int
    text: bytes


class _Families(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _by_target(family: Family) -> dict[str, list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in family.samples:
        groups.setdefault(sample.labels.get(names.L_TARGET, ""), []).append(sample)
    return groups


def _content(sample: Sample) -> tuple[object, ...]:
    exemplar = sample.exemplar
    return (sample.name, *sample.labels.values(), sample.value, exemplar and exemplar.timestamp)


def _media_types(accept: str) -> set[str]:
    """Those that the client takes at all."""
    types = set()
    for part in accept.split(","):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if not any(_NEVER.fullmatch(parameter.replace(" ", "")) for parameter in parameters):
            types.add(media_type)
    return types
