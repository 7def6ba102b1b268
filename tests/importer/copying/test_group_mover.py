import pytest

from penstock import TopicPartition
from penstock.testing import MemoryPenstock
from penstock_import.copying.group_mover import GroupMover, GroupSettings
from tests.importer.copies import copier_of, copy
from tests.importer.memory_source import MemorySource


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
