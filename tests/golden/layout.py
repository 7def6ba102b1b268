"""The layout of stored items: the kind of each, and the types of its attributes."""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock_core.storage import keys
from penstock_core.storage.head_item import OWNER_PREFIX

_BY_SORT_KEY = {
    "page": "page",
    "producer": "producer",
    "compaction": "compaction",
    "retired": "retired",
    "sequences": "merged_sequences",
    "head": "head",
    "mirrored_offsets": "mirrored_offsets",
    "stage": "transaction_stage",
    "group": "group",
    "member": "member",
    "target": "target",
    "lease": "lease",
    "timer": "timer",
    "told": "told_timer",
    "switch": "timers_switch",
    "topic": "topic",
    "state": "share_state",
    "lane": "push_lane",
    "delivery": "push_delivery",
    "states": "zone_states",
    "rules": "acls",
    "mark": "acls_mark",
    "owners": "acls_owners",
    "catch_up": "catch_up",
}
_OF_LISTS = {
    keys.DELETED: "deleted_topic",
    keys.CURSORS: "cursor",
    keys.AUDIT: "audit_entry",
    keys.QUOTAS: "quota",
    keys.GROUPS: "registered_group",
    keys.SHARE_GROUPS: "share_group",
    keys.SUBSCRIPTIONS: "subscription",
    keys.SCHEDULES: "schedule",
    keys.ORPHANED_STATES: "orphaned_states",
}
_KEYED_BY_NAMES = (
    "producers",
    "zones",
    "topics",
    "bases",
    "locks",
    "waits",
)  # maps whose keys are ids or names, and no part of the format

Layout = dict[str, dict[str, list[str]]]


def kind_of(item: Mapping[str, Any]) -> str:
    """The kind of the item, as `formats.ITEM_FORMATS` names it."""
    pk, sk = item["pk"]["S"], item["sk"]["S"]
    if pk in _OF_LISTS:
        return _OF_LISTS[pk]
    if pk.startswith(keys.TRANSACTIONAL_PREFIX) and sk == keys.TRANSACTIONAL_PRODUCER:
        return "transactional_producer"
    if pk.startswith(f"{keys.BUCKET}#"):
        return "bucket"
    if pk.startswith(f"{keys.CLAIMS}#"):
        return "claim"
    if pk.startswith(f"{keys.TIMERS}#"):
        return "due_minute"
    if pk.startswith(keys.INLINE_PREFIX):
        return "inline"
    if pk.startswith(keys.EXPIRING_PREFIX):
        return "expiring"
    if pk.startswith(keys.SUBSCRIPTIONS_OF):
        return "subscription_note"
    if "marks_before" in item:
        return "merge_mark"
    return _BY_SORT_KEY[sk.partition("#")[0]]


def layout_of(items: Iterable[Mapping[str, Any]]) -> Layout:
    """By kind and attribute: its types, and `absent` where an item of the kind lacks it."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        by_kind.setdefault(kind_of(item), []).append(item)
    return {kind: _attributes(found) for kind, found in sorted(by_kind.items())}


def _attributes(items: list[Mapping[str, Any]]) -> dict[str, list[str]]:
    items = [_with_one_name_for_owners(item) for item in items]
    names = sorted({name for item in items for name in item})
    return {
        name: sorted({_type(name, item[name]) if name in item else "absent" for item in items} - {"L[]", "M{}"})
        for name in names
    }


def _with_one_name_for_owners(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The item, with `o#<id>` in place of each attribute that a producer's id names."""
    return {OWNER_PREFIX + "<id>" if name.startswith(OWNER_PREFIX) else name: value for name, value in item.items()}


def _type(name: str, value: Mapping[str, Any]) -> str:
    [(kind, content)] = value.items()
    if kind == "L":
        return f"L[{' '.join(sorted({_type(name, each) for each in content}))}]"
    if kind == "M":
        named = name not in _KEYED_BY_NAMES
        parts = {f"{key + ' ' if named else ''}{_type(key, each)}" for key, each in content.items()}
        return f"M{{{', '.join(sorted(parts))}}}"
    return str(kind)
