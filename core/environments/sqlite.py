"""Questions about customers and their orders, answered by SQL on real SQLite."""

from collections.abc import Mapping
from random import Random
from typing import Any

from core.environments.answers import normalize_value
from core.environments.base import (
    Difficulty,
    FailureCategory,
    OracleAction,
    OracleFinal,
    Split,
    Task,
    ToolCall,
)
from core.environments.registry import register
from core.environments.sqlite_guard import Table, render_rows, run_query
from core.environments.tool_world import Tool, ToolWorld
from core.environments.tools import format_number
from core.errors import InvalidToolCallError

NAMES = ("Ada", "Bo", "Cyd", "Dov", "Eli", "Fay", "Gus", "Hal", "Ida", "Jem", "Kit", "Lou")
CITIES = ("Lyon", "Osaka", "Porto", "Quito", "Riga", "Split")
STATES = ("shipped", "pending", "cancelled")

CUSTOMERS = "id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL"
ORDERS = (
    "id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, amount INTEGER NOT NULL, "
    "status TEXT NOT NULL"
)

_JOINED = "FROM orders o JOIN customers c ON c.id = o.customer_id"
_BY_CITY = (
    f"SELECT c.city AS city, total(o.amount) AS total {_JOINED} "
    "GROUP BY c.city ORDER BY total DESC, c.city ASC LIMIT 1"
)


def build_tables(db_seed: int) -> dict[str, Table]:
    """Return the two tables of a task; the order of draws is part of a task's identity."""
    rng = Random(f"sqlite:{db_seed}")
    customers = [
        (number, f"{NAMES[(db_seed + 5 * (number - 1)) % len(NAMES)]}{number}", rng.choice(CITIES))
        for number in range(1, rng.randrange(4, 8) + 1)
    ]
    orders = [
        (number, rng.randrange(len(customers)) + 1, rng.randrange(10, 500), rng.choice(STATES))
        for number in range(1, rng.randrange(8, 17) + 1)
    ]
    return {"customers": Table(CUSTOMERS, customers), "orders": Table(ORDERS, orders)}


@register
class SqliteQuestions(ToolWorld):
    """Tasks: count by status (easy), total of one customer (medium), city with most (hard).

    Args:
        params: See ``Environment``.
    """

    name = "sqlite"
    state_prefix = "sql"

    _tables: Mapping[str, Table]

    def generate_task(self, index: int, *, seed: int, difficulty: Difficulty, split: Split) -> Task:
        """Return task ``index`` of ``seed`` and ``difficulty``; the split only names it."""
        db_seed = seed * 6151 + index
        tables = build_tables(db_seed)
        rng = Random(f"sqlite-task:{seed}:{difficulty}:{index}")
        kind, question, sql = _draw(rng, difficulty, tables)
        facts = {"kind": kind, "db_seed": db_seed, "reference_sql": sql}
        value = next(iter(run_query(tables, sql)[0].values()))
        answer = value if isinstance(value, str) else format_number(value)
        prompt = f"Database {db_seed}: {question}"
        return Task(f"sql-{split}-{index}", prompt, answer, difficulty, split, facts)

    def tool_specs(self) -> list[dict[str, Any]]:
        """Return the specs of ``schema`` and ``query``."""
        return [QUERY_SPEC, SCHEMA_SPEC]

    def tools(self) -> Mapping[str, Tool]:
        """Return both tools."""
        return {"query": self._query, "schema": self._schema}

    def begin(self, task: Task) -> None:
        """Build the task's tables."""
        self._tables = build_tables(task.metadata["db_seed"])

    def _schema(self, arguments: Mapping[str, Any]) -> str:
        del arguments
        return render_schema(self._tables)

    def _query(self, arguments: Mapping[str, Any]) -> str:
        return render_rows(run_query(self._tables, sql_argument(arguments)))

    def judge(self, task: Task, answer: str) -> tuple[FailureCategory, str]:
        """Compare numbers to four decimals, commas left out, and texts in any case."""
        return judge_value(task.answer, answer)

    def oracle_actions(self, task: Task) -> list[OracleAction]:
        """Return schema, the reference query and the answer."""
        query = ToolCall("query", {"sql": task.metadata["reference_sql"]})
        return [ToolCall("schema", {}), query, OracleFinal(task.answer)]

    def privileged_context(self, task: Task) -> str:
        """Return the reference query and answer."""
        sql = task.metadata["reference_sql"]
        return f"This query answers it: {sql}. The right answer is {task.answer}."


def _draw(rng: Random, difficulty: Difficulty, tables: Mapping[str, Table]) -> tuple[str, str, str]:
    if difficulty == "easy":
        state = rng.choice(STATES)
        sql = f"SELECT count(*) AS n FROM orders WHERE status = '{state}'"
        return "count", f"how many orders are {state}?", sql
    if difficulty == "medium":
        name = rng.choice(tables["customers"].rows)[1]
        sql = f"SELECT total(o.amount) AS total {_JOINED} WHERE c.name = '{name}'"
        return "join_sum", f"what is the total amount of the orders of {name}?", sql
    question = "which city has the highest total amount? Of equals, the alphabetically first."
    return "group_by", question, _BY_CITY


def render_schema(tables: Mapping[str, Table]) -> str:
    """Return one line per table: its name and its columns."""
    return "\n".join(f"{name}({table.columns})" for name, table in tables.items())


def sql_argument(arguments: Mapping[str, Any]) -> str:
    """Return the query of a call.

    Raises:
        InvalidToolCallError: It is absent, empty or no string.
    """
    sql = arguments.get("sql")
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidToolCallError("'sql' must be a query", "Write one SELECT statement in quotes.")
    return sql


def judge_value(expected: str, answer: str) -> tuple[FailureCategory, str]:
    """Return the verdict on an answer that should be a database value, and the answer as read."""
    predicted = answer.strip().strip('"')
    value = normalize_value(answer)
    if value is None:
        return FailureCategory.MALFORMED_ANSWER, predicted
    right = value == normalize_value(expected)
    return FailureCategory.SOLVED if right else FailureCategory.WRONG_ANSWER, predicted


QUERY_SPEC: dict[str, Any] = {
    "name": "query",
    "description": "Runs one read-only SELECT statement; at most 20 rows are shown.",
    "parameters": {
        "type": "object",
        "properties": {
            "sql": {
                "type": "string",
                "description": "the statement",
                "examples": ["SELECT count(*) FROM orders"],
            }
        },
        "required": ["sql"],
    },
}

SCHEMA_SPEC: dict[str, Any] = {
    "name": "schema",
    "description": "Shows the tables and their columns.",
    "parameters": {"type": "object", "properties": {}, "required": []},
}
