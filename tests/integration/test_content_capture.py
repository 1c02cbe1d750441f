"""Content is on spans only where it was asked for."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import pytest

from agentbench_otel import app, names, runner
from agentbench_otel.cases import CALENDAR, CATALOGUE, SEARCH, VOLUME
from agentbench_otel.config.model import Config, Telemetry
from agentbench_otel.ports import Clock
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import Runner, RunPlan
from agentbench_otel.telemetry.clock import AnchoredClock
from tests.support.clock import MS, ManualClock


class Keep:
    def __init__(self) -> None:
        self.spans: list[SpanRecord] = []

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        del result
        self.spans += spans


def spans_of(
    case_id: CaseId, mode: Mode, *, capture_content: bool, clock_factory: Callable[[], Clock] = AnchoredClock
) -> list[SpanRecord]:
    config: Config = app.mock_config().model_copy(update={"telemetry": Telemetry(capture_content=capture_content)})
    kept = Keep()
    plan = RunPlan(target=config.targets[0], case_id=case_id, mode=mode, iteration=1)
    one = Runner(
        config, client_factory=app.make_mock_client, is_mock=True, sinks=[kept], clock_factory=clock_factory
    )
    asyncio.run(one.run(plan))
    return kept.spans


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("case_id", list(CaseId))
def test_no_content_is_on_any_span_unless_it_was_asked_for(case_id: CaseId, mode: Mode) -> None:
    case = CATALOGUE[case_id]
    everything = "".join(map(repr, spans_of(case_id, mode, capture_content=False)))
    arguments = [str(value) for event in case.mock_events for _, value in event.arguments if value != 30]
    for content in (case.user_message, *case.expectation.visible_messages, *arguments):
        if content != "absolute":  # also a plain word of ours
            assert content not in everything


def test_with_it_a_call_holds_its_prompt_its_answer_and_its_tool_calls() -> None:
    spans = spans_of(CaseId.WEB_SEARCH_TWO_ANSWERS, Mode.CHAT_AGENT_TOOLS, capture_content=True)
    first, second = (span.attributes for span in spans if span.name.startswith(names.MODEL_CALL_SPAN))
    asked = json.loads(str(first[names.INPUT_MESSAGES]))
    assert [message["role"] for message in asked] == ["system", "user"]
    assert asked[1]["parts"] == [{"type": "text", "content": "event batch safety"}]
    (answered,) = json.loads(str(first[names.OUTPUT_MESSAGES]))
    assert answered["finish_reason"] == "tool_calls"
    assert answered["parts"] == [
        {"type": "text", "content": "I will check."},
        {
            "type": "tool_call",
            "id": "search-1",
            "name": "knowledge.web.search",
            "arguments": {"query": "event batch safety"},
        },
    ]
    history = json.loads(str(second[names.INPUT_MESSAGES]))
    assert [message["role"] for message in history] == ["system", "user", "assistant", "tool"]
    assert history[3]["parts"][0]["type"] == "tool_call_response"
    assert history[3]["parts"][0]["id"] == "search-1"


def handlers_of(
    case_id: CaseId, *, capture_content: bool = True, clock_factory: Callable[[], Clock] = AnchoredClock
) -> dict[str, SpanRecord]:
    spans = spans_of(case_id, Mode.CHAT_AGENT_TOOLS, capture_content=capture_content, clock_factory=clock_factory)
    return {str(span.attributes[names.TOOL_NAME]): span for span in spans if names.TOOL_NAME in span.attributes}


def test_with_it_a_handler_holds_what_it_was_given_and_what_it_gave() -> None:
    handlers = handlers_of(CaseId.PARALLEL_VOLUME_SCHEDULE)
    assert set(handlers) == {VOLUME, CALENDAR}
    attributes = handlers[VOLUME].attributes
    assert json.loads(str(attributes[names.TOOL_CALL_ARGUMENTS])) == {"mode": "absolute", "value": 30}
    assert json.loads(str(attributes[names.TOOL_CALL_RESULT])) == {"event_id": "parallel-volume", "level": 30}
    attributes = handlers[CALENDAR].attributes
    assert json.loads(str(attributes[names.TOOL_CALL_ARGUMENTS]))["title"] == "Design review"
    assert json.loads(str(attributes[names.TOOL_CALL_RESULT]))["event_id"] == "parallel-schedule"


def test_without_it_a_handler_holds_neither() -> None:
    (handler,) = handlers_of(CaseId.WEB_SEARCH_TWO_ANSWERS, capture_content=False).values()
    assert not {names.TOOL_CALL_ARGUMENTS, names.TOOL_CALL_RESULT} & set(handler.attributes)


def test_a_result_that_json_does_not_have_is_told_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    async def strange(event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        del event_id, arguments
        return {"path": PurePosixPath("/a"), "word": "é"}

    monkeypatch.setattr(runner, "in_memory_handlers", lambda: {SEARCH: strange})
    (handler,) = handlers_of(CaseId.WEB_SEARCH_TWO_ANSWERS).values()
    assert handler.attributes[names.TOOL_CALL_RESULT] == '{"path":"/a","word":"é"}'


def test_a_handler_that_raised_gave_no_result_but_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise KeyError("odd")

    monkeypatch.setattr(runner, "in_memory_handlers", lambda: {SEARCH: broken})
    (handler,) = handlers_of(CaseId.WEB_SEARCH_TWO_ANSWERS).values()
    assert json.loads(str(handler.attributes[names.TOOL_CALL_ARGUMENTS])) == {"query": "event batch safety"}
    assert json.loads(str(handler.attributes[names.TOOL_CALL_RESULT])) == {"error": "KeyError: 'odd'"}


def test_making_json_of_a_result_is_no_time_of_its_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()

    class SlowToTell:
        def __str__(self) -> str:
            clock.advance_ms(500)
            return "told"

    async def handler_of_20_ms(event_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        del event_id, arguments
        clock.advance_ms(20)
        return {"result": SlowToTell()}

    monkeypatch.setattr(runner, "in_memory_handlers", lambda: {SEARCH: handler_of_20_ms})
    (handler,) = handlers_of(CaseId.WEB_SEARCH_TWO_ANSWERS, clock_factory=lambda: clock).values()
    assert handler.attributes[names.TOOL_CALL_RESULT] == '{"result":"told"}'
    assert handler.duration_ns == 20 * MS
