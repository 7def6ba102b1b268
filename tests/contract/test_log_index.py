"""The contract of LogIndex."""

from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.index import EMPTY_HEAD, Head, HeadJump, Jump, appended
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.records.producer_state import NO_OWNER, ProducerSequence, ProducerState
from penstock_service.adapters.dynamodb.log import DynamoDbLogIndex
from tests.contract.conftest import Ports
from tests.support.refs import ref_at
from tests.support.rolling import roll, roll_if_due

KEY = PartitionKey(TopicId("t1"), Partition(0))
OTHER = PartitionKey(TopicId("t1"), Partition(1))


def ref(number: int, span: int = 3) -> Ref:
    return ref_at(1_000 + number, span=span)


def fill(ports: Ports, count: int) -> Head:
    head = EMPTY_HEAD
    for number in range(count):
        head = ports.log.append(KEY, ref(number), 0).head
        roll_if_due(ports.log, KEY, head)
    return ports.log.heads([KEY])[KEY]


def sequenced(number: int, first: int, *, span: int = 3, epoch: int = 0, producer_id: int = 7) -> Ref:
    sequence = ProducerSequence(
        producer_id=producer_id, epoch=epoch, first_sequence=first, last_sequence=first + span - 1
    )
    # The first six bytes of a segment id are its time.
    return replace(
        ref(number, span), segment_id=SegmentId((1_000 * number).to_bytes(6, "big") + bytes(10)), sequence=sequence
    )


def append_sequenced(ports: Ports, wanted: Ref, looked_at: int | None = None) -> tuple[bool, Head]:
    assert wanted.sequence is not None
    offset = None if looked_at is None else Offset(looked_at)
    done = ports.log.append_in_sequence(KEY, wanted, 0, wanted.sequence, offset)
    return done.is_appended, done.head


def test_append_in_sequence_takes_what_follows_once(ports: Ports) -> None:
    ports.log.create_head(KEY)
    first, second = sequenced(1, 0), sequenced(2, 3)
    head = appended(EMPTY_HEAD, first)
    assert append_sequenced(ports, first) == (True, head)
    assert append_sequenced(ports, first) == (False, head), "the entry is there: what was unlisted is not"
    assert append_sequenced(ports, first, 0) == (False, head), "nor is it by an old look"
    assert append_sequenced(ports, sequenced(3, 6)) == (False, head), "a gap"
    head = appended(head, second)
    assert append_sequenced(ports, second) == (True, head)
    assert append_sequenced(ports, second) == (False, head)
    assert ports.log.heads([KEY]) == {KEY: head}
    assert dict(head.producers) == {7: ProducerState(epoch=0, last_sequence=5, written_ms=2_000)}


def owned(ref: Ref, owner: bytes) -> Ref:
    assert ref.sequence is not None
    return replace(ref, sequence=replace(ref.sequence, owner=owner))


def test_append_in_sequence_is_refused_when_the_producer_is_anothers(ports: Ports) -> None:
    ports.log.create_head(KEY)
    head = appended(EMPTY_HEAD, owned(sequenced(1, 0), b"mine...."))
    assert append_sequenced(ports, owned(sequenced(1, 0), b"mine....")) == (True, head)
    assert head.producers[7].owner == b"mine...."
    for owner in (b"others..", NO_OWNER):
        assert append_sequenced(ports, owned(sequenced(2, 3), owner)) == (False, head), "it follows"
        assert append_sequenced(ports, owned(sequenced(2, 0, epoch=32_767), owner)) == (False, head), "a forged epoch"
        assert append_sequenced(ports, owned(sequenced(2, 0, epoch=9), owner), 0) == (False, head), "by a look"
    assert ports.log.heads([KEY]) == {KEY: head}
    assert append_sequenced(ports, owned(sequenced(2, 3), b"mine...."))[0]


def test_append_in_sequence_gives_an_owner_to_an_entry_that_has_none(ports: Ports) -> None:
    ports.log.create_head(KEY)
    assert append_sequenced(ports, sequenced(1, 0))[0]
    _, head = append_sequenced(ports, owned(sequenced(2, 3), b"mine...."))
    assert ports.log.heads([KEY])[KEY].producers[7].owner == head.producers[7].owner == b"mine...."
    assert not append_sequenced(ports, owned(sequenced(3, 6), b"others.."))[0]


