from penstock_core.ids import GroupName
from penstock_core.limits import KIB, TARGET_CHUNK_BYTES
from penstock_core.storage.groups.member_item import (
    MEMBER_PREFIX,
    TARGET_PREFIX,
    target_item,
    target_key,
    target_prefix,
)
from penstock_core.storage.item import item_bytes


def test_target_item_is_what_is_stored_today() -> None:
    assert target_item(GroupName("billing"), 12, "ab", 3, b"bytes") == {
        "pk": {"S": "billing"},
        "sk": {"S": "target#0000000012#ab#003"},
        "target": {"B": b"bytes"},
    }


def test_largest_chunk_fits_into_an_item() -> None:
    item = target_item(GroupName("g" * 249), 2**32, "ab" * 8, 999, bytes(TARGET_CHUNK_BYTES))
    assert item_bytes(item) < 400 * KIB


def test_targets_sort_by_epoch_and_chunk_and_apart_from_members() -> None:
    keys = [target_key(epoch, "ab", chunk) for epoch in (2, 10, 2**32) for chunk in (0, 1, 10)]
    assert keys == sorted(keys)
    assert target_key(2, "zz", 999) < target_prefix(3) <= target_key(3, "00", 0)
    assert not TARGET_PREFIX.startswith(MEMBER_PREFIX)
    assert not MEMBER_PREFIX.startswith(TARGET_PREFIX)
