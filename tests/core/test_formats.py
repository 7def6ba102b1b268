"""What is declared of formats, and what a reader does with a version that it does not know."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.formats import BYTE_FORMATS, FORMAT_ATTRIBUTE, ITEM_FORMATS, check_item
from penstock_core.storage.acls_item import parse_acl_mark, parse_acl_owners, parse_acl_rules
from penstock_core.storage.audit_item import parse_audit_item
from penstock_core.storage.compaction_item import parse_compaction, parse_cursor, parse_retired, parse_sequences
from penstock_core.storage.groups.group_item import parse_group
from penstock_core.storage.groups.lease_item import parse_lease
from penstock_core.storage.groups.member_item import parse_member
from penstock_core.storage.head_item import parse_head, parse_producer
from penstock_core.storage.mirrored_offsets_item import parse_offsets
from penstock_core.storage.page_item import parse_expiring, parse_inline, parse_merge_mark, parse_page
from penstock_core.storage.push.delivery_item import parse_delivery, parse_lane
from penstock_core.storage.push.subscription_item import parse_note, parse_orphans, parse_subscription
from penstock_core.storage.quota_items import parse_bucket, parse_claim, parse_quota_item
from penstock_core.storage.schedule_item import parse_schedule
from penstock_core.storage.share.share_group_item import parse_share_group
from penstock_core.storage.share.share_state_item import parse_share
from penstock_core.storage.timer_item import parse_due_minute, parse_switch, parse_timer, parse_told
from penstock_core.storage.topic_item import parse_deleted_topic, parse_topic
from penstock_core.storage.transaction_items import parse_stage, parse_state
from penstock_core.storage.zone_states_item import parse_catch_up_pass, parse_zone_states

PARSERS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "topic": parse_topic,
    "deleted_topic": parse_deleted_topic,
    "zone_states": parse_zone_states,
    "acls": parse_acl_rules,
    "acls_mark": parse_acl_mark,
    "acls_owners": parse_acl_owners,
    "catch_up": parse_catch_up_pass,
    "cursor": parse_cursor,
    "audit_entry": parse_audit_item,
    "head": parse_head,
    "page": parse_page,
    "inline": parse_inline,
    "expiring": parse_expiring,
    "merge_mark": parse_merge_mark,
    "producer": parse_producer,
    "compaction": parse_compaction,
    "retired": parse_retired,
    "merged_sequences": parse_sequences,
    "timer": parse_timer,
    "told_timer": parse_told,
    "due_minute": parse_due_minute,
    "timers_switch": parse_switch,
    "transactional_producer": parse_state,
    "transaction_stage": parse_stage,
    "group": parse_group,
    "member": parse_member,
    "lease": parse_lease,
    "share_group": parse_share_group,
    "share_state": parse_share,
    "subscription": parse_subscription,
    "subscription_note": parse_note,
    "orphaned_states": parse_orphans,
    "push_lane": parse_lane,
    "push_delivery": parse_delivery,
    "quota": parse_quota_item,
    "bucket": parse_bucket,
    "claim": parse_claim,
    "schedule": parse_schedule,
    "mirrored_offsets": parse_offsets,
}
HAVE_NO_PARSER = {"registered_group", "target"}  # a key alone, and bytes with a version of their own


def test_formats_read_what_they_write() -> None:
    for known in (*ITEM_FORMATS.values(), *BYTE_FORMATS.values()):
        assert known.writes <= known.reads


def test_every_kind_has_a_parser_here() -> None:
    assert PARSERS.keys() == ITEM_FORMATS.keys() - HAVE_NO_PARSER


@pytest.mark.parametrize("kind", PARSERS)
def test_parser_refuses_an_item_of_an_unknown_version(kind: str) -> None:
    item = {FORMAT_ATTRIBUTE: {"N": "9"}, "marks_before": {"N": "0"}, "marks_behind": {"N": "0"}}
    with pytest.raises(
        PenstockError, match=f"{kind} of format 9, this release reads 1(, 2)?(, 3)?: use the release"
    ) as caught:
        PARSERS[kind](item)
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT


@pytest.mark.parametrize("item", [{}, {FORMAT_ATTRIBUTE: {"N": "1"}}])
def test_item_of_a_known_version_passes(item: Mapping[str, Any]) -> None:
    check_item("head", item)