def test_append_in_sequence_starts_anew_in_a_later_epoch(ports: Ports) -> None:
    ports.log.create_head(KEY)
    _, head = append_sequenced(ports, sequenced(1, 0))
    assert append_sequenced(ports, sequenced(2, 3, epoch=1)) == (False, head), "not from 0"
    _, head = append_sequenced(ports, sequenced(2, 0, epoch=2))
    assert head.next_offset == 6
    assert append_sequenced(ports, sequenced(3, 0, epoch=1)) == (False, head), "an older epoch"
    assert append_sequenced(ports, sequenced(3, 0, epoch=2)) == (False, head), "a repeat"


def test_append_in_sequence_takes_an_unknown_producer_by_a_look_that_holds(ports: Ports) -> None:
    ports.log.create_head(KEY)
    assert append_sequenced(ports, sequenced(1, 5)) == (False, EMPTY_HEAD), "nobody has looked"
    assert append_sequenced(ports, sequenced(1, 5), 0)[0], "the caller has looked it up, and knows that it follows"


def test_append_in_sequence_is_refused_when_the_tail_has_passed_the_look(ports: Ports) -> None:
    ports.log.create_head(KEY)
    looked_at = fill(ports, 1).next_offset
    fill(ports, TAIL_ROLL_REFS - 2)
    assert append_sequenced(ports, sequenced(20, 5), looked_at)[0], "the tail begins below the look"
    roll(ports.log, KEY)
    assert not append_sequenced(ports, sequenced(21, 5, producer_id=8), looked_at)[0]
    assert append_sequenced(ports, sequenced(21, 5, producer_id=8), looked_at=3 * TAIL_ROLL_REFS)[0]


def test_append_in_sequence_is_refused_when_there_is_no_head(ports: Ports) -> None:
    with pytest.raises(PenstockError) as caught:
        append_sequenced(ports, sequenced(1, 0))
    assert caught.value.code is ErrorCode.UNKNOWN_PARTITION


def test_pages_before_go_back_from_the_newest(ports: Ports) -> None:
    ports.log.create_head(KEY)
    head = fill(ports, 4 * TAIL_ROLL_REFS)
    upwards = list(ports.log.pages(KEY, Offset(0), 10))
    assert list(ports.log.pages_before(KEY, head.tail_base, 10)) == upwards[::-1]
    assert list(ports.log.pages_before(KEY, head.tail_base, 2)) == [upwards[3], upwards[2]]
    assert list(ports.log.pages_before(KEY, upwards[1].base_offset, 10)) == [upwards[0]]
    assert list(ports.log.pages_before(KEY, Offset(upwards[0].end_offset - 1), 10)) == []


def test_heads_leaves_out_partitions_without_a_head(ports: Ports) -> None:
    ports.log.create_head(KEY)
    assert ports.log.heads([KEY, OTHER]) == {KEY: EMPTY_HEAD}
    assert ports.log.heads([OTHER]) == {}
    assert ports.log.heads([]) == {}


def test_heads_answers_more_partitions_than_one_call_takes(ports: Ports) -> None:
    keys = [PartitionKey(TopicId("t1"), Partition(number)) for number in range(130)]
    for key in keys:
        ports.log.create_head(key)
    assert set(ports.log.heads(keys)) == set(keys)


def test_create_head_keeps_what_is_there(ports: Ports) -> None:
    ports.log.create_head(KEY)
    head = ports.log.append(KEY, ref(1), 0).head
    ports.log.create_head(KEY)
    assert ports.log.heads([KEY]) == {KEY: head}


def test_append_advances_the_offset_and_keeps_order(ports: Ports) -> None:
    ports.log.create_head(KEY)
    first = ports.log.append(KEY, ref(1, span=3), 0).head
    second = ports.log.append(KEY, ref(2, span=5), 0b100).head
    assert first == appended(EMPTY_HEAD, ref(1, span=3))
    assert second == appended(first, ref(2, span=5))
    assert [located.base_offset for located in second.located_tail()] == [0, 3]
    assert second.next_offset == 8


