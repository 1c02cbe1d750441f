"""Markers in a text that comes in pieces: how much of a piece may still become one."""


def held_back_length(marker: str, text: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``marker``; 0 when there is none."""
    longest = min(len(marker) - 1, len(text))
    return next((length for length in range(longest, 0, -1) if marker.startswith(text[-length:])), 0)
