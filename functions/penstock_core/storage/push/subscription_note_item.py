"""The notes about a subscription: one for each of its topics, and one for states that have no subscription.

```
groups table   pk "#subscriptions#<topic id>"   sk subscription name
subscription_id   S
version           N     that of the subscription's item
concurrency       N     the number of its lanes
is_paused         BOOL

groups table   pk "#orphaned_states"   sk subscription id
name              S
since_ms          N
```
One query of a topic's key tells whom an append wakes. A transaction changes the notes with the subscription's item, so
they never differ from it.
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import SubscriptionId, SubscriptionName, TopicId
from penstock_core.push.subscription_note import OrphanedStates, SubscriptionNote
from penstock_core.storage.item import ConditionalUpdate, Item, number, rewriting
from penstock_core.storage.keys import ORPHANED_STATES, SUBSCRIPTIONS_OF


def notes_key(topic_id: TopicId) -> str:
    """The partition key of a topic's notes."""
    return f"{SUBSCRIPTIONS_OF}{topic_id}"


def note_key(topic_id: TopicId, name: SubscriptionName) -> Item:
    """The key of the note of one subscription."""
    return {"pk": {"S": notes_key(topic_id)}, "sk": {"S": name}}


def note_item(topic_id: TopicId, note: SubscriptionNote) -> Item:
    """The whole note."""
    return {
        **note_key(topic_id, note.name),
        "subscription_id": {"S": note.subscription_id},
        "version": number(note.version),
        "concurrency": number(note.concurrency),
        "is_paused": {"BOOL": note.is_paused},
    }


def parse_note(item: Mapping[str, Any]) -> SubscriptionNote:
    """The inverse of `note_item`."""
    check_item("subscription_note", item)
    return SubscriptionNote(
        name=SubscriptionName(item["sk"]["S"]),
        subscription_id=SubscriptionId(item["subscription_id"]["S"]),
        version=int(item["version"]["N"]),
        concurrency=int(item["concurrency"]["N"]),
        is_paused=bool(item["is_paused"]["BOOL"]),
    )


def note_update(topic_id: TopicId, note: SubscriptionNote) -> ConditionalUpdate:
    """Rewrites the note, or makes it. The condition holds always: a deletion takes the notes with the subscription."""
    return rewriting(
        note_item(topic_id, note),
        "attribute_not_exists(pk) OR subscription_id = :seen_id",
        {":seen_id": {"S": note.subscription_id}},
    )


def orphans_key(subscription_id: SubscriptionId) -> Item:
    """The key of the note of orphaned states."""
    return {"pk": {"S": ORPHANED_STATES}, "sk": {"S": subscription_id}}


def orphans_item(orphans: OrphanedStates) -> Item:
    """The whole note."""
    return {
        **orphans_key(orphans.subscription_id),
        "name": {"S": orphans.name},
        "since_ms": number(orphans.since_ms),
    }


def parse_orphans(item: Mapping[str, Any]) -> OrphanedStates:
    """The inverse of `orphans_item`."""
    check_item("orphaned_states", item)
    return OrphanedStates(
        subscription_id=SubscriptionId(item["sk"]["S"]),
        name=SubscriptionName(item["name"]["S"]),
        since_ms=int(item["since_ms"]["N"]),
    )
