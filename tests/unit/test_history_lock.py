"""One process writes a history; a second one learns which."""

import os
from pathlib import Path

import pytest

from agentbench_otel.errors import InputError
from agentbench_otel.history.lock import HistoryLock


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agentbench.db"


def test_a_second_writer_is_refused_by_file_and_process(file: Path) -> None:
    lock = HistoryLock(file)
    with pytest.raises(InputError) as refusal:
        HistoryLock(file)
    lock.release(is_clean=True)
    assert f"{file}: process {os.getpid()} writes this history" in str(refusal.value)
    assert "stop it, or give another path" in str(refusal.value)


def test_a_refusal_leaves_the_holder_named(file: Path) -> None:
    lock = HistoryLock(file)
    for _ in range(2):
        with pytest.raises(InputError, match=f"process {os.getpid()} writes"):
            HistoryLock(file)
    lock.release(is_clean=True)


def test_a_released_lock_can_be_had_again(file: Path) -> None:
    HistoryLock(file).release(is_clean=True)
    HistoryLock(file).release(is_clean=True)


def test_a_link_to_the_history_has_the_same_lock(file: Path, tmp_path: Path) -> None:
    file.touch()
    link = tmp_path / "link.db"
    link.symlink_to(file)
    lock = HistoryLock(file)
    with pytest.raises(InputError, match=f"process {os.getpid()} writes"):
        HistoryLock(link)
    lock.release(is_clean=True)


def test_the_end_of_the_writer_before_is_known(file: Path) -> None:
    """A clean end is what a lock file tells; without one nothing is known."""
    first = HistoryLock(file)
    first.release(is_clean=True)
    second = HistoryLock(file)
    second.release(is_clean=False)
    third = HistoryLock(file)
    third.release(is_clean=True)
    assert [first.was_clean, second.was_clean, third.was_clean] == [False, True, False]


def test_a_directory_that_can_t_be_written_is_refused() -> None:
    with pytest.raises(InputError, match=r"/sys/agentbench\.db: can't be written: .*make its directory writable"):
        HistoryLock(Path("/sys/agentbench.db"))
