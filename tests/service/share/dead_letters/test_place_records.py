"""Records that move keep the order of their partition, or that of their keys where a topic waits."""

from dataclasses import replace
from random import Random

import pytest

from penstock_core.ids import TopicId, TopicName
from penstock_core.limits import MOVED_BYTES_MAX, REDRIVE_AT_ONCE
from penstock_core.log.topic import Topic, TopicConfig
from penstock_core.records.codec import NewRecord, decode
from penstock_core.records.partitioner import partition_for_key
from penstock_service.instance.instance import Instance
from penstock_service.share.dead_letters.place_records import fitting, keeps_keys, place_records, places_keys
from tests.support.service import new_topic

TURNED = Topic(name=TopicName("t"), topic_id=TopicId("t"), partitions=7, created_at_ms=1, layout=1, generations=(0, 4))
RECORDS = [NewRecord(1, key, b"%d" % number, ()) for number, key in enumerate([b"a", None, b"b", b"a", b"c"])]


@pytest.mark.parametrize("by_key", [True, False])
def test_records_go_to_their_keys_partitions_or_to_that_of_their_number(by_key: bool) -> None:
    moved = place_records(TURNED, RECORDS, 5, by_key=by_key)
    assert moved is not None
    found = {each.key.partition: [record.value for record in decode(each.data)] for each in moved}
    expected: dict[int, list[bytes | None]] = {}
    for each in RECORDS:
        own = partition_for_key(each.key, 3) if by_key and each.key is not None else 5 % 3
        expected.setdefault(4 + own, []).append(each.value)
    assert found == expected


def test_more_partitions_than_a_transaction_holds_are_refused() -> None:
    wide = replace(TURNED, partitions=500)
    many = [NewRecord(1, b"%d" % number, None, ()) for number in range(2 * REDRIVE_AT_ONCE)]
    assert place_records(wide, many, 0, by_key=True) is None
    moved, count = fitting(many, lambda some: place_records(wide, some, 0, by_key=True))
    assert moved is not None
    assert sum(len([*decode(each.data)]) for each in moved) == count == REDRIVE_AT_ONCE // 2


def test_record_that_is_too_large_does_not_fit() -> None:
    large = NewRecord(1, b"k", Random(1).randbytes(MOVED_BYTES_MAX), ())
    assert fitting([large, *RECORDS], lambda some: place_records(TURNED, some, 0, by_key=True)) == (None, 1)
    assert place_records(TURNED, [], 0, by_key=True) == []


def test_keys_are_kept_when_one_of_both_topics_waits(instance: Instance) -> None:
    plain, waiting = new_topic(instance, "plain"), new_topic(instance, "waiting", ordering_on_change="wait")
    topics = {name: instance.topic_cache.get(name) for name in (plain, waiting)}
    found = [[places_keys(instance, topics[to], source) for source in (plain, waiting, "gone")] for to in topics]
    assert found == [[False, True, False], [True, True, True]]
    assert keeps_keys(replace(TURNED, config=TopicConfig()))
