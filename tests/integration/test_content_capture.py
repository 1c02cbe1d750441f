"""Content is on spans only where it was asked for."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from agentbench_otel import app, names
from agentbench_otel.cases import CATALOGUE
from agentbench_otel.config.model import Config, Telemetry
from agentbench_otel.records.results import RunResult
from agentbench_otel.records.scenario import CaseId, Mode
from agentbench_otel.records.spans import SpanRecord
from agentbench_otel.runner import Runner, RunPlan


class Keep:
    def __init__(self) -> None:
        self.spans: list[SpanRecord] = []

    def accept(self, result: RunResult, spans: Sequence[SpanRecord]) -> None:
        del result
        self.spans += spans


def spans_of(case_id: CaseId, mode: Mode, *, capture_content: bool) -> list[SpanRecord]:
    config: Config = app.mock_config().model_copy(update={"telemetry": Telemetry(capture_content=capture_content)})
    kept = Keep()
    runner = Runner(config, client_factory=app.make_mock_client, is_mock=True, sinks=[kept])
    asyncio.run(runner.run(RunPlan(target=config.targets[0], case_id=case_id, mode=mode, iteration=1)))
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