@pytest.mark.parametrize("was_there", [False, True])
def test_append_is_refused_when_there_is_no_head(ports: Ports, was_there: bool) -> None:
    if was_there:
        ports.log.create_head(KEY)
        ports.log.delete_head(KEY)
    with pytest.raises(PenstockError) as caught:
        ports.log.append(KEY, ref(1), 0)
    assert caught.value.code is ErrorCode.UNKNOWN_PARTITION
    assert not caught.value.maybe_applied
    assert ports.log.heads([KEY]) == {}


def test_pages_starts_with_the_one_that_covers_the_offset(ports: Ports) -> None:
    ports.log.create_head(KEY)
    fill(ports, 5 * TAIL_ROLL_REFS + 1)
    span = 3 * TAIL_ROLL_REFS
    for offset, first in [(0, 0), (span - 1, 0), (span, span), (3 * span + 7, 3 * span)]:
        pages = ports.log.pages(KEY, Offset(offset), 2)
        assert [page.base_offset for page in pages] == [first, first + span][: 5 - first // span]
    assert [page.end_offset for page in ports.log.pages(KEY, Offset(0), 100)] == [span * n for n in range(1, 6)]
    assert list(ports.log.pages(KEY, Offset(5 * span), 100)) == []


def test_pages_of_one_partition_do_not_meet_another(ports: Ports) -> None:
    ports.log.create_head(KEY)
    fill(ports, TAIL_ROLL_REFS)
    assert list(ports.log.pages(OTHER, Offset(0), 10)) == []


def test_raise_log_start_only_rises(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.log.append(KEY, ref(1, span=10), 0)
    assert ports.log.raise_log_start(KEY, Offset(4)).log_start_offset == 4
    assert ports.log.raise_log_start(KEY, Offset(2)).log_start_offset == 4
    assert ports.log.raise_log_start(KEY, Offset(4)).log_start_offset == 4
    assert ports.log.raise_log_start(KEY, Offset(10)).log_start_offset == 10


def test_raise_log_start_is_refused_above_the_high_watermark(ports: Ports) -> None:
    ports.log.create_head(KEY)
    before = ports.log.append(KEY, ref(1, span=10), 0).head
    with pytest.raises(PenstockError) as caught:
        ports.log.raise_log_start(KEY, Offset(11))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert caught.value.facts == {"log_start_offset": 0, "high_watermark": 10}
    assert ports.log.heads([KEY]) == {KEY: before}


def test_raise_log_start_is_refused_when_there_is_no_head(ports: Ports) -> None:
    with pytest.raises(PenstockError) as caught:
        ports.log.raise_log_start(KEY, Offset(0))
    assert caught.value.code is ErrorCode.UNKNOWN_PARTITION


def test_raise_passed_is_refused_once_a_reader_was_counted(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.log.append(KEY, ref(1, span=10), 0)
    assert ports.log.raise_passed(KEY, Offset(4), 1) == (False, ports.log.heads([KEY])[KEY])
    is_raised, head = ports.log.raise_passed(KEY, Offset(4), 0)
    assert (is_raised, head and head.log_start_offset) == (True, 4)
    counted = [ports.log.count_reader(KEY), ports.log.count_reader(KEY)]
    assert [head and head.reader_changes for head in counted] == [1, 2]
    for seen in (0, 1):
        assert not ports.log.raise_passed(KEY, Offset(6), seen)[0]
    assert ports.log.raise_passed(KEY, Offset(6), 2)[0]
    assert not ports.log.raise_passed(KEY, Offset(6), 2)[0], "it is there"
    assert not ports.log.raise_passed(KEY, Offset(5), 2)[0], "it only rises"
    assert not ports.log.raise_passed(KEY, Offset(11), 2)[0], "the log is not so long"
    assert ports.log.heads([KEY])[KEY].log_start_offset == 6


def test_readers_are_not_counted_without_a_head(ports: Ports) -> None:
    assert ports.log.count_reader(KEY) is None
    assert ports.log.raise_passed(KEY, Offset(1), 0) == (False, None)
    assert not ports.log.heads([KEY])


def located_refs(ports: Ports) -> list[LocatedRef]:
    """Every ref, of pages and tail."""
    pages = ports.log.pages(KEY, Offset(0), 1_000)
    return [located for page in pages for located in page.located()] + list(ports.log.heads([KEY])[KEY].located_tail())


@pytest.fixture
def debts(ports: Ports) -> list[LocatedRef]:
    """A page and a half of refs, all of which only zone a holds."""
    ports.log.create_head(KEY)
    for number in range(TAIL_ROLL_REFS * 3 // 2):
        head = ports.log.append(KEY, replace(ref(number), zones=0b001), 0b110).head
        roll_if_due(ports.log, KEY, head)
    return located_refs(ports)


@pytest.mark.parametrize("index", [0, 7, TAIL_ROLL_REFS - 1, TAIL_ROLL_REFS, TAIL_ROLL_REFS * 3 // 2 - 1])
def test_mark_stored_sets_the_bits_in_that_ref_only(ports: Ports, debts: list[LocatedRef], index: int) -> None:
    assert ports.log.mark_stored(KEY, {debts[index]: 0b100})
    marked = replace(debts[index], ref=replace(debts[index].ref, zones=0b101))
    assert located_refs(ports) == [*debts[:index], marked, *debts[index + 1 :]]
    # The other bits of the caller's ref are old by now, which does no harm.
    assert ports.log.mark_stored(KEY, {debts[index]: 0b010})
    assert ports.log.mark_stored(KEY, {debts[index]: 0b110})
    assert located_refs(ports)[index].ref.zones == 0b111


def test_mark_stored_sets_the_bits_of_many_refs_with_one_write_for_a_tail_or_page(
    ports: Ports, debts: list[LocatedRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(debts[0], base_offset=Offset(debts[0].base_offset + 1))
    marks = {located: 0b100 if index % 2 else 0b110 for index, located in enumerate(debts)}
    writes: list[Any] = []
    if isinstance(ports.log, DynamoDbLogIndex):
        client = ports.log._client
        update_if = client.update_if

        def counted(*arguments: Any) -> bool:
            writes.append(arguments)
            return update_if(*arguments)

        monkeypatch.setattr(client, "update_if", counted)
    assert ports.log.mark_stored(KEY, {gone: 0b100, **marks}) == len(debts)
    assert [located.ref.zones for located in located_refs(ports)] == [0b001 | zones for zones in marks.values()]
    assert len(writes) in (0, 2), "in memory there are no writes to count"
    assert ports.log.mark_stored(KEY, marks) == len(debts)
    assert len(writes) in (0, 2), "nothing is written where nothing changes"


def test_mark_stored_finds_a_ref_that_has_rolled_meanwhile(ports: Ports) -> None:
    ports.log.create_head(KEY)
    head = EMPTY_HEAD
    for number in range(TAIL_ROLL_REFS):
        head = ports.log.append(KEY, replace(ref(number), zones=0b011), 0b100).head
    debt = head.located_tail()[5]
    roll(ports.log, KEY)
    assert ports.log.mark_stored(KEY, {debt: 0b100})
    assert [located.ref.zones for located in located_refs(ports)] == [0b011] * 5 + [0b111] + [0b011] * 10


def test_mark_stored_finds_a_ref_that_rolls_between_its_read_and_its_write(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports.log.create_head(KEY)
    head = EMPTY_HEAD
    for number in range(TAIL_ROLL_REFS):
        head = ports.log.append(KEY, replace(ref(number), zones=0b011), 0b100).head
    read = ports.log.heads
    reads = []

    def heads(*arguments: Any) -> Any:
        found = read(*arguments)
        reads.append(found)
        if len(reads) == 1:
            roll(ports.log, KEY)
        return found

    monkeypatch.setattr(ports.log, "heads", heads)
    assert ports.log.mark_stored(KEY, {head.located_tail()[5]: 0b100})
    assert located_refs(ports)[5].ref.zones == 0b111


def test_mark_stored_keeps_what_is_appended_meanwhile(
    ports: Ports, debts: list[LocatedRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ports.log.heads

    def heads(*arguments: Any) -> Any:
        found = read(*arguments)
        monkeypatch.undo()
        ports.log.append(KEY, ref(99), 0)
        return found

    monkeypatch.setattr(ports.log, "heads", heads)
    assert ports.log.mark_stored(KEY, {debts[-1]: 0b100})
    if (rest := located_refs(ports)[len(debts) :]) != []:  # in memory, nothing is read outside the lock
        assert [located.ref for located in rest] == [ref(99)]
    assert located_refs(ports)[len(debts) - 1].ref.zones == 0b101


def test_mark_stored_says_so_when_the_ref_is_gone(ports: Ports, debts: list[LocatedRef]) -> None:
    for index in (3, -1):
        other = replace(debts[index], ref=replace(debts[index].ref, segment_id=SegmentId(b"x" * 16)))
        assert not ports.log.mark_stored(KEY, {other: 0b100})
        shifted = replace(debts[index], base_offset=Offset(debts[index].base_offset + 1))
        assert not ports.log.mark_stored(KEY, {shifted: 0b100})
    assert not ports.log.mark_stored(OTHER, {debts[-1]: 0b100})
    assert located_refs(ports) == debts
    ports.log.delete_head(KEY)
    assert not ports.log.mark_stored(KEY, {debts[-1]: 0b100})
    assert ports.log.heads([KEY]) == {}


def test_note_log_start_is_kept_with_the_head_and_over_appends_and_rolls(ports: Ports) -> None:
    ports.log.create_head(KEY)
    before = fill(ports, 1)
    ports.log.note_log_start(KEY, Offset(3), 77)
    noted = ports.log.heads([KEY])[KEY]
    assert noted == replace(before, noted_log_start=Offset(3), log_start_noted_ms=77)
    head = fill(ports, TAIL_ROLL_REFS - 1)
    assert (head.tail_base, head.noted_log_start, head.log_start_noted_ms) == (3 * TAIL_ROLL_REFS, 3, 77)


def test_note_log_start_is_refused_when_there_is_no_head(ports: Ports) -> None:
    with pytest.raises(PenstockError) as caught:
        ports.log.note_log_start(KEY, Offset(0), 1)
    assert caught.value.code is ErrorCode.UNKNOWN_PARTITION
    assert ports.log.heads([KEY]) == {}


def test_rolled_bytes_count_all_that_ever_left_the_tail(ports: Ports) -> None:
    ports.log.create_head(KEY)
    head = fill(ports, 3 * TAIL_ROLL_REFS + 1)
    assert head.rolled_bytes == 3 * TAIL_ROLL_REFS * 100
    assert [page.rolled_bytes for page in ports.log.pages(KEY, Offset(0), 9)] == [
        number * TAIL_ROLL_REFS * 100 for number in (1, 2, 3)
    ]


def test_delete_page_removes_that_page_only_and_twice_is_no_error(ports: Ports) -> None:
    ports.log.create_head(KEY)
    fill(ports, 3 * TAIL_ROLL_REFS)
    first, second, third = ports.log.pages(KEY, Offset(0), 9)
    for _ in range(2):
        ports.log.delete_page(KEY, second.end_offset)
        assert list(ports.log.pages(KEY, Offset(0), 9)) == [first, third]
    ports.log.delete_page(OTHER, first.end_offset)
    assert list(ports.log.pages(KEY, Offset(0), 9)) == [first, third]


def arm(ports: Ports, seen_next_offset: int, now_ms: int = 5_000) -> tuple[bool, Head | None]:
    return ports.log.arm(KEY, Offset(seen_next_offset), now_ms)


def test_arm_sets_the_waiter_until_an_append_takes_it(ports: Ports) -> None:
    ports.log.create_head(KEY)
    assert arm(ports, 0) == (True, replace(EMPTY_HEAD, waiter_ms=5_000))
    assert ports.log.heads([KEY])[KEY].waiter_ms == 5_000
    assert arm(ports, 0, 6_000) == (True, replace(EMPTY_HEAD, waiter_ms=6_000)), "another reader may come"
    first = ports.log.append(KEY, ref(1), 0)
    assert (first.took_waiter, first.head) == (True, appended(EMPTY_HEAD, ref(1)))
    assert ports.log.heads([KEY]) == {KEY: first.head}
    assert not ports.log.append(KEY, ref(2), 0).took_waiter


def test_arm_is_refused_when_an_append_has_come_between(ports: Ports) -> None:
    ports.log.create_head(KEY)
    head = ports.log.append(KEY, ref(1, span=3), 0).head
    assert arm(ports, 0) == (False, head)
    assert arm(ports, 4) == (False, head)
    assert arm(ports, 3) == (True, replace(head, waiter_ms=5_000))


def test_arm_is_refused_when_there_is_no_head(ports: Ports) -> None:
    assert arm(ports, 0) == (False, None)
    assert ports.log.heads([KEY]) == {}


def test_append_in_sequence_takes_the_waiter_only_when_it_appends(ports: Ports) -> None:
    ports.log.create_head(KEY)
    first = sequenced(1, 0)
    assert first.sequence is not None
    arm(ports, 0)
    done = ports.log.append_in_sequence(KEY, first, 0, first.sequence, None)
    assert (done.is_appended, done.took_waiter, done.head) == (True, True, appended(EMPTY_HEAD, first))
    arm(ports, 3)
    repeated = ports.log.append_in_sequence(KEY, first, 0, first.sequence, None)
    assert (repeated.is_appended, repeated.took_waiter) == (False, False)
    assert repeated.head == ports.log.heads([KEY])[KEY] == replace(done.head, waiter_ms=5_000)


def test_waiter_stays_when_a_roll_an_eviction_or_a_repair_changes_the_head(ports: Ports) -> None:
    ports.log.create_head(KEY)
    for number in range(TAIL_ROLL_REFS):
        _, head = append_sequenced(ports, replace(sequenced(number, 0, producer_id=number), zones=0b011))
    assert arm(ports, head.next_offset)[0]
    located = head.located_tail()[3]
    assert ports.log.mark_stored(KEY, {located: 0b100})
    roll(ports.log, KEY)
    ports.log.raise_log_start(KEY, Offset(2))
    ports.log.note_log_start(KEY, Offset(2), 1_000)
    producers = ports.log.heads([KEY])[KEY].producers
    ports.log.remove_producers(KEY, {number: producers[number] for number in list(producers)[:3]})
    assert ports.log.heads([KEY])[KEY].waiter_ms == 5_000
    assert ports.log.append(KEY, ref(99), 0).took_waiter


def jumped(head: Head, jump: HeadJump) -> Head:
    """The head after the jump: it keeps a reader's waiter, and loses a push waiter."""
    return replace(
        reduce(appended, jump.refs, head), jumps=(*head.jumps, *jump.jumps), restore=jump.restore, has_push_waiter=False
    )


def test_jump_lets_the_head_go_on_behind_it_once(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.log.append(KEY, ref(1), 0)
    ports.log.arm_push(KEY, Offset(3))
    arm(ports, 3)
    first, second = Jump(start=Offset(3), end=Offset(9)), Jump(start=Offset(9), end=Offset(11))
    jump = HeadJump(
        seen_next_offset=Offset(3), jumps=(first, second), refs=(ref(2, span=6), ref(3, span=2)), restore="r-1"
    )
    before = ports.log.heads([KEY])[KEY]
    assert ports.log.jump(KEY, jump, 4) == (True, jumped(before, jump))
    after = ports.log.heads([KEY])[KEY]
    assert after == jumped(before, jump)
    assert (after.next_offset, after.waiter_ms, after.has_push_waiter) == (11, 5_000, False)
    assert ports.log.jump(KEY, jump, 0) == (False, after)
    again = HeadJump(
        seen_next_offset=Offset(11),
        jumps=(Jump(start=Offset(11), end=Offset(12)),),
        refs=(ref(4, span=1),),
        restore="r",
    )
    assert ports.log.jump(KEY, again, 0) == (True, jumped(after, again)), "jumps of several restores, in order"
    assert ports.log.jump(OTHER, jump, 0) == (False, None)
