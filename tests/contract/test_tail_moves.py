"""The contract of `CompactionStore.move_tail`: refs of a tail are exchanged in their place, or nothing is."""

from dataclasses import replace

import pytest

from penstock_core.compaction.tail_move import TailMove, tail_move
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId, new_segment_id
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.index import Head
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.records.producer_state import ProducerSequence
from tests.contract.conftest import Ports
from tests.support.refs import ref_at
from tests.support.rolling import moved, roll

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
ARCHIVED = new_segment_id(99_000, bytes(10))


def ref(number: int) -> Ref:
    sequence = ProducerSequence(producer_id=7, epoch=1, first_sequence=2 * number, last_sequence=2 * number + 1)
    return ref_at(number, sequence, span=2, zones=0b011)


def filled(ports: Ports, refs: int) -> Head:
    """A head with so many refs, or so many more."""
    ports.log.create_head(KEY)
    first = head_of(ports).next_offset // 2
    for number in range(first, first + refs):
        ports.log.append(KEY, ref(number), 0b100)
    return head_of(ports)


def head_of(ports: Ports) -> Head:
    return ports.log.heads([KEY])[KEY]


def a_move(head: Head, *places: int, now_ms: int = 100_000) -> TailMove:
    located = head.located_tail()
    return tail_move(head, [located[place] for place in places], ARCHIVED, now_ms)


@pytest.mark.parametrize("places", [(0,), (0, 1, 2), (1, 3), (*range(TAIL_ROLL_REFS - 1),)])
def test_move_exchanges_the_refs_and_tells_what_it_retired(ports: Ports, places: tuple[int, ...]) -> None:
    head = filled(ports, TAIL_ROLL_REFS - 1)
    move = a_move(head, *places)
    assert ports.compaction.move_tail(KEY, move)
    assert head_of(ports) == moved(head, move) != head
    assert sorted(ports.compaction.retired(KEY, 100_000)) == [ref(place).segment_id for place in places]
    assert not ports.compaction.retired(KEY, 100_001)


def test_move_leaves_appends_behind_it_alone(ports: Ports) -> None:
    head = filled(ports, 3)
    longer = filled(ports, 2)
    move = a_move(head, 0, 1, 2)
    assert ports.compaction.move_tail(KEY, move)
    assert head_of(ports).tail == (*move.new.values(), *longer.tail[3:])
    assert head_of(ports).next_offset == longer.next_offset


def refuses(ports: Ports, move: TailMove) -> None:
    before = head_of(ports)
    assert not ports.compaction.move_tail(KEY, move)
    assert head_of(ports) == before


def test_move_is_refused_when_it_is_repeated(ports: Ports) -> None:
    move = a_move(filled(ports, 3), 0, 1)
    assert ports.compaction.move_tail(KEY, move)
    refuses(ports, replace(move, moved_ms=200_000))
    assert not ports.compaction.retired(KEY, 200_000)


def test_move_is_refused_when_a_ref_was_marked_meanwhile(ports: Ports) -> None:
    head = filled(ports, 3)
    assert ports.log.mark_stored(KEY, {LocatedRef(base_offset=Offset(2), ref=head.tail[1]): 0b100}) == 1
    refuses(ports, a_move(head, 0, 1))
    assert not ports.compaction.retired(KEY, 0)
    assert ports.compaction.move_tail(KEY, a_move(head, 0, 2)), "the mark of a ref that stays is none of its business"
    assert head_of(ports).tail[1].zones == 0b111


@pytest.mark.parametrize("appends", [TAIL_ROLL_REFS - 3, 2 * TAIL_ROLL_REFS])
def test_move_is_refused_when_the_tail_has_become_as_long_as_a_page(ports: Ports, appends: int) -> None:
    head = filled(ports, 3)
    filled(ports, appends)
    refuses(ports, a_move(head, 0, 1))
    assert not ports.compaction.retired(KEY, 0)


def test_move_is_refused_when_the_tail_was_rolled_meanwhile(ports: Ports) -> None:
    head = filled(ports, 3)
    filled(ports, TAIL_ROLL_REFS)
    roll(ports.log, KEY)
    refuses(ports, a_move(head, 0, 1))
    same_refs = replace(a_move(head_of(ports), 0), tail_base=Offset(0))
    refuses(ports, same_refs)


def test_move_is_refused_when_the_partition_has_no_head(ports: Ports) -> None:
    move = a_move(filled(ports, 3), 0)
    ports.log.delete_head(KEY)
    assert not ports.compaction.move_tail(KEY, move)
    assert not ports.compaction.retired(KEY, 0)


def test_moved_refs_roll_into_the_page(ports: Ports) -> None:
    move = a_move(filled(ports, 3), 0, 1)
    assert ports.compaction.move_tail(KEY, move)
    filled(ports, TAIL_ROLL_REFS)
    page = roll(ports.log, KEY)
    assert page.refs[:2] == tuple(move.new.values())
    assert tuple(ports.log.pages(KEY, Offset(0), 10)) == (page,)
