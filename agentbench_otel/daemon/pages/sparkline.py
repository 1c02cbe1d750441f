"""A small line of the newest values of one series."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentbench_otel.reports.words import ms_unit

WIDTH, HEIGHT = 120.0, 28.0
_MARGIN = 3.0
_MOST_POINTS = 120
"""More would share their pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: float
    y: float

    def __str__(self) -> str:
        return f"{self.x:.1f},{self.y:.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """``lines`` end where a run has no value; one of a single point is drawn as a dot."""

    lines: tuple[tuple[Point, ...], ...]
    last: Point | None
    """Where the newest run stands; None when it has no value."""
    lowest_ms: float
    highest_ms: float
    label: str


def draw_sparkline(values_ms: Sequence[float | None]) -> Sparkline | None:
    """The newest values, given oldest first; None when no run has one.

    The scale goes from the lowest to the highest: the page writes both beside it.
    """
    shown = values_ms[-_MOST_POINTS:]
    known = [value for value in shown if value is not None]
    if not known:
        return None
    lowest, highest = min(known), max(known)
    step = (WIDTH - 2 * _MARGIN) / max(1, len(shown) - 1)
    points = [
        None
        if value is None
        else Point(x=_MARGIN + position * step, y=_height_of(value, lowest_ms=lowest, highest_ms=highest))
        for position, value in enumerate(shown)
    ]
    return Sparkline(
        lines=_unbroken(points),
        last=points[-1],
        lowest_ms=lowest,
        highest_ms=highest,
        label=_label(shown, lowest_ms=lowest, highest_ms=highest),
    )


def _height_of(value_ms: float, *, lowest_ms: float, highest_ms: float) -> float:
    if highest_ms == lowest_ms:
        return HEIGHT / 2
    return HEIGHT - _MARGIN - (value_ms - lowest_ms) / (highest_ms - lowest_ms) * (HEIGHT - 2 * _MARGIN)


def _unbroken(points: Sequence[Point | None]) -> tuple[tuple[Point, ...], ...]:
    lines: list[list[Point]] = [[]]
    for point in points:
        if point is not None:
            lines[-1].append(point)
        elif lines[-1]:
            lines.append([])
    return tuple(tuple(line) for line in lines if line)


def _label(shown: Sequence[float | None], *, lowest_ms: float, highest_ms: float) -> str:
    missing = sum(value is None for value in shown)
    without = f", {missing} of them without a value" if missing else ""
    runs = "1 run" if len(shown) == 1 else f"the newest {len(shown)} runs"
    return (
        f"visible TTFT of {runs}{without}: lowest {ms_unit(lowest_ms)}, highest {ms_unit(highest_ms)},"
        f" last {ms_unit(shown[-1])}"
    )
