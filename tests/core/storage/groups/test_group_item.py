import pytest

from penstock_core.groups.group import GroupConfig, GroupDocument, GroupState
from penstock_core.ids import GroupName
from penstock_core.storage.groups.group_item import group_item, group_key, parse_group, registered_key

GROUP = GroupName("billing")


@pytest.mark.parametrize(
    "group",
    [
        GroupState(name=GROUP),
        GroupState(
            name=GROUP,
            version=9,
            epoch=4,
            target_id="ab",
            member_count=3,
            config=GroupConfig(assignor="range", session_timeout_ms=60_000),
            next_check_ms=7,
            changed_at_ms=8,
            created_at_ms=4,
            empty_since_ms=5,
        ),
        GroupState(name=GROUP, version=2, document=GroupDocument(protocol_type="connect", member_count=2, data=b"{}")),
        GroupState(name=GROUP, version=2, document=GroupDocument(protocol_type="connect", member_count=0, data=b"")),
    ],
)
def test_group_is_read_back(group: GroupState) -> None:
    assert parse_group(group_item(group)) == group


def test_document_is_stored_beside_the_group() -> None:
    group = GroupState(name=GROUP, document=GroupDocument(protocol_type="connect", member_count=2, data=b"{}"))
    added = {"protocol_type": {"S": "connect"}, "document_members": {"N": "2"}, "document": {"B": b"{}"}}
    assert group_item(group) == group_item(GroupState(name=GROUP)) | added


def test_group_stores_no_setting_that_is_the_default() -> None:
    assert group_item(GroupState(name=GROUP))["config"] == {"M": {}}


def test_group_item_is_what_is_stored_today() -> None:
    group = GroupState(
        name=GROUP,
        version=9,
        epoch=4,
        target_id="ab",
        member_count=3,
        config=GroupConfig(assignor="range", session_timeout_ms=60_000),
        next_check_ms=7,
        changed_at_ms=8,
        created_at_ms=4,
        empty_since_ms=5,
    )
    assert group_item(group) == {
        **group_key(GROUP),
        "version": {"N": "9"},
        "epoch": {"N": "4"},
        "target_id": {"S": "ab"},
        "member_count": {"N": "3"},
        "config": {"M": {"assignor": {"S": "range"}, "session_timeout_ms": {"N": "60000"}}},
        "next_check_ms": {"N": "7"},
        "changed_at_ms": {"N": "8"},
        "created_at_ms": {"N": "4"},
        "empty_since_ms": {"N": "5"},
    }
    assert group_key(GROUP) == {"pk": {"S": "billing"}, "sk": {"S": "group"}}
    assert registered_key(GROUP) == {"pk": {"S": "#groups"}, "sk": {"S": "billing"}}
