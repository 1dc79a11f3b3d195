"""Rows of the recovery world, as drawn for its known tasks (vectors.md 2)."""

from core.environments.recovery_database import CATEGORIES, STATES, build_database
from core.environments.recovery_templates import TEMPLATES
from core.environments.sqlite_guard import run_query


def test_entities_take_their_names_in_turn():
    tables = build_database(TEMPLATES[1], 8128024482)
    # The seed leaves 2 of 8; each entity moves on by 3: 5, 0, 3, 6, ...
    assert [row[1] for row in tables["members"].rows] == [
        "Fir-1", "Aster-2", "Dahlia-3", "Grove-4", "Birch-5", "Elm-6", "Hazel-7", "Cedar-8"
    ]  # fmt: skip
    assert tables["members"].rows[0] == (1, "Fir-1", "green", "note-784")
    assert tables["bookings"].rows[:2] == [
        (1, 8, 300, "closed", "code-63"),
        (2, 1, 666, "closed", "code-92"),
    ]


def test_a_linked_schema_holds_its_keys_in_the_link_table():
    tables = build_database(TEMPLATES[2], 8128024580)
    assert list(tables) == ["accounts", "transactions", "account_transaction_links"]
    assert tables["transactions"].rows[0] == (1, 117, "pending", "code-73")
    assert tables["account_transaction_links"].rows[:3] == [(1, 2), (2, 6), (3, 4)]


def test_every_database_has_eight_entities_and_24_events_in_bounds():
    for template in TEMPLATES:
        tables = build_database(template, 5)
        entities, events = tables[template.entity_table].rows, tables[template.event_table].rows
        assert (len(entities), len(events)) == (8, 24)
        assert {row[2] for row in entities} <= set(CATEGORIES)
        assert {row[-2] for row in events} <= set(STATES)
        assert all(15 <= row[-3] <= 699 for row in events)
        joined = run_query(tables, f"SELECT count(*) AS n {template.joined}")
        assert joined == [{"n": 24}]
