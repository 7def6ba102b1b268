from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import TopicId
from penstock_core.push.subscription import OrphanedStates, SubscriptionNote, note_of
from penstock_core.storage.push.subscription_item import (
    note_item,
    note_update,
    orphans_item,
    parse_note,
    parse_orphans,
)
from tests.core.push.push_samples import FULL, ID

TOPIC = TopicId("00ff")


@given(st.from_type(SubscriptionNote))
def test_note_is_read_back(note: SubscriptionNote) -> None:
    assert parse_note(note_item(TOPIC, note)) == note


@given(st.from_type(OrphanedStates))
def test_orphans_are_read_back(orphans: OrphanedStates) -> None:
    assert parse_orphans(orphans_item(orphans)) == orphans


def test_items_are_what_is_stored_today() -> None:
    assert note_item(TOPIC, note_of(FULL)) == {
        "pk": {"S": "#subscriptions#00ff"},
        "sk": {"S": "packing"},
        "subscription_id": {"S": "ab" * 10},
        "version": {"N": "3"},
        "concurrency": {"N": "20"},
        "is_paused": {"BOOL": True},
    }
    assert orphans_item(OrphanedStates(subscription_id=ID, name=FULL.name, since_ms=9)) == {
        "pk": {"S": "#orphaned_states"},
        "sk": {"S": "ab" * 10},
        "name": {"S": "packing"},
        "since_ms": {"N": "9"},
    }


def test_note_is_rewritten_for_the_same_subscription_only() -> None:
    update = note_update(TOPIC, note_of(FULL))
    assert update.condition == "attribute_not_exists(pk) OR subscription_id = :seen_id"
    assert update.values[":seen_id"] == {"S": ID}
