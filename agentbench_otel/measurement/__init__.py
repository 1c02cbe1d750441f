"""Spans become numbers here, by pure functions: no clock, no I/O, no randomness."""
