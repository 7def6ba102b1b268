"""The contract of LogIndex for heads that pushes of a mirror write."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import Offset
from penstock_core.log.index import HELD_LAYOUT, Head, HeldHead
from penstock_core.mirror.push import MirrorAppend
from penstock_core.records.producer_state import ProducerState
from tests.contract.conftest import Ports
from tests.contract.test_log_index import KEY, ref
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
