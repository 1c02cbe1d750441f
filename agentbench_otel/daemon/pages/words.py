"""Times and shares as the pages write them. All times are UTC."""

from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def stamp(moment: datetime) -> str:
    """``2026-12-01 10:40:22 UTC``."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def lasting(seconds: float) -> str:
    """``45 s``, ``5 min``, ``2 h 30 min``, ``3 d 4 h``: at most two units, rounded down."""
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return _two(whole, _MINUTE, "min", 1, "s") if whole < 10 * _MINUTE else f"{whole // _MINUTE} min"
    if whole < _DAY:
        return _two(whole, _HOUR, "h", _MINUTE, "min")
    return _two(whole, _DAY, "d", _HOUR, "h")


def _two(whole: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = whole % large // small
    return f"{whole // large} {large_name}" + (f" {rest} {small_name}" if rest else "")


def relative(moment: datetime, now: datetime) -> str:
    """``5 min ago``, ``in 45 s``, ``now``."""
    seconds = (moment - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {lasting(seconds)}" if seconds > 0 else f"{lasting(-seconds)} ago"


def share(part: int, whole: int) -> str:
    """``96 %``, rounded down, so that 100 % means all of them; ``n/a`` of nothing."""
    return f"{100 * part // whole} %" if whole else "n/a"


def exact_ms(value_ms: float) -> str:
    """``0.014 ms``, to the µs, as results carry it: a short overlap must not read as none."""
    return f"{value_ms:.3f} ms"


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def percent(value: float) -> str:
    """A coordinate of a drawing whose width is 100 %."""
    return f"{value:.3f}%"
