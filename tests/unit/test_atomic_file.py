"""A report file is there whole or not at all, and what stood there before stays until then."""

import os
import stat
import threading
from pathlib import Path

import pytest

from agentbench_otel.errors import InputError
from agentbench_otel.reports.atomic_file import AtomicFile


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write_half(path: Path, error: type[BaseException]) -> None:
    with AtomicFile(path) as file:
        file.write("half")
        raise error


def test_the_file_is_there_when_the_block_ends(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "report") as file:
        file.write("one\n")
        file.write("zwei ä\n")
    assert (tmp_path / "report").read_text(encoding="utf-8") == "one\nzwei ä\n"
    assert names_in(tmp_path) == ["report"]


def test_before_the_block_ends_there_is_no_file(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "report") as file:
        file.write("half")
        assert not (tmp_path / "report").exists()


def test_a_file_that_was_there_is_replaced_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("old and longer", encoding="utf-8")
    with AtomicFile(path) as file:
        file.write("new")
        assert path.read_text(encoding="utf-8") == "old and longer"
    assert path.read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_keeps_what_was_there_and_leaves_nothing_behind(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "report"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(error):
        write_half(path, error)
    assert path.read_text(encoding="utf-8") == "old"
    assert names_in(tmp_path) == ["report"]


def test_an_error_makes_no_file_where_none_was(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        write_half(tmp_path / "report", RuntimeError)
    assert names_in(tmp_path) == []


def test_a_missing_directory_is_an_input_error_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        AtomicFile(tmp_path / "no" / "report")
    assert str(refused.value) == f"{tmp_path}/no/report: can't be written: No such file or directory"


def test_a_directory_is_an_input_error_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        AtomicFile(tmp_path)
    assert str(refused.value) == f"{tmp_path}: can't be written: Is a directory"


def test_a_directory_that_takes_no_file_is_an_input_error_before_any_work() -> None:
    """``/proc`` takes none, not even from root, who may write into every directory of a real file system."""
    with pytest.raises(InputError, match="can't be written: "):
        AtomicFile(Path("/proc/agentbench-report"))


def test_a_read_only_file_is_an_input_error_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replacing it would work, but is not what its mode says. Root may write it, so the answer is faked."""
    path = tmp_path / "report"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, "access", lambda place, mode: not (Path(place) == path and mode == os.W_OK))
    with pytest.raises(InputError, match="can't be written: Permission denied"):
        AtomicFile(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert names_in(tmp_path) == ["report"]


def test_a_pipe_is_written_directly_and_stays_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(path.read_text(encoding="utf-8")))
    reader.start()
    with AtomicFile(path) as file:
        file.write("through the pipe")
    reader.join(timeout=10)
    assert received == ["through the pipe"]
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert names_in(tmp_path) == ["pipe"]


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_full_disk_is_an_input_error_not_a_crash(size: int) -> None:
    with (
        pytest.raises(InputError, match="can't be written: No space left on device"),
        AtomicFile(Path("/dev/full")) as file,
    ):
        file.write("x" * size)


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path: Path) -> None:
    """``/dev/stdout`` is a link, to a regular file when stdout is redirected: replacing it would break /dev."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "real").write_text("old", encoding="utf-8")
    (tmp_path / "link").symlink_to(elsewhere / "real")
    with AtomicFile(tmp_path / "link") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (elsewhere / "real").read_text(encoding="utf-8") == "new"
    assert names_in(elsewhere) == ["real"]


def test_a_file_keeps_its_mode_when_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)
    with AtomicFile(path) as file:
        file.write("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
