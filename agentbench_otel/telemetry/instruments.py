"""What every reader of metrics says of the SDK's instruments."""

from opentelemetry.sdk.metrics import (
    Counter,
    Histogram,
    ObservableCounter,
    ObservableGauge,
    ObservableUpDownCounter,
    UpDownCounter,
)

INSTRUMENT_TYPES: tuple[type, ...] = (
    Counter,
    UpDownCounter,
    Histogram,
    ObservableCounter,
    ObservableUpDownCounter,
    ObservableGauge,
)

_ATTRIBUTE_SETS = 100_000
"""Per metric; the SDK's 2,000 would fold a large config into one overflow series. Every attribute is a
configured name or of a closed list, so the config bounds it long before."""


def cardinality_limits() -> dict[type, int]:
    return dict.fromkeys(INSTRUMENT_TYPES, _ATTRIBUTE_SETS)
