"""Error kinds as metric labels: a short closed list, whatever a server or a bug makes up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbench_otel.errors import CALL_ERROR_CLASSES, ErrorKind, error_class, http_error_kind

ALL_CLASSES = {*(kind.value for kind in ErrorKind), *(f"http_{hundreds}xx" for hundreds in range(1, 6))}
ONLY_OF_RUNS = {"run_deadline", "stuck", "aborted", "agent_error"}


@pytest.mark.parametrize("kind", ErrorKind)
def test_a_kind_of_ours_is_its_own_class(kind: ErrorKind) -> None:
    assert error_class(kind) == kind.value
    assert error_class(kind.value) == kind.value


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (101, "http_1xx"),
        (204, "http_2xx"),
        (302, "http_3xx"),
        (400, "http_4xx"),
        (429, "http_4xx"),
        (499, "http_4xx"),
        (500, "http_5xx"),
        (599, "http_5xx"),
    ],
)
def test_a_status_is_classed_by_its_first_digit(status: int, expected: str) -> None:
    assert error_class(http_error_kind(status)) == expected


@pytest.mark.parametrize("kind", ["http_0", "http_99", "http_600", "http_999", "http_4040", "http_", "http_4xxx"])
def test_a_status_that_http_does_not_have_is_the_servers_fault(kind: str) -> None:
    assert error_class(kind) == "http_5xx"


@pytest.mark.parametrize("kind", ["", "KeyError", "HTTP_404", "xhttp_404", "cancelled "])
def test_what_has_no_kind_is_a_bug_of_ours(kind: str) -> None:
    assert error_class(kind) == "internal"


@given(st.text() | st.text().map("http_{}".format) | st.integers().map(http_error_kind))
def test_whatever_the_kind_the_class_is_one_of_the_list_and_a_plain_text(kind: str) -> None:
    found = error_class(kind)
    assert found in ALL_CLASSES
    assert f"{found}" in ALL_CLASSES


def test_a_model_call_can_have_every_class_but_those_of_whole_runs() -> None:
    assert set(CALL_ERROR_CLASSES) == ALL_CLASSES - ONLY_OF_RUNS
    assert len(CALL_ERROR_CLASSES) == len(set(CALL_ERROR_CLASSES))
