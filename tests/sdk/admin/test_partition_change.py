"""What `penstock topics alter --partitions` says before it acts. Which partition is hot, and what helps."""

from dataclasses import replace

import pytest

from penstock.admin.partition_change import moved_share, preview, stored_bytes_of
from penstock.api import calls
from penstock.api.topic_heat import advice, hot_partitions, judged
from penstock.model import PartitionOffsets, Topic, TopicDescription
from penstock_core.ids import Partition
from penstock_core.records.partitioner import murmur2

KEYS = [b"%d" % number for number in range(400)]


def described(partitions: int, writable: int, **config: object) -> TopicDescription:
    topic = Topic(
        name="orders",
        topic_id="t1",
        partitions=partitions,
        writable_partitions=writable,
        config=config,
        created_at_ms=1,
    )
    offsets = [
        PartitionOffsets(partition=number, log_start_offset=number, high_watermark=10, state="active")
        for number in range(partitions)
    ]
    return TopicDescription(topic=topic, offsets=tuple(offsets))


@pytest.mark.parametrize(("old", "new"), [(8, 3), (3, 8), (8, 4), (4, 8), (5, 1), (7, 6)])
def test_moved_share_is_that_of_keys(old: int, new: int) -> None:
    hashes = [murmur2(str(number).encode()) & 0x7FFFFFFF for number in range(20_000)]
    moved = sum(Partition(each % old) != Partition(each % new) for each in hashes) / len(hashes)
    assert moved_share(old, new) == pytest.approx(moved, abs=0.02)


def test_preview_tells_what_drains_and_what_stays_readable() -> None:
    first, end, keys = preview(described(4, 4, retention_ms=1_000), 2)
    assert first.startswith("Partitions 2 to 3 take no new records. 15 records stay readable there.")
    assert "once retention has removed" in end
    assert keys.startswith("50% of the keys")


@pytest.mark.parametrize("config", [{"retention_ms": -1}, {"cleanup_policy": "compact"}])
def test_preview_says_so_when_retention_removes_nothing(config: dict[str, object]) -> None:
    assert "Retention removes nothing" in list(preview(described(4, 4, **config), 3))[1]


def test_preview_tells_of_a_generation_when_the_topic_waits() -> None:
    [line] = preview(described(4, 4, ordering_on_change="wait"), 2)
    assert line.startswith("Partitions 0 to 3 take no new records. 34 records stay readable there. 2 new partitions")


def test_preview_is_empty_without_a_change_and_short_when_partitions_open_again() -> None:
    assert list(preview(described(4, 2), 2)) == []
    first, _ = preview(described(4, 2), 3)
    assert first == "Partition 2 takes new records again, and offsets go on."
    assert len(list(preview(described(4, 4), 5))) == 1


def test_number_of_partitions_is_sent_once_and_a_setting_again() -> None:
    """After another operator's change, a repeat would begin one more generation."""
    requests = [next(calls.set_partitions("orders", 3)), next(calls.alter_topic("orders", {"retention_ms": 1}))]
    assert [each.is_repeatable for each in requests] == [False, True]


@pytest.mark.parametrize(
    ("records", "hot"),
    [
        ({0: 1_000, 1: 100, 2: 100}, [0]),
        ({0: 199, 1: 100, 2: 100}, []),
        ({0: 200, 1: 100, 2: 100}, [0]),
        ({0: 99, 1: 0}, []),
        ({0: 100, 1: 0}, [0]),
        ({0: 5_000}, []),
        ({0: 0, 1: 0}, []),
        ({0: 600, 1: 700, 2: 10, 3: 10}, [1, 0]),
    ],
)
def test_partition_is_hot_when_it_gets_twice_what_the_others_get(records: dict[int, int], hot: list[int]) -> None:
    assert hot_partitions(records) == hot


def test_advice_goes_by_the_keys_of_the_hottest_partition() -> None:
    assert "Nothing to do" in advice("t", 4, [])
    assert "One key makes 75%" in advice("t", 4, [judged(2, 500, [b"a"] * 3 + [b"b"])])
    assert "have no key" in advice("t", 4, [judged(2, 500, [None, None, None, b"b"])])
    assert advice("t", 4, [judged(2, 500, KEYS)]).endswith("penstock topics alter t --partitions 8")


def test_stored_bytes_of_a_service_that_does_not_tell_them_are_unknown() -> None:
    older = described(2, 2).offsets
    assert stored_bytes_of(older) is None
    assert stored_bytes_of([replace(each, stored_bytes=7) for each in older]) == 14
    assert stored_bytes_of([]) == 0
