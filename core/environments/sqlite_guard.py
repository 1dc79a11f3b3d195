"""Queries that cannot write, hang, grow or look beyond the tables that they are given.

The statement runs on real SQLite, on a database in memory that is built for this one call and
closed after it. An authorizer admits reading of the named tables and a few functions; a progress
handler ends the statement after 200 000 steps of SQLite's virtual machine; limits bound its text,
its values and its rows. What must not happen is thus refused by SQLite itself, not by reading SQL.
"""

import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from core.errors import ToolEnvironmentError

MAX_QUERY_CHARACTERS = 400
MAX_ROWS = 20
MAX_STEPS = 200_000
STEPS_PER_CHECK = 1000
MAX_VALUE_BYTES = 2000
MAX_COLUMNS = 100
MAX_PROGRAM_STEPS = 25_000
MAX_RESULT_CHARACTERS = 8000

FUNCTIONS = frozenset(
    {"count", "sum", "avg", "min", "max", "round", "abs", "lower", "upper", "length", "total"}
)

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_COLUMN: MAX_COLUMNS,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_VDBE_OP: MAX_PROGRAM_STEPS,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

MORE_ROWS = {"_note": f"only the first {MAX_ROWS} rows are shown"}
"""Stands for the rows that were left out."""

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A table: its ``CREATE TABLE`` column list and its rows."""

    columns: str
    rows: Sequence[Row]


def check_query(sql: str) -> None:
    """Refuse a text that is too long or no SELECT.

    Raises:
        ToolEnvironmentError: More than 400 characters, or it starts with neither SELECT nor WITH.
    """
    if len(sql) > MAX_QUERY_CHARACTERS:
        raise ToolEnvironmentError(
            f"the query has {len(sql)} characters", f"At most {MAX_QUERY_CHARACTERS} are read."
        )
    first = sql.split(maxsplit=1)[0].lower() if sql.strip() else ""
    if first.split("(")[0] not in ("select", "with"):
        raise ToolEnvironmentError("that is no query", "Write one SELECT statement.")


def run_query(tables: Mapping[str, Table], sql: str) -> list[dict[str, Any]]:
    """Return the rows of a query over ``tables`` as objects by column name.

    After 20 rows the rest is left out and ``MORE_ROWS`` says so.

    Raises:
        ToolEnvironmentError: The query is malformed, not permitted, too expensive or too large.
    """
    check_query(sql)
    with closing(_open(tables)) as connection:
        _restrict(connection, frozenset(tables))
        try:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(MAX_ROWS + 1)]
        # ValueError covers text that SQLite cannot take: lone surrogates, null characters.
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise ToolEnvironmentError(
                f"SQL error: {str(error).rstrip(chr(46))}", "Correct the query."
            ) from error
    kept = [{name: _plain(value) for name, value in row.items()} for row in rows[:MAX_ROWS]]
    return kept + [MORE_ROWS] * (len(rows) > MAX_ROWS)


def render_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as JSON.

    Raises:
        ToolEnvironmentError: The text would have more than 8000 characters.
    """
    text = json.dumps(rows, ensure_ascii=False)
    if len(text) > MAX_RESULT_CHARACTERS:
        raise ToolEnvironmentError("the result is too large", "Select fewer columns or rows.")
    return text


def _open(tables: Mapping[str, Table]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for name, table in tables.items():
        connection.execute(f"CREATE TABLE {name} ({table.columns})")
        if table.rows:
            marks = ", ".join("?" * len(table.rows[0]))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", table.rows)
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _restrict(connection: sqlite3.Connection, tables: frozenset[str]) -> None:
    for category, limit in _LIMITS.items():
        connection.setlimit(category, limit)
    connection.set_authorizer(_authorizer(tables))
    checks = iter(range(MAX_STEPS // STEPS_PER_CHECK - 1))
    connection.set_progress_handler(lambda: next(checks, None) is None, STEPS_PER_CHECK)


def _authorizer(tables: frozenset[str]) -> Callable[..., int]:
    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        permitted = (
            action == sqlite3.SQLITE_SELECT
            or (action == sqlite3.SQLITE_READ and (first or "").lower() in tables)
            or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS)
        )
        return sqlite3.SQLITE_OK if permitted else sqlite3.SQLITE_DENY

    return authorize


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    # JSON has no infinity; SQLite has no NaN.
    return str(value) if isinstance(value, float) and math.isinf(value) else value
