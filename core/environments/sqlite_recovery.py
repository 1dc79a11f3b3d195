"""SQL questions in which a query fails first, by the experiment's hand or by an outdated note."""

from collections.abc import Mapping
from random import Random
from typing import Any, Literal, get_args

from core.environments.base import (
    Difficulty,
    FailureCategory,
    OracleAction,
    OracleFinal,
    Split,
    Task,
    ToolCall,
)
from core.environments.recovery_database import CATEGORIES, STATES, build_database
from core.environments.recovery_templates import (
    REGISTRY_DIGEST,
    SchemaTemplate,
    mixed_template,
    templates_of,
)
from core.environments.registry import register
from core.environments.sqlite import (
    QUERY_SPEC,
    SCHEMA_SPEC,
    judge_value,
    render_schema,
    sql_argument,
)
from core.environments.sqlite_guard import Table, render_rows, run_query
from core.environments.tool_world import CodedRefusalError, Tool, ToolWorld
from core.errors import InputError, InvalidToolCallError, ToolEnvironmentError

Schemas = Literal["apart", "mixed"]
"""Where the names of a database's tables and columns come from."""
TASK_KINDS = ("filter_count", "lookup_join_sum", "group_rank", "multi_filter")
INTERVENTIONS = {
    "controlled_schema_refresh": "schema-query_error-schema-corrected_query-final",
    "natural_sql_error": "query_error-schema-corrected_query-final",
    "none": "schema-query-final",
}
"""What goes wrong, and the sequence of actions that solves it."""

_HIDDEN = ("db_seed", "reference_sql", "natural_error_sql")


