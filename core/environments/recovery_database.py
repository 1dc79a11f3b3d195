"""Rows of a recovery database: eight entities and 24 events under a template's names."""

from random import Random

from core.environments.recovery_templates import SchemaTemplate
from core.environments.sqlite_guard import Row, Table

LABELS = ("Aster", "Birch", "Cedar", "Dahlia", "Elm", "Fir", "Grove", "Hazel")
CATEGORIES = ("amber", "blue", "coral", "green")
STATES = ("active", "pending", "closed")


def build_database(template: SchemaTemplate, database_seed: int) -> dict[str, Table]:
    """Return the tables of a database; the order of draws is part of a task's identity."""
    rng = Random(f"recovery-db:{template.digest}:{database_seed}")
    entities = [_entity(rng, database_seed, number) for number in range(1, 9)]
    events = [_event(rng, number) for number in range(1, 25)]
    columns = _columns(template)
    if template.link_table is None:
        rows = [entities, events]
    else:
        own = [(event[0], *event[2:]) for event in events]
        rows = [entities, own, [event[:2] for event in events]]
    return {
        name: Table(text, table) for (name, text), table in zip(columns.items(), rows, strict=True)
    }


def _entity(rng: Random, database_seed: int, number: int) -> Row:
    label = f"{LABELS[(database_seed + 3 * number) % len(LABELS)]}-{number}"
    return number, label, rng.choice(CATEGORIES), f"note-{rng.randrange(100, 999)}"


def _event(rng: Random, number: int) -> Row:
    entity, amount = rng.randrange(8) + 1, rng.randrange(15, 700)
    return number, entity, amount, rng.choice(STATES), f"code-{rng.randrange(10, 99)}"


def _columns(template: SchemaTemplate) -> dict[str, str]:
    direct = template.link_table is None
    key = f"{template.join_key} INTEGER NOT NULL, " if direct else ""
    columns = {
        template.entity_table: f"{template.entity_id} INTEGER PRIMARY KEY, "
        f"{template.label_column} TEXT NOT NULL, {template.category_column} TEXT NOT NULL, "
        f"{template.entity_decoy_column} TEXT NOT NULL",
        template.event_table: f"{template.event_id} INTEGER PRIMARY KEY, {key}"
        f"{template.amount_column} INTEGER NOT NULL, {template.state_column} TEXT NOT NULL, "
        f"{template.event_decoy_column} TEXT NOT NULL",
    }
    if template.link_table is not None:
        columns[template.link_table] = (
            f"{template.link_event_key} INTEGER NOT NULL, "
            f"{template.link_entity_key} INTEGER NOT NULL"
        )
    return columns
