"""The format of a history: made once, upgraded step by step, and never touched when it is not ours."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentbench_otel.errors import InputError
from agentbench_otel.history.schema import MIGRATIONS, format_of, migrate

FILE = Path("agentbench.db")
NEXT = (*MIGRATIONS, "ALTER TABLE runs ADD COLUMN note TEXT;\nUPDATE runs SET note = 'of old';")


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def insert_cycle(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO cycles (cycle_id, target, started_at, record) VALUES ('c', 't', 1.0, '{}')")


def tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_an_empty_file_has_format_0(connection: sqlite3.Connection) -> None:
    assert format_of(connection, FILE) == 0


def test_a_new_file_gets_all_tables_and_the_newest_format(connection: sqlite3.Connection) -> None:
    migrate(connection, FILE)
    assert {"runs", "run_spans", "cycles"} <= tables(connection)
    assert format_of(connection, FILE) == len(MIGRATIONS)


def test_a_file_of_this_format_is_left_as_it_is(connection: sqlite3.Connection) -> None:
    migrate(connection, FILE)
    insert_cycle(connection)
    migrate(connection, FILE)
    assert connection.execute("SELECT count(*) FROM cycles").fetchone() == (1,)


def test_a_file_of_an_older_format_is_upgraded_and_keeps_its_rows(connection: sqlite3.Connection) -> None:
    older, newer = "CREATE TABLE runs (run_id TEXT);", "ALTER TABLE runs ADD COLUMN note TEXT;"
    migrate(connection, FILE, (older,))
    connection.execute("INSERT INTO runs VALUES ('a')")
    migrate(connection, FILE, (older, newer))
    assert connection.execute("SELECT run_id, note FROM runs").fetchall() == [("a", None)]
    assert format_of(connection, FILE, newest=2) == 2


def test_a_step_that_fails_leaves_the_file_as_it_was(connection: sqlite3.Connection) -> None:
    migrate(connection, FILE)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, FILE, (*MIGRATIONS, "CREATE TABLE half (a); CREATE TABLE runs (b);"))
    connection.execute("ROLLBACK")
    assert "half" not in tables(connection)
    assert format_of(connection, FILE) == len(MIGRATIONS)


def test_a_newer_format_is_refused_with_both_versions(connection: sqlite3.Connection) -> None:
    migrate(connection, FILE, NEXT)
    with pytest.raises(
        InputError, match=rf"agentbench\.db: has format version {len(NEXT)}, .* up to 1; use the newer"
    ):
        migrate(connection, FILE)


def test_the_database_of_another_program_is_refused(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE bookmarks (url)")
    with pytest.raises(InputError, match="of another program"):
        migrate(connection, FILE)
    assert tables(connection) == {"bookmarks"}


def test_another_program_that_counts_its_formats_too_is_refused(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE bookmarks (url)")
    connection.execute("PRAGMA user_version = 1")
    with pytest.raises(InputError, match="of another program"):
        migrate(connection, FILE)
