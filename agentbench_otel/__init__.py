"""Measures LLM agents and reads every number from the OpenTelemetry spans of the turn."""

__version__ = "0.1.0"
