from collections.abc import Callable

import pytest

from penstock import TopicPartition
from penstock.errors import ConflictError, InvalidError, NotFoundError, UnknownPartitionError
from penstock.testing import MemoryPenstock
from penstock_import.copying.group_mover import GroupMover, GroupSettings
from penstock_import.copying.starts import StartSettings, first_positions, placement_for
from penstock_import.copying.topic_import import (
    ImportOutcome,
    TopicImport,
    find_or_create_topic,
    find_topic,
    settings_from,
)
from penstock_import.source.records import PartitionBounds
from tests.importer.copies import Told, copier_of, copy, held, sent
from tests.importer.memory_source import MemorySource


def _second(source: MemorySource) -> None:
    source.add(0, None, b"second")


def _second_in_a_new_partition(source: MemorySource) -> None:
    source.grow(3)
    source.add(2, b"key", b"second")


class _Switch(Told):
    """The source changes when its first record is copied. At its end the copy is stopped."""

    def __init__(self, source: MemorySource, change: Callable[[MemorySource], None] = _second) -> None:
        super().__init__()
        self.source = source
        self.change = change
        self.has_changed = False
        self.stop: Callable[[], None] = lambda: None

    def copied(self, records: int, skipped: int, lag: int) -> None:
        if records == 1 and not self.has_changed:
            self.has_changed = True
            self.change(self.source)

    def drained(self) -> None:
        super().drained()
        self.stop()


def test_import_follows_until_it_is_stopped_and_tells_that_the_source_is_drained() -> None:
    service = MemoryPenstock()
    service.create_topic("orders")
    source = MemorySource()
    source.add(0, None, b"first")
    source.groups = {"billing": {0: 2}}
    report = _Switch(source)
    copier = copier_of(source, service, report=report)
    report.stop = copier.rounds.stop
    settings = GroupSettings(groups=["billing"], topic="orders", mode="keep")
    mover = GroupMover(service.admin(), source, copier.progress, settings)
    outcome = TopicImport(copier, source, mover, report, follows=True).run()
    copier.close()
    assert held(service) == sent(source)
    assert (report.ends, outcome.is_complete, outcome.is_drained) == (1, True, True)
    assert dict(outcome.groups[0].offsets) == {0: 2}
    assert report.moves == list(outcome.groups)


def _follow(service: MemoryPenstock, source: MemorySource, report: _Switch, mode: str) -> ImportOutcome:
    copier = copier_of(source, service, report=report, mode=mode, start=StartSettings(from_beginning=True))
    report.stop = copier.rounds.stop
    mover = GroupMover(service.admin(), source, copier.progress, GroupSettings(groups=[], topic="orders", mode=mode))
    try:
        return TopicImport(copier, source, mover, report, follows=True).run()
    finally:
        copier.close()


def test_import_copies_the_partitions_that_the_source_gets_meanwhile() -> None:
    service = MemoryPenstock()
    service.create_topic("orders", partitions=2)
    source = MemorySource()
    source.add(0, b"key", b"first")
    report = _Switch(source, _second_in_a_new_partition)
    outcome = _follow(service, source, report, "rehash")
    assert [value for *_, value in held(service)] == [b"first", b"second"]
    assert (report.ends, outcome.records, outcome.is_drained) == (1, 2, True)
    assert report.firsts == [True, False]


def test_import_ends_as_a_new_one_would_when_new_partitions_cannot_keep_their_numbers() -> None:
    service = MemoryPenstock()
    service.create_topic("orders")
    source = MemorySource()
    source.add(0, b"key", b"first")
    report = _Switch(source, _second_in_a_new_partition)
    with pytest.raises(InvalidError, match="has 3 partitions"):
        _follow(service, source, report, "keep")
    assert report.ends == 0


def test_import_that_is_stopped_tells_of_records_in_partitions_that_it_has_not_seen() -> None:
    service = MemoryPenstock()
    service.create_topic("orders", partitions=2)
    source = MemorySource()
    source.add(0, b"key", b"first")

    def change(source: MemorySource) -> None:
        _second_in_a_new_partition(source)
        report.stop()

    report = _Switch(source, change)
    assert not _follow(service, source, report, "rehash").is_drained


def test_settings_are_brought_into_our_bounds() -> None:
    kafka = {
        "retention.ms": "1000",
        "retention.bytes": "-1",
        "max.message.bytes": "99999999",
        "cleanup.policy": "delete, compact",
        "flush.ms": "1",
    }
    found = settings_from(kafka)
    assert found["retention_ms"] == 60_000
    assert found["retention_bytes"] == -1
    assert found["max_batch_bytes"] < 4 * 2**20
    assert found["cleanup_policy"] == "compact,delete"
    assert "flush.ms" not in found


def test_topic_is_created_as_the_source_is() -> None:
    service, source = MemoryPenstock(), MemorySource(4)
    source.settings = {"cleanup.policy": "compact"}
    created = find_or_create_topic(service.admin(), "orders", source.describe(), source)
    assert (created.partitions, created.config["cleanup_policy"]) == (4, "compact")
    assert find_or_create_topic(service.admin(), "orders", source.describe(), source) == created


def test_missing_topic_names_the_ways_to_create_it() -> None:
    with pytest.raises(NotFoundError, match="add --create, or run `penstock topics create orders --partitions 4`"):
        find_topic(MemoryPenstock().admin(), "orders", MemorySource(4).describe())


def test_other_number_of_partitions_names_the_ways_out() -> None:
    topic = MemoryPenstock().create_topic("orders", partitions=3)
    with pytest.raises(InvalidError, match=r"has 4 partitions, .* 3 from 0 on: .* --partitions rehash"):
        placement_for("keep", MemorySource(4).describe(), topic)
    assert placement_for("rehash", MemorySource(4).describe(), topic).count == 3


