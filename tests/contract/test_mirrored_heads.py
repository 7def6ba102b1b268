"""The contract of LogIndex for heads that pushes of a mirror write."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import GroupName, Offset, TopicId
from penstock_core.log.index import HELD_LAYOUT, Head, HeldHead
from penstock_core.mirror.group_offsets import NO_OFFSETS, MirroredOffset, MirroredOffsets
from penstock_core.mirror.push import HeadMove, HeadReopening, LogEnd, MirrorAppend
from penstock_core.records.producer_state import ProducerSequence, ProducerState
from tests.contract.conftest import Ports
from tests.contract.test_log_index import KEY, OTHER, ref
from tests.support.refusals import refused

APPEND = MirrorAppend(
    mirror="dr",
    log_id="l1",
    base_offset=Offset(0),
    refs=(ref(1), ref(2)),
    producers={
        7: ProducerState(epoch=1, last_sequence=5, written_ms=9, checksum=3, owner=b"\1" * 8),
        8: ProducerState(epoch=0, last_sequence=2, written_ms=9),
    },
)


@pytest.fixture
def held(ports: Ports) -> Ports:
    ports.log.create_head(KEY, True, HeldHead(mirror="dr", closed_ms=5))
    return ports


def head_of(ports: Ports) -> Head:
    return ports.log.heads([KEY])[KEY]


def test_held_head_is_closed_to_all_but_its_mirror(held: Ports) -> None:
    head = head_of(held)
    assert (head.mirror, head.is_closed, head.layout, head.has_push_waiter) == ("dr", True, HELD_LAYOUT, True)
    refused(ErrorCode.PARTITION_CLOSED, lambda: held.log.append(KEY, ref(1), 0))
    assert held.log.move_to_layout(KEY, 7, None) == head, "no layout opens it"


def test_push_appends_its_refs_and_sets_its_producers_once(held: Ports) -> None:
    armed, _ = held.log.arm(KEY, Offset(0), 1_000)
    assert armed
    done = held.log.append_mirrored(KEY, APPEND, 0b100)
    assert done is not None
    assert (done.is_appended, done.took_waiter) == (True, True)
    head = head_of(held)
    assert head == done.head
    assert (head.next_offset, head.tail, head.log_id) == (6, APPEND.refs, "l1")
    assert dict(head.producers.items()) == APPEND.producers
    assert not head.has_push_waiter
    again = held.log.append_mirrored(KEY, APPEND, 0)
    assert again is not None
    assert (again.is_appended, again.head) == (False, head)


@pytest.mark.parametrize(
    "change",
    [
        lambda: replace(APPEND, base_offset=Offset(6), mirror="other"),
        lambda: replace(APPEND, base_offset=Offset(6), log_id="l2"),
        lambda: replace(APPEND, base_offset=Offset(3)),
        lambda: replace(APPEND, base_offset=Offset(9)),
    ],
    ids=["mirror", "log", "before", "behind"],
)
def test_push_of_another_mirror_log_or_place_is_refused(held: Ports, change: Callable[[], MirrorAppend]) -> None:
    held.log.append_mirrored(KEY, APPEND, 0)
    before = head_of(held)
    done = held.log.append_mirrored(KEY, change(), 0)
    assert done is not None
    assert (done.is_appended, done.head, head_of(held)) == (False, before, before)


def test_log_without_a_name_takes_the_first_push_at_its_begin_only(held: Ports) -> None:
    done = held.log.append_mirrored(KEY, replace(APPEND, base_offset=Offset(3)), 0)
    assert done is not None
    assert (done.is_appended, head_of(held).log_id) == (False, "")


def test_push_to_no_head_or_to_an_open_one_is_refused(ports: Ports) -> None:
    assert ports.log.append_mirrored(KEY, APPEND, 0) is None
    ports.log.create_head(KEY)
    done = ports.log.append_mirrored(KEY, APPEND, 0)
    assert done is not None
    assert not done.is_appended


def test_log_keeps_its_first_name(ports: Ports) -> None:
    assert ports.log.name_log(KEY, "l1") is None
    ports.log.create_head(KEY)
    for name in ("l1", "l2"):
        head = ports.log.name_log(KEY, name)
        assert head is not None
        assert head.log_id == head_of(ports).log_id == "l1"


@pytest.mark.parametrize("closed_ms", [None, 9])
def test_promoted_head_follows_its_layout_and_takes_no_push(held: Ports, closed_ms: int | None) -> None:
    held.log.append_mirrored(KEY, APPEND, 0)
    assert held.log.promote(KEY, "other", 3, None) == head_of(held)
    head = held.log.promote(KEY, "dr", 3, closed_ms)
    assert head is not None
    assert (head.mirror, head.layout, head.promoted_at, head.closed_ms) == ("", 3, 6, closed_ms)
    assert head.closed_offset == (None if closed_ms is None else 6)
    assert held.log.promote(KEY, "dr", 9, None) == head, "a repeat changes nothing"
    done = held.log.append_mirrored(KEY, replace(APPEND, base_offset=Offset(6)), 0)
    assert done is not None
    assert not done.is_appended
    if closed_ms is None:
        assert held.log.append(KEY, ref(3), 0).head.next_offset == 9


def test_promotion_of_no_head_tells_so(ports: Ports) -> None:
    assert ports.log.promote(KEY, "dr", 3, None) is None


def test_head_of_a_topic_of_its_own_takes_the_place_of_one_that_a_mirror_has_left(held: Ports) -> None:
    held.log.create_head(KEY)
    assert held.log.append(KEY, ref(1), 0).head.mirror == ""


def test_mirrored_head_with_records_stays(held: Ports) -> None:
    held.log.append_mirrored(KEY, APPEND, 0)
    before = head_of(held)
    held.log.create_head(KEY)
    assert head_of(held) == before


MOVE = HeadMove(number=1, log_id="l1", now_ms=7)


@pytest.fixture
def moved(ports: Ports) -> Ports:
    ports.log.create_head(KEY)
    ports.log.append(KEY, ref(3), 0)
    ports.log.move(KEY, MOVE)
    return ports


def test_moved_log_ends_for_good(moved: Ports) -> None:
    head = head_of(moved)
    assert (head.next_offset, head.move, head.log_id, head.closed_ms, head.closed_offset) == (3, 1, "l1", 7, 3)
    assert head.has_push_waiter, "no subscription arms it"
    assert head.waiter_ms == 7, "and no reader"
    refused(ErrorCode.PARTITION_CLOSED, lambda: moved.log.append(KEY, ref(1), 0))
    sequence = ProducerSequence(producer_id=7, epoch=0, first_sequence=0, last_sequence=0)
    assert not moved.log.append_in_sequence(KEY, ref(1), 0, sequence, None).is_appended
    assert not moved.log.arm(KEY, Offset(3), 1)[0]
    assert moved.log.move_to_layout(KEY, 7, None) == head
    assert moved.log.move(KEY, replace(MOVE, number=2)) == head, "a log moves once"
    assert moved.log.name_log(KEY, "l2") == head
    moved.log.create_head(KEY)
    assert head_of(moved) == head


def test_retention_goes_on_in_a_moved_log(moved: Ports) -> None:
    assert moved.log.raise_passed(KEY, Offset(1), 0)[0]
    assert not moved.log.raise_passed(KEY, Offset(4), 0)[0]
    assert moved.log.raise_log_start(KEY, Offset(2)).log_start_offset == 2
    assert head_of(moved).log_start_offset == 2
    moved.log.note_log_start(KEY, Offset(2), 9)
    assert head_of(moved).noted_log_start == 2
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: moved.log.raise_log_start(KEY, Offset(4)))


def test_mirrored_log_does_not_move(held: Ports) -> None:
    assert held.log.move(KEY, MOVE) == head_of(held)
    assert head_of(held).move == 0
    assert held.log.move(OTHER, MOVE) is None


@pytest.mark.parametrize(("closed_ms", "log_id"), [(None, ""), (9, "l9")])
def test_reopened_log_goes_on_and_does_not_end_by_the_same_move(
    moved: Ports, closed_ms: int | None, log_id: str
) -> None:
    reopened = HeadReopening(number=1, layout=4, closed_ms=closed_ms, log_id=log_id)
    assert moved.log.reopen(KEY, replace(reopened, number=2)) == head_of(moved)
    head = moved.log.reopen(KEY, reopened)
    assert head is not None
    assert (head.next_offset, head.move, head.reopened_move, head.layout) == (3, 0, 1, 4)
    assert (head.is_closed, head.log_id, head.has_push_waiter) == (closed_ms is not None, log_id or "l1", True)
    assert moved.log.reopen(KEY, reopened) == head, "a repeat changes nothing"
    assert moved.log.move(KEY, MOVE) == head, "a late move"
    if closed_ms is None:
        assert moved.log.append(KEY, ref(1), 0).head.next_offset == 6
    again = moved.log.move(KEY, replace(MOVE, number=2))
    assert again is not None
    assert again.move == 2


def test_moved_log_goes_on_by_pushes_of_where_it_went(moved: Ports) -> None:
    assert moved.log.return_to(KEY, 2, "back") == head_of(moved)
    head = moved.log.return_to(KEY, 1, "back")
    assert head is not None
    assert (head.next_offset, head.mirror, head.move, head.reopened_move, head.layout) == (3, "back", 0, 1, HELD_LAYOUT)
    assert head.is_closed
    assert moved.log.return_to(KEY, 1, "back") == head, "a repeat changes nothing"
    refused(ErrorCode.PARTITION_CLOSED, lambda: moved.log.append(KEY, ref(1), 0))
    done = moved.log.append_mirrored(KEY, replace(APPEND, mirror="back", base_offset=Offset(3)), 0)
    assert done is not None
    assert done.is_appended
    promoted = moved.log.promote(KEY, "back", 5, None)
    assert promoted is not None
    assert moved.log.move(KEY, MOVE) == promoted, "a late move"


@pytest.mark.parametrize("log_id", ["", "l9"])
def test_log_is_not_ended_late_by_a_move_that_was_given_up(ports: Ports, log_id: str) -> None:
    ports.log.create_head(KEY)
    ports.log.append(KEY, ref(3), 0)
    reopened = HeadReopening(number=1, layout=4, closed_ms=None, log_id=log_id)
    head = ports.log.reopen(KEY, reopened)
    assert head is not None
    assert (head.next_offset, head.move, head.reopened_move, head.layout, head.log_id) == (3, 0, 1, 0, log_id)
    assert ports.log.reopen(KEY, replace(reopened, log_id="l8")) == head, "a repeat"
    assert ports.log.move(KEY, MOVE) == head
    assert ports.log.append(KEY, ref(1), 0).head.next_offset == 6
    again = ports.log.move(KEY, replace(MOVE, number=2))
    assert again is not None
    assert again.move == 2


@pytest.mark.parametrize(
    ("end", "is_promoted"),
    [
        (LogEnd(log_id="l1", next_offset=Offset(6)), True),
        (LogEnd(log_id="l1", next_offset=Offset(5)), False),
        (LogEnd(log_id="l1", next_offset=Offset(7)), False),
        (LogEnd(log_id="l2", next_offset=Offset(6)), False),
        (LogEnd(log_id="l1", next_offset=Offset(0)), False),
    ],
)
def test_planned_promotion_takes_a_log_at_its_end(held: Ports, end: LogEnd, is_promoted: bool) -> None:
    held.log.append_mirrored(KEY, APPEND, 0)
    head = held.log.promote(KEY, "dr", 3, None, end)
    assert head is not None
    assert (head.mirror, head.promoted_at) == (("", 6) if is_promoted else ("dr", None))


@pytest.mark.parametrize("name", ["", "of a mirror of the mirror"])
def test_planned_promotion_names_a_log_that_no_push_has_named(held: Ports, name: str) -> None:
    if name:
        held.log.name_log(KEY, name)
    head = held.log.promote(KEY, "dr", 3, None, LogEnd(log_id="l1", next_offset=Offset(0)))
    assert head is not None
    assert (head.promoted_at, head.log_id) == (0, "l1")


def test_offsets_of_groups_take_the_place_of_those_before_them_alone(ports: Ports) -> None:
    def offsets(offset: int) -> MirroredOffsets:
        return MirroredOffsets(
            read_ms=offset, left_out=1, groups={GroupName("g"): {KEY.partition: MirroredOffset(offset=Offset(offset))}}
        )

    topic_id = KEY.topic_id
    assert ports.log.find_offsets(topic_id) is None
    assert ports.log.put_offsets(topic_id, 2, offsets(7)) == (0, NO_OFFSETS), "there is none before it"
    assert ports.log.put_offsets(topic_id, 1, offsets(5)) == (1, offsets(5))
    assert ports.log.put_offsets(topic_id, 2, offsets(6)) == (2, offsets(6))
    for number in (1, 2, 4):
        assert ports.log.put_offsets(topic_id, number, offsets(9)) == (2, offsets(6))
    assert ports.log.find_offsets(topic_id) == offsets(6)
    assert ports.log.find_offsets(TopicId("cd" * 10)) is None
    of_share = replace(offsets(7), share_groups=offsets(7).groups)
    assert ports.log.put_offsets(topic_id, 3, of_share) == (3, of_share)
    assert ports.log.find_offsets(topic_id) == of_share
    ports.log.put_offsets(topic_id, 4, offsets(8))
    assert ports.log.find_offsets(topic_id) == offsets(8), "the share groups have gone"
    ports.log.delete_offsets(topic_id)
    ports.log.delete_offsets(topic_id)
    assert ports.log.find_offsets(topic_id) is None
