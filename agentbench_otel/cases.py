"""The catalogue: six cases, as data."""

from collections.abc import Mapping
from types import MappingProxyType

from agentbench_otel.records.scenario import Case, CaseId, Expectation, JsonScalar, MockEvent

VOLUME = "device.volume.adjust"
CALENDAR = "calendar.schedule.create"
SEARCH = "knowledge.web.search"
TERMINATE = "session.terminate"

TOOL_NAMES = (VOLUME, CALENDAR, SEARCH, TERMINATE)

_VOLUME_ARGUMENTS: tuple[tuple[str, JsonScalar], ...] = (("mode", "absolute"), ("value", 30))
_CALENDAR_ARGUMENTS: tuple[tuple[str, JsonScalar], ...] = (
    ("title", "Design review"),
    ("start_at", "2026-07-14T09:30:00+08:00"),
    ("timezone", "Asia/Shanghai"),
)
_CONFIRMATION = "Scheduled Design review for 2026-07-14T09:30:00+08:00 (Asia/Shanghai)."

_CASES = (
    Case(
        case_id=CaseId.ORDINARY_CHAT,
        user_message="Hello.",
        enabled_tools=(TERMINATE, VOLUME, CALENDAR, SEARCH),
        expectation=Expectation(
            visible_messages=("Ordinary answer.",),
            event_names=(),
            answer_count=1,
            model_call_count=1,
        ),
        mock_messages=("Ordinary answer.",),
    ),
    Case(
        case_id=CaseId.DEVICE_VOLUME_SILENT,
        user_message="set volume to 30",
        enabled_tools=(VOLUME,),
        expectation=Expectation(
            visible_messages=("I will set the volume to 30.",),
            event_names=(VOLUME,),
            answer_count=1,
            model_call_count=1,
            is_reply_before_tool=True,
        ),
        mock_messages=("I will set the volume to 30.",),
        mock_events=(MockEvent(id="volume-1", name=VOLUME, arguments=_VOLUME_ARGUMENTS),),
    ),
    Case(
        case_id=CaseId.CALENDAR_SCHEDULE_TEMPLATE,
        user_message='schedule "Design review" at 2026-07-14T09:30:00+08:00 timezone Asia/Shanghai',
        enabled_tools=(CALENDAR,),
        expectation=Expectation(
            visible_messages=("I will schedule that.", _CONFIRMATION),
            event_names=(CALENDAR,),
            answer_count=2,
            model_call_count=1,
            is_reply_before_tool=True,
        ),
        mock_messages=("I will schedule that.",),
        mock_events=(MockEvent(id="schedule-1", name=CALENDAR, arguments=_CALENDAR_ARGUMENTS),),
    ),
    Case(
        case_id=CaseId.WEB_SEARCH_TWO_ANSWERS,
        user_message="event batch safety",
        enabled_tools=(SEARCH,),
        expectation=Expectation(
            visible_messages=("I will check.", "Grounded search update."),
            event_names=(SEARCH,),
            answer_count=2,
            model_call_count=2,
            is_reply_before_tool=True,
        ),
        mock_messages=("I will check.", "Grounded search update."),
        mock_events=(MockEvent(id="search-1", name=SEARCH, arguments=(("query", "event batch safety"),)),),
    ),
    Case(
        case_id=CaseId.SESSION_TERMINATE,
        user_message="end this session",
        enabled_tools=(TERMINATE,),
        expectation=Expectation(
            visible_messages=("Goodbye.",),
            event_names=(TERMINATE,),
            answer_count=1,
            model_call_count=1,
            is_terminal=True,
            is_reply_before_tool=True,
        ),
        mock_messages=("Goodbye.",),
        mock_events=(MockEvent(id="terminate-1", name=TERMINATE),),
    ),
    Case(
        case_id=CaseId.PARALLEL_VOLUME_SCHEDULE,
        user_message=(
            'set volume to 30 and schedule "Design review" at 2026-07-14T09:30:00+08:00 timezone Asia/Shanghai'
        ),
        enabled_tools=(VOLUME, CALENDAR),
        expectation=Expectation(
            visible_messages=("I will set the volume to 30 and schedule that.", _CONFIRMATION),
            event_names=(VOLUME, CALENDAR),
            answer_count=2,
            model_call_count=1,
            is_reply_before_tool=True,
            must_overlap=True,
        ),
        mock_messages=("I will set the volume to 30 and schedule that.",),
        mock_events=(
            MockEvent(id="parallel-volume", name=VOLUME, arguments=_VOLUME_ARGUMENTS),
            MockEvent(id="parallel-schedule", name=CALENDAR, arguments=_CALENDAR_ARGUMENTS),
        ),
    ),
)

CATALOGUE: Mapping[CaseId, Case] = MappingProxyType({case.case_id: case for case in _CASES})