_HELD = {0: PartitionBounds(5, 20), 1: PartitionBounds(0, 0)}


def test_first_copy_begins_at_the_oldest_records_and_where_the_user_says() -> None:
    assert first_positions(StartSettings(), "orders", _HELD, {}, {}) == {0: 5, 1: 0}
    assert first_positions(StartSettings(offsets={0: 9}), "orders", _HELD, {}, {}) == {0: 9, 1: 0}
    assert first_positions(StartSettings(offsets={0: 2}), "orders", _HELD, {}, {}) == {0: 5, 1: 0}


def test_later_copy_begins_at_its_notes() -> None:
    assert first_positions(StartSettings(), "orders", _HELD, {0: 7}, {0: 100}) == {0: 7, 1: 0}


@pytest.mark.parametrize(
    ("settings", "known", "ends", "message"),
    [
        (StartSettings(from_beginning=True), {0: 7}, {}, "go on without --from"),
        (StartSettings(), {}, {0: 3}, "holds 3 records, .* --append"),
        (StartSettings(), {0: 21}, {}, "ends at 20, below 21"),
    ],
)
def test_start_is_refused_when_it_would_lose_or_repeat_records(
    settings: StartSettings, known: dict[int, int], ends: dict[int, int], message: str
) -> None:
    with pytest.raises(ConflictError, match=message):
        first_positions(settings, "orders", _HELD, known, ends)


def test_start_is_refused_when_the_source_has_no_such_partition() -> None:
    with pytest.raises(UnknownPartitionError, match="--from 2=…: the source has the partitions 0 to 1"):
        first_positions(StartSettings(offsets={2: 0}), "orders", _HELD, {}, {})


@pytest.fixture
def service() -> MemoryPenstock:
    service = MemoryPenstock()
    service.create_topic("orders", partitions=2)
    return service


def _source() -> MemorySource:
    source = MemorySource(2)
    for number in range(6):
        source.add(0, None, b"%d" % number, gap=number % 2)  # at the offsets 0, 2, 3, 5, 6, 8
    source.mark(0)
    source.groups = {"billing": {0: 4, 1: 0}, "mail": {0: 10}}
    return source


def _offsets(service: MemoryPenstock, group: str) -> dict[int, int]:
    return {each.partition: each.offset for each in service.admin().group_offsets(group)}


def test_groups_go_on_at_the_next_copied_record(service: MemoryPenstock) -> None:
    outcome = copy(_source(), service, "billing", "mail", "unknown")
    assert _offsets(service, "billing") == {0: 3, 1: 0}
    assert _offsets(service, "mail") == {0: 6}
    assert [each.group for each in outcome.groups if each.refusal] == ["unknown"]


def test_group_is_moved_by_the_notes_of_earlier_processes(service: MemoryPenstock) -> None:
    source = _source()
    copy(source, service)
    copy(source, service, "billing")
    assert _offsets(service, "billing") == {0: 3, 1: 0}


def test_group_stays_when_it_has_members(service: MemoryPenstock) -> None:
    with service.consumer("orders", group_id="billing") as consumer:
        consumer.poll(timeout_ms=0)
        outcome = copy(_source(), service, "billing")
        assert "has members in Penstock" in outcome.groups[0].refusal
    assert outcome.groups[0].offsets == {}


def test_group_stays_when_it_has_gone_further(service: MemoryPenstock) -> None:
    source = _source()
    copy(source, service)
    service.admin().commit_group_offsets("billing", {TopicPartition("orders", 0): 5})
    outcome = copy(source, service, "billing")
    assert outcome.groups[0].further == (0,)
    assert _offsets(service, "billing") == {0: 5, 1: 0}


def test_group_goes_back_when_it_may(service: MemoryPenstock) -> None:
    source = _source()
    copy(source, service)
    service.admin().commit_group_offsets("billing", {TopicPartition("orders", 0): 5})
    copier = copier_of(source, service)
    settings = GroupSettings(groups=["billing"], topic="orders", mode="keep", may_go_back=True)
    mover = GroupMover(service.admin(), source, copier.progress, settings)
    mover.move({0: 10, 1: 0})
    copier.close()
    assert _offsets(service, "billing") == {0: 3, 1: 0}


def test_group_is_moved_again_when_it_commits_at_the_source(service: MemoryPenstock) -> None:
    source = _source()
    copy(source, service)
    copier = copier_of(source, service)
    mover = GroupMover(
        service.admin(), source, copier.progress, GroupSettings(groups=["billing"], topic="orders", mode="keep")
    )
    for committed, expected in ((4, 3), (6, 4), (7, 5), (10, 6)):
        source.groups["billing"] = {0: committed, 1: 0}
        mover.move({0: 10, 1: 0})
        assert _offsets(service, "billing") == {0: expected, 1: 0}
    copier.close()


def test_group_reads_no_later_than_its_first_unread_record_when_partitions_are_rehashed(
    service: MemoryPenstock,
) -> None:
    source = MemorySource(3)
    for number in range(30):
        source.add(number % 3, b"key %d" % number, b"%d" % number)
    source.groups = {"billing": {0: 10, 1: 5, 2: 10}}
    copy(source, service, "billing", mode="rehash")
    unread = {b"%d" % (3 * offset + 1) for offset in range(5, 10)}
    places = [(each.partition, each.offset) for each in service.records("orders") if each.value in unread]
    offsets = _offsets(service, "billing")
    assert all(offsets[partition] <= offset for partition, offset in places)
