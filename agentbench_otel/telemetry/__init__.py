"""Moments become spans here: the clock, the recorder, the traced client, and spans as OTLP JSON."""
