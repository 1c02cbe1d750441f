"""Compares what a client made of a recorded stream with what the case file expects."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentbench_otel.records.chat import GENERATED_KINDS, ItemKind, StreamItem
from agentbench_otel.records.results import ProbeResult

FRAME_KEYS = {"first_item_frame", "first_visible_frame", "last_item_frame", "end_frame"}


def differences(expect: Mapping[str, Any], result: ProbeResult) -> list[str]:
    """One line per field of ``expect`` that the result misses; frames are compared by `frame_differences`."""
    found: dict[str, object] = {
        "visible_text": result.visible_text,
        "first_item": result.first_item,
        "finish_reason": result.finish_reason,
        "reasoning_text": result.reasoning_text,
        "reasoning_len": len(result.reasoning_text),
        "refusal_text": result.refusal_text,
        "error": None if result.error is None else result.error.kind,
        "error_code": None if result.error is None else result.error.code,
        "error_param": None if result.error is None else result.error.param,
        "retry_after_s": None if result.error is None else result.error.retry_after_s,
        "retryable": None if result.error is None else result.error.retryable,
    }
    lines = [
        f"{key}: {expect[key]!r}, got {found[key]!r}"
        for key in found
        if key in expect and expect[key] != found[key]
    ]
    lines += _usage_differences(expect["usage"], result)
    lines += _call_differences(expect["tool_calls"], result)
    return lines


def _usage_differences(expected: Mapping[str, Any] | None, result: ProbeResult) -> list[str]:
    if expected is None or result.usage is None:
        return [] if expected is None and result.usage is None else [f"usage: {expected}, got {result.usage}"]
    return [
        f"usage.{key}: {value}, got {getattr(result.usage, key)}"
        for key, value in expected.items()
        if getattr(result.usage, key) != value
    ]


def _call_differences(expected: Sequence[Mapping[str, Any]], result: ProbeResult) -> list[str]:
    if len(expected) != len(result.tool_calls):
        return [f"tool_calls: {len(expected)}, got {len(result.tool_calls)}"]
    return [
        f"tool_calls[{position}].{key}: {value!r}, got {getattr(call, key)!r}"
        for position, (wanted, call) in enumerate(zip(expected, result.tool_calls, strict=True))
        for key, value in wanted.items()
        if getattr(call, key) != value
    ]


def frame_differences(
    expect: Mapping[str, Any], framed: Sequence[tuple[StreamItem, int]], *, end_frame: int | None
) -> list[str]:
    """As `differences`, for the frames (from 0) with which the items came and the stream was over."""
    generated = [frame for item, frame in framed if item.kind in GENERATED_KINDS]
    visible = [frame for item, frame in framed if item.kind is ItemKind.TEXT and item.text.strip()]
    found = {
        "first_item_frame": generated[0] if generated else None,
        "first_visible_frame": visible[0] if visible else None,
        "last_item_frame": generated[-1] if generated else None,
        "end_frame": end_frame,
    }
    return [
        f"{key}: {expect[key]}, got {found[key]}" for key in found if key in expect and expect[key] != found[key]
    ]
