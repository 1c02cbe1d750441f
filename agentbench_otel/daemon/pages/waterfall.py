"""The geometry of a waterfall: spans → rows of bars. Pure; places are per cent of the drawing's width."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

from agentbench_otel import names
from agentbench_otel.daemon.pages.words import exact_ms
from agentbench_otel.measurement.intervals import Interval, merge, overlap_ns, overlaps, union_ns
from agentbench_otel.measurement.timing import to_ms
from agentbench_otel.measurement.tree import Call, RunTree
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.reports.words import printable

BANDS_DRAWN = 240
"""Of the awaits of all calls together: a stream of 100,000 costs the browser no more."""
CALLS_DRAWN = 20
HANDLERS_DRAWN = 40
_TICKS = 5
_NARROWEST = 0.05  # a bar without width would not be drawn at all
_SMALL_SHARE = 0.1
"""Handlers that take less than this of the turn get a drawing of their own."""
_PHASES = ("connect", "tls", "send", "first_byte")

BarKind = Literal["turn", "call", "phase", "await", "handler"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    x: float
    width: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``from_ms`` counts from the start of the turn. Of awaits ``took_ms`` is the time that they cover."""

    kind: BarKind
    depth: int
    name: str
    from_ms: float
    took_ms: float
    bars: tuple[Bar, ...]
    words: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    x: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    x: float
    at_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """``overlaps`` are where at least two handlers ran; ``overlap_ms`` is None with fewer than two."""

    ticks: tuple[Tick, ...]
    rows: tuple[Row, ...]
    first_visible: Marker | None
    overlaps: tuple[Bar, ...]
    overlap_ms: float | None
    left_out: tuple[str, ...]
    """What is not drawn, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """From Unix ns to the drawing. Times in words count from ``zero_ns``, the start of the turn."""

    window: Interval
    zero_ns: int

    @property
    def width_ns(self) -> int:
        return max(1, self.window.end_ns - self.window.start_ns)

    def x(self, time_ns: int) -> float:
        return min(100.0, max(0.0, 100 * (time_ns - self.window.start_ns) / self.width_ns))

    def ms(self, time_ns: int) -> float:
        return to_ms(time_ns - self.zero_ns)

    def bar(self, interval: Interval, name: str) -> Bar:
        x = min(self.x(interval.start_ns), 100 - _NARROWEST)
        start, end = exact_ms(self.ms(interval.start_ns)), exact_ms(self.ms(interval.end_ns))
        return Bar(x=x, width=max(_NARROWEST, self.x(interval.end_ns) - x), words=f"{name}: {start} to {end}")


def draw_turn(tree: RunTree) -> Waterfall | None:
    """The whole turn; None when none began."""
    if tree.turn is None:
        return None
    calls, handlers = tree.calls[:CALLS_DRAWN], tree.handlers[:HANDLERS_DRAWN]
    window = _hull([tree.turn, *(call.span for call in calls), *handlers])
    scale = _Scale(window=window, zero_ns=tree.turn.start_ns)
    rows = [_span_row(scale, "turn", 0, tree.turn)]
    for call in calls:
        rows += _call_rows(scale, call, most_bands=BANDS_DRAWN // len(calls))
    rows += _handler_rows(scale, handlers)
    return _waterfall(tree, scale, rows)


def draw_handlers(tree: RunTree) -> Waterfall | None:
    """The handlers alone, when they are too short to be seen beside the turn; else None."""
    handlers = tree.handlers[:HANDLERS_DRAWN]
    if tree.turn is None or not handlers:
        return None
    hull = _hull(handlers)
    length_ns = hull.end_ns - hull.start_ns
    if length_ns >= _SMALL_SHARE * tree.turn.duration_ns:
        return None
    margin_ns = max(1, length_ns // 20)
    window = Interval(hull.start_ns - margin_ns, hull.end_ns + margin_ns)
    scale = _Scale(window=window, zero_ns=tree.turn.start_ns)
    return _waterfall(tree, scale, _handler_rows(scale, handlers))


def _waterfall(tree: RunTree, scale: _Scale, rows: Sequence[Row]) -> Waterfall:
    intervals = [_interval(span) for span in tree.handlers]
    return Waterfall(
        ticks=tuple(_ticks(scale)),
        rows=tuple(rows),
        first_visible=_first_visible(tree, scale),
        overlaps=tuple(scale.bar(piece, "overlap") for piece in overlaps(intervals)[:HANDLERS_DRAWN]),
        overlap_ms=to_ms(overlap_ns(intervals)) if len(intervals) > 1 else None,
        left_out=tuple(_left_out(tree)),
    )


def _left_out(tree: RunTree) -> Iterator[str]:
    if len(tree.calls) > CALLS_DRAWN:
        yield _number(len(tree.calls) - CALLS_DRAWN, "model call")
    if len(tree.handlers) > HANDLERS_DRAWN:
        yield _number(len(tree.handlers) - HANDLERS_DRAWN, "tool handler")


def bands(intervals: Iterable[Interval], *, smallest_gap_ns: int) -> list[Interval]:
    """The union, with gaps under ``smallest_gap_ns`` closed."""
    joined: list[Interval] = []
    for piece in merge(intervals):
        if joined and piece.start_ns - joined[-1].end_ns < smallest_gap_ns:
            joined[-1] = Interval(joined[-1].start_ns, piece.end_ns)
        else:
            joined.append(piece)
    return joined


def _interval(span: SpanRecord) -> Interval:
    return Interval(span.start_ns, span.end_ns)


def _hull(spans: Sequence[SpanRecord]) -> Interval:
    """From the first start to the last end. At least one span is given."""
    return Interval(min(span.start_ns for span in spans), max(span.end_ns for span in spans))


def _span_row(scale: _Scale, kind: BarKind, depth: int, span: SpanRecord) -> Row:
    name = printable(span.name)
    return Row(
        kind=kind,
        depth=depth,
        name=name,
        from_ms=scale.ms(span.start_ns),
        took_ms=to_ms(span.duration_ns),
        bars=(scale.bar(_interval(span), name),),
        error=None if span.error is None else printable(span.error),
    )


def _call_rows(scale: _Scale, call: Call, *, most_bands: int) -> Iterator[Row]:
    yield _span_row(scale, "call", 1, call.span)
    for phase in _PHASES:
        interval = call.phases.get(phase)
        if interval is not None:
            yield Row(
                kind="phase",
                depth=2,
                name=phase,
                from_ms=scale.ms(interval.start_ns),
                took_ms=to_ms(interval.end_ns - interval.start_ns),
                bars=(scale.bar(interval, phase),),
            )
    if call.awaits:
        yield _await_row(scale, call, most_bands=most_bands)


def _await_row(scale: _Scale, call: Call, *, most_bands: int) -> Row:
    intervals = [one.interval for one in call.awaits]
    # Gaps of at least this length fit only so often into the drawing: that is what bounds the bands.
    smallest_gap_ns = scale.width_ns // most_bands + 1
    drawn = bands(intervals, smallest_gap_ns=smallest_gap_ns)
    words = f"{_number(len(intervals), 'await')} in {_number(len(drawn), 'band')}"
    if len(drawn) < len(merge(intervals)):
        words += f", gaps under {exact_ms(to_ms(smallest_gap_ns))} closed"
    return Row(
        kind="await",
        depth=2,
        name="provider awaits",
        from_ms=scale.ms(min(interval.start_ns for interval in intervals)),
        took_ms=to_ms(union_ns(intervals)),
        bars=tuple(scale.bar(band, "awaits") for band in drawn),
        words=words,
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _handler_rows(scale: _Scale, handlers: Iterable[SpanRecord]) -> list[Row]:
    return [_span_row(scale, "handler", 1, span) for span in handlers]


def _first_visible(tree: RunTree, scale: _Scale) -> Marker | None:
    events = () if tree.turn is None else tree.turn.events
    times = [event.time_ns for event in events if event.name == names.FIRST_VISIBLE_MESSAGE_EVENT]
    if not times or not scale.window.start_ns <= min(times) <= scale.window.end_ns:
        return None
    return Marker(x=scale.x(min(times)), at_ms=scale.ms(min(times)))


def _ticks(scale: _Scale) -> Iterator[Tick]:
    """At round numbers of ms since the start of the turn."""
    step_ms = round_step(scale.width_ns / 1e6 / _TICKS)
    first = ceil((scale.window.start_ns - scale.zero_ns) / 1e6 / step_ms)
    last = floor((scale.window.end_ns - scale.zero_ns) / 1e6 / step_ms)
    decimals = max(0, -floor(log10(step_ms)))
    for number in range(first, last + 1):
        at_ms = number * step_ms
        yield Tick(x=scale.x(scale.zero_ns + round(at_ms * 1e6)), words=f"{at_ms:.{decimals}f}")


def round_step(at_least: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that is not smaller. ``at_least`` > 0."""
    power = 10.0 ** floor(log10(at_least))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= at_least), 10 * power)
