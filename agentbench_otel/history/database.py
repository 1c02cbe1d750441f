"""Connections to the history's file, and SQLite's errors in words.

SQLite before 3.51.3 can damage a WAL file that two connections write or checkpoint at the same moment. So there
is one writer process (`HistoryLock`) with one connection, and readers open the file read-only: they can't
checkpoint. Nobody may open the file by other means in a process that writes it: closing it would drop the
POSIX locks of SQLite's own connection.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentbench_otel.errors import InputError
from agentbench_otel.history.schema import MIGRATIONS, format_of, migrate

_WRITER_BUSY_S = 0.25  # nobody else may write; who waits longer can't be ended in time
_READER_BUSY_S = 5.0  # a writer that opens, closes or recovers the file holds readers up for a moment
_WAL_SIZE_LIMIT_BYTES = 16 << 20

_WORDS = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_BUSY: "another program holds it locked; end that program",
    sqlite3.SQLITE_LOCKED: "another program holds it locked; end that program",
    sqlite3.SQLITE_READONLY: "it is read-only; make the file and its directory writable",
    sqlite3.SQLITE_PERM: "this user may not; make the file and its directory readable and writable",
    sqlite3.SQLITE_CANTOPEN: "it can't be opened; make the file and its directory readable and writable",
    sqlite3.SQLITE_IOERR: "reading or writing failed; check the disk and its free space",
    sqlite3.SQLITE_CORRUPT: "it is damaged; move it away with its -wal file, or restore a copy of it",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database; give another path",
}


def words(error: sqlite3.Error) -> str:
    """What is wrong, and what to do."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the upper bits are details
    return _WORDS.get(code, str(error))


def check_place(file: Path) -> None:
    """Raises:
    InputError: No file can be there.
    """
    if file.is_dir():
        raise InputError(f"{file}: is a directory; give the path of a file")
    parent = file.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{file}: its directory {parent} does not exist; create it, or give another path")


def open_for_writing(file: Path, *, is_check_needed: bool) -> sqlite3.Connection:
    """The writer's connection to a file of the newest format; it is made when it is not there.

    The caller holds the `HistoryLock`. ``is_check_needed``: look through the whole file first.

    Raises:
        InputError: The file can't be used.
    """
    with refusals(file, "can't be used"):
        connection = _connect(file, "rwc", busy_s=_WRITER_BUSY_S)
        with _closed_on_error(connection):
            if is_check_needed:
                _check(connection, file)
            format_of(connection, file)  # before anything of the file is changed
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect in a new file only
            (journal_mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if journal_mode != "wal":
                raise InputError(f"{file}: its file system can't hold a write-ahead log; use a local disk")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_SIZE_LIMIT_BYTES}")
            migrate(connection, file)
            with transaction(connection):
                pass  # a read-only file is refused now, not at the first run
            return connection


def open_for_reading(file: Path) -> sqlite3.Connection:
    """Raises:
    InputError: The file can't be used, or nothing was written yet.
    """
    check_place(file)
    if not file.exists():
        raise InputError(f"{file}: does not exist: no daemon has written its history here yet")
    with refusals(file, "can't be read"):
        connection = _connect(file, "ro", busy_s=_READER_BUSY_S)
        with _closed_on_error(connection):
            version = format_of(connection, file)
            if version == 0:
                raise InputError(f"{file}: is empty: no daemon has written its history here yet")
            if version < len(MIGRATIONS):
                raise InputError(
                    f"{file}: has format version {version}, and this agentbench-otel reads {len(MIGRATIONS)}; "
                    "the daemon upgrades the file when it starts"
                )
            return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. A deferred transaction could fail half-way, when it begins to write."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have rolled back already
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(file: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection that sees one state of the file, whatever is written meanwhile.

    Raises:
        InputError: The file can't be used; also of what the block asks of the connection.
    """
    connection = open_for_reading(file)
    with refusals(file, "can't be read"):
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()


def _connect(file: Path, mode: str, *, busy_s: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,  # opened where its errors can be raised, then used by one thread
    )


def _check(connection: sqlite3.Connection, file: Path) -> None:
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        damage = _WORDS[sqlite3.SQLITE_CORRUPT]
        raise InputError(f"{file}: can't be used: {damage} ({' '.join(answer.split())})")


@contextmanager
def refusals(file: Path, what: str) -> Iterator[None]:
    """SQLite's errors of the block become `InputError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise InputError(f"{file}: {what}: {words(error)}") from None


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise
