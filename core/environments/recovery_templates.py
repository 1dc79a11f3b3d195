"""Twelve database schemas of one shape under different names, four per split.

Entities have events, which point to them directly or through a table of links. A model that learns
one split's names has learnt nothing about another's. A mixed schema has names of many of them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any


@dataclass(frozen=True)
class SchemaTemplate:
    """Names of one schema. Fields and values are its identity (``digest``)."""

    template_id: str
    split: str
    entity_table: str
    event_table: str
    entity_id: str
    label_column: str
    category_column: str
    event_id: str
    join_key: str
    amount_column: str
    state_column: str
    entity_decoy_column: str
    event_decoy_column: str
    relationship_layout: str
    link_table: str | None = None
    link_event_key: str | None = None
    link_entity_key: str | None = None
    version: int = 1

    @property
    def digest(self) -> str:
        """SHA-256 over the fields as canonical JSON."""
        return _digest(asdict(self))

    @property
    def joined(self) -> str:
        """FROM clause that pairs each event ``e`` with its entity ``p``."""
        entity = f"JOIN {self.entity_table} p ON p.{self.entity_id} ="
        if self.link_table is None:
            return f"FROM {self.event_table} e {entity} e.{self.join_key}"
        link = f"JOIN {self.link_table} l ON l.{self.link_event_key} = e.{self.event_id}"
        return f"FROM {self.event_table} e {link} {entity} l.{self.link_entity_key}"


_ROW = (
    "entity_table",
    "event_table",
    "entity_id",
    "label_column",
    "category_column",
    "entity_decoy_column",
    "event_id",
    "join_key",
    "amount_column",
    "state_column",
    "event_decoy_column",
)
_TOGETHER = (
    ("entity_table", "entity_id"),
    ("event_table", "event_id"),
    *((field,) for field in _ROW if not field.endswith(("_table", "_id"))),
)

# split, entities, events, id, label, category, decoy; id, key, amount, state, decoy; links.
_NAMES = """
train customers orders customer_id customer_name region segment_note
    order_id buyer_ref order_total order_state priority_code
train members bookings member_id display_name chapter signup_channel
    booking_id member_ref fee_amount booking_status seat_zone
train accounts transactions account_id account_label portfolio risk_band
    transaction_id account_ref net_amount transaction_state batch_code account_transaction_links
train vendors invoices vendor_id vendor_name market tier_note
    invoice_id vendor_ref invoice_value invoice_status ledger_code
eval users subscriptions user_id user_alias cohort locale_note
    subscription_id subscriber_ref monthly_value subscription_state plan_code
eval patients appointments patient_id patient_alias clinic_group intake_note
    appointment_id patient_ref visit_cost appointment_state room_code patient_appointment_map
eval teams matches team_id team_name division seed_note
    match_id team_ref score_value match_state venue_code
eval creators royalties creator_id creator_name genre_group catalog_note
    royalty_id creator_ref royalty_amount royalty_state territory_code
test readers loans reader_id reader_name library_zone membership_note
    loan_id reader_ref late_fee loan_state shelf_code
test hosts reservations host_id host_alias area_group license_note
    reservation_id host_ref booking_value reservation_state unit_code host_reservation_links
test merchants payments merchant_id merchant_name sector channel_note
    payment_id merchant_ref payment_amount payment_state terminal_code
test projects expenses project_id project_name program owner_note
    expense_id project_ref expense_amount expense_state cost_code project_expense_map
"""


def _template(row: str) -> SchemaTemplate:
    split, *names = row.split()
    links = names[len(_ROW) :]
    return _schema(split, dict(zip(_ROW, names, strict=False)), links[0] if links else None)


def _schema(split: str, names: Mapping[str, str], links: str | None) -> SchemaTemplate:
    linked: dict[str, Any] = {}
    if links is not None:
        linked = {
            "link_table": links,
            "link_event_key": _event_key(names["event_id"]),
            "link_entity_key": names["join_key"],
        }
    return SchemaTemplate(
        template_id=f"{split}_{names['entity_table']}_{names['event_table']}",
        split=split,
        relationship_layout="direct_fk" if links is None else "association_table",
        **names,
        **linked,
    )


def _event_key(event_id: str) -> str:
    return f"{event_id.removesuffix('_id')}_ref"


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


TEMPLATES = tuple(map(_template, _NAMES.strip().replace("\n   ", "").splitlines()))

REGISTRY_DIGEST = _digest([asdict(template) for template in TEMPLATES])
"""Digest of all templates in order."""


def templates_of(split: str) -> tuple[SchemaTemplate, ...]:
    """Return the four templates of a split."""
    return tuple(template for template in TEMPLATES if template.split == split)


def all_names() -> tuple[str, ...]:
    """Return every name of a table or a column that a schema of any kind can have, sorted."""
    names = {getattr(template, field) for template in TEMPLATES for field in _ROW}
    names |= {template.link_table for template in TEMPLATES if template.link_table is not None}
    return tuple(sorted(names | {_event_key(template.event_id) for template in TEMPLATES}))


def mixed_template(database_seed: int) -> SchemaTemplate:
    """Return a schema whose names come from many of the twelve templates.

    Each table and its key, and every other column, are those of a template drawn for them alone;
    so is the table of links, which four in twelve have. To know the names by heart does not tell
    which of them a database has.

    Args:
        database_seed: Number of the database; the order of draws is part of a task's identity.
    """
    rng = Random(f"recovery-schema:{REGISTRY_DIGEST}:{database_seed}")
    names: dict[str, str] = {}
    for fields in _TOGETHER:
        template = rng.choice(TEMPLATES)
        names |= {field: getattr(template, field) for field in fields}
    return _schema("mixed", names, rng.choice(TEMPLATES).link_table)
