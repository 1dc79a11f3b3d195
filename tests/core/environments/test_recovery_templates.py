"""Golden rows: vectors.md 2 (template registry)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.recovery_templates import (
    REGISTRY_DIGEST,
    TEMPLATES,
    all_names,
    mixed_template,
    templates_of,
)

DIGESTS = dict(
    line.split()
    for line in """
train_customers_orders 91fd2da16cab2ba02ff40aa28a46a1073d81d33fc16a4c239b81b1110d1b523e
train_members_bookings ca901f1e7909284b3dc8350f5006ca6cf271da369ef8c2fe38b14d9c501a00a2
train_accounts_transactions ecc5aa86385ee8cabc6309a1296d150e27f392cc851349aa41b944f5e192fcbf
train_vendors_invoices 7d9eb46d0a253a3416d7ab06df8670fd85773a61420359af736252e3abce77c6
eval_users_subscriptions 43a98c3d248dfbd6a769ecfbc529f38b7f661a98977de06f25be8b966211b4e2
eval_patients_appointments 027d4a4dfc4ce3ace0373c46cf5da7b4d90c004f6152fd91783bd0676a5d8fb1
eval_teams_matches c9b3e558a9335970f88bbe3cc3540349c008e1ddbf44cb05e081e6dd4904cb36
eval_creators_royalties 76f22fd2ab50c1a90c1fbb12c82dd2fc03920bf716e97700ce6542dfbec678a6
test_readers_loans 11a77e0c877a7e4ad50cbfa14706370b89ed088720a272c9fd47e3bc7874ff9a
test_hosts_reservations 59f7031200e3b33586f3a1e2e7e6e7ffa0e5c2eeb58f9c609221afccf07c3b6d
test_merchants_payments 9dcbbe260623b22d8020934e443baeb7d4ef4e4008f914dd25bae68a206b41e8
""".strip().splitlines()
)

LINKED = {
    "train_accounts_transactions",
    "eval_patients_appointments",
    "test_hosts_reservations",
    "test_projects_expenses",
}


def test_the_registry_is_the_known_one():
    assert len(TEMPLATES) == 12
    assert REGISTRY_DIGEST == "396c49c14641f8a282706e635f164ac72aa6f42d5c5b0fe2abd0c8f667168242"


@pytest.mark.parametrize("template_id", DIGESTS)
def test_templates_are_the_known_ones(template_id):
    named = {template.template_id: template for template in TEMPLATES}
    assert named[template_id].digest == DIGESTS[template_id]


def test_some_schemas_link_through_a_table():
    linked = {t.template_id for t in TEMPLATES if t.relationship_layout == "association_table"}
    assert linked == LINKED == {t.template_id for t in TEMPLATES if t.link_table}


def test_splits_share_no_table():
    tables = {
        split: {name for t in templates_of(split) for name in (t.entity_table, t.event_table)}
        for split in ("train", "eval", "test")
    }
    assert [len(names) for names in tables.values()] == [8, 8, 8]
    assert len(set().union(*tables.values())) == 24


def test_events_are_joined_to_their_entities_directly_or_through_links():
    direct, linked = templates_of("train")[0], templates_of("train")[2]
    assert direct.joined == "FROM orders e JOIN customers p ON p.customer_id = e.buyer_ref"
    assert linked.joined == (
        "FROM transactions e JOIN account_transaction_links l ON l.transaction_ref = "
        "e.transaction_id JOIN accounts p ON p.account_id = l.account_ref"
    )


def test_a_mixed_schema_is_the_known_one():
    mixed = mixed_template(300000900)
    assert (mixed.template_id, mixed.split) == ("mixed_teams_matches", "mixed")
    assert mixed.joined == (
        "FROM matches e JOIN host_reservation_links l ON l.match_ref = e.match_id "
        "JOIN teams p ON p.team_id = l.account_ref"
    )
    columns = (mixed.label_column, mixed.category_column, mixed.amount_column, mixed.state_column)
    assert columns == ("patient_alias", "genre_group", "order_total", "match_state")
    assert mixed_template(5).relationship_layout == "association_table"
    assert mixed_template(6).joined == (
        "FROM invoices e JOIN creators p ON p.creator_id = e.team_ref"
    )


def test_there_are_148_names():
    assert len(all_names()) == 148
    assert {"customers", "subscription_id", "royalty_ref", "project_expense_map"} <= {*all_names()}


ROLES = [
    name
    for name in vars(TEMPLATES[0])
    if name.endswith(("_table", "_column", "_id", "_key"))
    and name not in ("template_id", "link_event_key", "link_entity_key")
]


@given(st.integers(0, 2**63))
def test_a_mixed_schema_has_names_of_the_registry_in_their_own_roles(database_seed):
    mixed = mixed_template(database_seed)
    assert mixed == mixed_template(database_seed)
    for role in ROLES:
        assert getattr(mixed, role) in {getattr(template, role) for template in TEMPLATES}
    keys = {(t.entity_table, t.entity_id) for t in TEMPLATES}
    assert (mixed.entity_table, mixed.entity_id) in keys
    names = [getattr(mixed, role) for role in ROLES if getattr(mixed, role) is not None]
    assert len(set(names)) == len(names)
    linked = (mixed.link_event_key, mixed.link_entity_key)
    assert {*names, *filter(None, linked)} <= {*all_names()}
    assert (mixed.link_table is None) == (linked == (None, None))
