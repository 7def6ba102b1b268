"""The item of offsets that a mirror was told: golden, and round trip with any offsets."""

from hypothesis import given

from penstock_core.ids import GroupName, Offset, Partition
from penstock_core.mirror.group_offsets import MirroredOffset, MirroredOffsets
from penstock_core.storage.mirrored_offsets_item import offsets_item, offsets_key, parse_offsets
from tests.core.mirror.test_group_offsets import GROUPS, TOPIC, Groups


@given(GROUPS, GROUPS)
def test_item_round_trips(groups: Groups, share_groups: Groups) -> None:
    offsets = MirroredOffsets(read_ms=5, left_out=2, groups=groups, share_groups=share_groups)
    assert parse_offsets(offsets_item(TOPIC, 7, offsets)) == (7, offsets)


def test_item_is_that_of_the_docs() -> None:
    groups = {GroupName("a"): {Partition(2): MirroredOffset(offset=Offset(7))}}
    assert offsets_item(TOPIC, 3, MirroredOffsets(read_ms=5, left_out=1, groups=groups)) == {
        **offsets_key(TOPIC),
        "version": {"N": "3"},
        "read_ms": {"N": "5"},
        "left_out": {"N": "1"},
        "groups": {"S": '[["a",[[2,7]]]]'},
    }
    assert offsets_key(TOPIC) == {"pk": {"S": f"{TOPIC}#0"}, "sk": {"S": "mirrored_offsets"}}


def test_share_groups_are_apart_so_that_a_release_before_them_reads_the_groups() -> None:
    groups = {GroupName("a"): {Partition(2): MirroredOffset(offset=Offset(7))}}
    item = offsets_item(TOPIC, 3, MirroredOffsets(read_ms=5, groups=groups, share_groups=groups))
    assert (item["groups"], item["share"]) == ({"S": '[["a",[[2,7]]]]'}, {"S": '[["a",[[2,7]],"share"]]'})