@register
class SqliteRecovery(ToolWorld):
    """Tasks: four kinds of questions in turn, with three kinds of trouble in turn.

    ``controlled_schema_refresh``: the first valid query is answered by an error that asks for
    another look at the schema. ``natural_sql_error``: the prompt quotes an outdated query that
    fails. ``none``: nothing goes wrong by design.

    Args:
        schemas: ``apart``: a split has four schemas of its own, which share no name with others.
            ``mixed``: a database has a schema of its own, of names that all splits share.
        settings: See ``Environment``.

    Raises:
        InputError: A parameter has none of its values.
    """

    name = "sqlite_recovery"
    state_prefix = "recovery"
    unknown_tool_code = "UNKNOWN_TOOL"
    judges_policy = True

    _tables: Mapping[str, Table]
    _pending_refresh = False

    def __init__(self, schemas: Schemas = "apart", **settings: Any) -> None:
        super().__init__(**settings)
        if schemas not in get_args(Schemas):
            choices = " or ".join(get_args(Schemas))
            raise InputError(f"schemas is {schemas!r}", f"Choose {choices}.")
        self.schemas: Schemas = schemas

    def generate_task(self, index: int, *, seed: int, difficulty: Difficulty, split: Split) -> Task:
        """Return task ``index``; the split or the database's number decides on the schema."""
        place = index % 4
        database_seed = seed * 1_000_003 + index * 97 + place
        template = self._template(split, place, database_seed)
        tables = build_database(template, database_seed)
        rng = Random(f"recovery-task:{template.digest}:{seed}:{difficulty}:{index}")
        trouble = tuple(INTERVENTIONS)[index % 3]
        stale = f"SELECT stale_missing_column FROM {template.event_table}"
        question, sql = _draw(rng, TASK_KINDS[place], template, tables)
        note = f" An old note says: {stale}" if trouble == "natural_sql_error" else ""
        answer = str(run_query(tables, sql)[0]["answer"])
        facts = {
            "template_id": template.template_id,
            "template_version": template.version,
            "template_digest": template.digest,
            "template_registry_digest": REGISTRY_DIGEST,
            "database_seed": database_seed,
            "db_seed": database_seed,
            "task_kind": TASK_KINDS[place],
            "intervention_kind": trouble,
            "expected_tool_sequence_class": INTERVENTIONS[trouble],
            "reference_sql": sql,
            "natural_error_sql": stale,
        }
        prompt = f"Database {database_seed}: {question}{note}"
        return Task(f"sql-recovery-{split}-{index}", prompt, answer, difficulty, split, facts)

    def _template(self, split: str, place: int, database_seed: int) -> SchemaTemplate:
        if self.schemas == "mixed":
            return mixed_template(database_seed)
        return templates_of(split)[place]

    def tool_specs(self) -> list[dict[str, Any]]:
        """Return the specs of ``schema`` and ``query``."""
        return [QUERY_SPEC, SCHEMA_SPEC]

    def tools(self) -> Mapping[str, Tool]:
        """Return both tools."""
        return {"query": self._query, "schema": self._schema}

    def begin(self, task: Task) -> None:
        """Build the task's database and arm its intervention."""
        facts = task.metadata
        place = TASK_KINDS.index(facts["task_kind"])
        template = self._template(task.split, place, facts["database_seed"])
        self._tables = build_database(template, facts["database_seed"])
        self._pending_refresh = facts["intervention_kind"] == "controlled_schema_refresh"

    def _schema(self, arguments: Mapping[str, Any]) -> str:
        del arguments
        return render_schema(self._tables)

    def _query(self, arguments: Mapping[str, Any]) -> str:
        try:
            result = render_rows(run_query(self._tables, sql_argument(arguments)))
        except InvalidToolCallError as error:
            raise CodedRefusalError(
                error.message,
                error.hint,
                "INVALID_SQL_CALL",
                category=FailureCategory.INVALID_TOOL_CALL,
            ) from error
        except ToolEnvironmentError as error:
            raise CodedRefusalError(
                error.message,
                error.hint,
                "SQL_EXECUTION_ERROR",
                retryable=True,
                metadata={"source": "sqlite"},
            ) from error
        if self._pending_refresh:
            self._refuse_once()
        return result

    def _refuse_once(self) -> None:
        self._pending_refresh = False
        raise CodedRefusalError(
            "the schema has changed",
            "Look at it again and repeat the query.",
            "SCHEMA_REFRESH_REQUIRED",
            retryable=True,
            intervention=True,
            metadata={"intervention_kind": "controlled_schema_refresh", "occurrence": 1},
        )

    def judge(self, task: Task, answer: str) -> tuple[FailureCategory, str]:
        """Compare numbers to four decimals, commas left out, and texts in any case."""
        return judge_value(task.answer, answer)

    def oracle_actions(self, task: Task) -> list[OracleAction]:
        """Return the sequence that the intervention calls for."""
        schema = ToolCall("schema", {})
        query = ToolCall("query", {"sql": task.metadata["reference_sql"]})
        stale = ToolCall("query", {"sql": task.metadata["natural_error_sql"]})
        before: dict[str, list[OracleAction]] = {
            "controlled_schema_refresh": [schema, query],
            "natural_sql_error": [stale],
            "none": [],
        }
        trouble = task.metadata["intervention_kind"]
        return [*before[trouble], schema, query, OracleFinal(task.answer)]

    def privileged_context(self, task: Task) -> str:
        """Return the reference query, the answer and the sequence of actions."""
        facts = task.metadata
        return (
            f"This query answers it: {facts['reference_sql']}. The right answer is {task.answer}. "
            f"Proceed by {facts['expected_tool_sequence_class']}."
        )

    def trajectory_metadata(self, task: Task) -> dict[str, Any]:
        """Return the task's facts without the queries that give it away, and the gate's verdict.

        What an episode can teach about recovering is in those where something goes wrong.
        """
        facts = {key: value for key, value in task.metadata.items() if key not in _HIDDEN}
        goes_wrong = task.metadata["intervention_kind"] != "none"
        return {**facts, "policy_sensitive": goes_wrong, "policy_gate_qualified": goes_wrong}


def _draw(
    rng: Random, kind: str, template: SchemaTemplate, tables: Mapping[str, Table]
) -> tuple[str, str]:
    # Questions name no column, so that the schema must be looked at.
    events, state_column = template.event_table, template.state_column
    group = template.category_column.replace("_", " ")
    if kind == "filter_count":
        state = rng.choice(STATES)
        sql = f"SELECT count(*) AS answer FROM {events} WHERE {state_column} = '{state}'"
        return f"how many {events} are {state}?", sql
    if kind == "lookup_join_sum":
        label = rng.choice(tables[template.entity_table].rows)[1]
        question = f"what is the total value of the {events} of {label}?"
        return question, (
            f"SELECT total(e.{template.amount_column}) AS answer {template.joined} "
            f"WHERE p.{template.label_column} = '{label}'"
        )
    if kind == "multi_filter":
        category, state = rng.choice(CATEGORIES), rng.choice(STATES)
        question = f"how many {events} of the {group} {category} are {state}?"
        return question, (
            f"SELECT count(*) AS answer {template.joined} WHERE p.{template.category_column} = "
            f"'{category}' AND e.{state_column} = '{state}'"
        )
    category = f"p.{template.category_column}"
    question = (
        f"which {group} has the {events} of the highest total value? "
        "Of equals, the alphabetically first."
    )
    return question, (
        f"SELECT {category} AS answer, total(e.{template.amount_column}) AS total_value "
        f"{template.joined} GROUP BY {category} ORDER BY total_value DESC, answer ASC LIMIT 1"
    )
