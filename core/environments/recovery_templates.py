"""Twelve database schemas of one shape under different names, four per split.

Entities have events, which point to them directly or through a table of links. A model that learns
one split's names has learnt nothing about another's.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
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


def _template(names: str) -> SchemaTemplate:
    split, entities, events, entity_id, label, category, entity_decoy, *rest = names.split()
    event_id, join_key, amount, state, event_decoy, *links = rest
    linked: dict[str, Any] = {}
    if links:
        event_key = f"{event_id.removesuffix('_id')}_ref"
        linked = {
            "link_table": links[0],
            "link_event_key": event_key,
            "link_entity_key": join_key,
        }
    return SchemaTemplate(
        template_id=f"{split}_{entities}_{events}",
        split=split,
        entity_table=entities,
        event_table=events,
        entity_id=entity_id,
        label_column=label,
        category_column=category,
        event_id=event_id,
        join_key=join_key,
        amount_column=amount,
        state_column=state,
        entity_decoy_column=entity_decoy,
        event_decoy_column=event_decoy,
        relationship_layout="association_table" if links else "direct_fk",
        **linked,
    )


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


TEMPLATES = tuple(map(_template, _NAMES.strip().replace("\n   ", "").splitlines()))

REGISTRY_DIGEST = _digest([asdict(template) for template in TEMPLATES])
"""Digest of all templates in order."""


def templates_of(split: str) -> tuple[SchemaTemplate, ...]:
    """Return the four templates of a split."""
    return tuple(template for template in TEMPLATES if template.split == split)
