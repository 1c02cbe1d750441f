"""The tables of the history, and how a file of an older format becomes one of this format."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from agentbench_otel.errors import InputError

APPLICATION_ID = 0x41424F54
"""``ABOT``: what tells the file from the database of another program."""

_VERSION_1 = """
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of writing: a clock may be set back, this is not
    run_id TEXT NOT NULL UNIQUE,
    cycle_id TEXT NOT NULL,
    target TEXT NOT NULL,
    case_id TEXT NOT NULL,
    mode TEXT NOT NULL,
    status TEXT NOT NULL,
    error_kind TEXT,
    is_warmup INTEGER NOT NULL,
    is_counted INTEGER NOT NULL,  -- neither a warm-up nor aborted
    started_at REAL NOT NULL,  -- Unix seconds
    visible_ttft_ms REAL,
    total_tokens INTEGER,  -- as in the result: NULL when a model call did not report its usage
    spent_tokens INTEGER NOT NULL,  -- of the model calls that did
    result TEXT NOT NULL  -- the whole RunResult as JSON
);
CREATE INDEX runs_by_status ON runs (target, case_id, mode, status, seq, is_counted);
CREATE INDEX runs_by_series ON runs (target, case_id, mode, is_counted, seq, visible_ttft_ms);
CREATE INDEX runs_by_series_time ON runs (target, case_id, mode, is_counted, status, started_at);
CREATE INDEX runs_by_time ON runs (started_at, target, spent_tokens);

CREATE TABLE run_spans (
    seq INTEGER PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    started_at REAL NOT NULL,  -- of the run
    spans BLOB NOT NULL  -- OTLP JSON lines, compressed with zlib
);
CREATE INDEX run_spans_by_time ON run_spans (started_at);

CREATE TABLE cycles (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    cycle_id TEXT NOT NULL,
    target TEXT NOT NULL,
    started_at REAL NOT NULL,  -- Unix seconds
    record TEXT NOT NULL,  -- the whole CycleRecord as JSON
    UNIQUE (cycle_id, target, started_at)
);
CREATE INDEX cycles_by_target ON cycles (target, seq);
CREATE INDEX cycles_by_time ON cycles (started_at);

-- Each target, case and mode that has runs, by one seek each: DISTINCT would read the index of every run.
CREATE VIEW series AS
    WITH RECURSIVE found (target, case_id, mode) AS (
        VALUES ('', '', '')
        UNION ALL
        SELECT runs.target, runs.case_id, runs.mode FROM found JOIN runs ON runs.seq = (
            SELECT seq FROM runs
            WHERE (target, case_id, mode) > (found.target, found.case_id, found.mode)
            ORDER BY target, case_id, mode LIMIT 1
        )
    )
    SELECT target, case_id, mode FROM found WHERE target <> '';

CREATE VIEW cycle_targets AS
    WITH RECURSIVE found (target) AS (
        VALUES ('')
        UNION ALL
        SELECT cycles.target FROM found JOIN cycles ON cycles.seq = (
            SELECT seq FROM cycles WHERE target > found.target ORDER BY target LIMIT 1
        )
    )
    SELECT target FROM found WHERE target <> '';
"""

MIGRATIONS: tuple[str, ...] = (_VERSION_1,)
"""The script at index n makes format n + 1 of format n. What was released is never changed, only added to."""


def format_of(connection: sqlite3.Connection, file: Path, *, newest: int = len(MIGRATIONS)) -> int:
    """The format version of a file; 0 is an empty one.

    Raises:
        InputError: Another program's database, or a format newer than ``newest``.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (table_count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    is_empty = (version, application_id, table_count) == (0, 0, 0)
    if not is_empty and application_id != APPLICATION_ID:
        raise InputError(f"{file}: is the database of another program; give another path")
    if version > newest:
        raise InputError(
            f"{file}: has format version {version}, and this agentbench-otel knows up to {newest}; "
            "use the newer agentbench-otel that wrote it, or give another path"
        )
    return int(version)


def migrate(connection: sqlite3.Connection, file: Path, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring a file to the newest format, one transaction per step: what is cut short goes on at the next start.

    Raises:
        InputError: As `format_of`.
    """
    version = format_of(connection, file, newest=len(migrations))
    for number, script in enumerate(migrations[version:], version + 1):
        marks = f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {number};"
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\n{marks}\nCOMMIT;")
