"""A clock that a test moves by hand."""

T0_NS = 1_700_000_000_000_000_000
"""Some moment in 2023: times of tests begin here, because an arrival at 0 would mean "none"."""

MS = 1_000_000
"""One millisecond in ns."""


class ManualClock:
    """Stands still until a test moves it."""

    def __init__(self, now_ns: int = T0_NS) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance_ms(self, ms: int) -> None:
        self.now_ns += ms * MS
