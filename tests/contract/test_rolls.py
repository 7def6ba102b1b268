"""The contract of LogIndex for rolls and evictions, held by the adapters in memory and on DynamoDB."""

from dataclasses import replace

from penstock_core.ids import Offset
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.index import EMPTY_HEAD, Head, Page
from penstock_core.log.roll import next_page, shortened
from penstock_core.records.producer_state import ProducerState
from tests.contract.conftest import Ports
from tests.contract.test_log_index import KEY, OTHER, append_sequenced, located_refs, owned, ref, sequenced
from tests.support.rolling import roll, roll_if_due


def _many_producers(ports: Ports) -> Head:
    """A head that knows 32 producers, whose refs have all left the tail."""
    ports.log.create_head(KEY)
    for number in range(2 * TAIL_ROLL_REFS):
        append_sequenced(ports, sequenced(number, 0, producer_id=number))
    roll(ports.log, KEY)
    roll(ports.log, KEY)
    return ports.log.heads([KEY])[KEY]


def _first(head: Head, count: int) -> dict[int, ProducerState]:
    return {producer_id: head.producers[producer_id] for producer_id in range(count)}


def test_remove_producers_takes_unchanged_entries_and_counts_once(ports: Ports) -> None:
    head = _many_producers(ports)
    leaving = _first(head, 16)
    is_done, after = ports.log.remove_producers(KEY, leaving)
    assert is_done
    staying = {each: state for each, state in head.producers.items() if each not in leaving}
    assert after == replace(head, producers=staying, evictions=1) == ports.log.heads([KEY])[KEY]
    assert ports.log.remove_producers(KEY, leaving) == (False, after)
    assert not append_sequenced(ports, sequenced(99, 0, producer_id=77))[0], "a new producer must look now"


def test_owners_leave_the_head_with_their_producers(ports: Ports) -> None:
    ports.log.create_head(KEY)
    append_sequenced(ports, owned(sequenced(1, 0), b"mine...."))
    _, head = append_sequenced(ports, owned(sequenced(2, 0, producer_id=8), b"others.."))
    leaving = {7: head.producers[7]}
    assert ports.log.remove_producers(KEY, leaving)[0]
    ports.log.put_evicted(KEY, 7, leaving[7], 9)
    assert ports.log.evicted_producer(KEY, 7) == leaving[7]
    looked_at = ports.log.heads([KEY])[KEY].next_offset
    assert append_sequenced(ports, owned(sequenced(3, 0), b"later..."), looked_at)[0], "the entry of 7 is gone"
    left = ports.log.heads([KEY])[KEY].producers
    assert {each: state.owner for each, state in left.items()} == {7: b"later...", 8: b"others.."}


def test_remove_producers_is_refused_when_one_of_them_has_written_since(ports: Ports) -> None:
    leaving = _first(_many_producers(ports), 16)
    _, head = append_sequenced(ports, sequenced(99, 3, producer_id=15))
    assert ports.log.remove_producers(KEY, leaving) == (False, head)
    assert ports.log.heads([KEY]) == {KEY: head}


def test_remove_producers_tells_when_there_is_no_head(ports: Ports) -> None:
    leaving = _first(_many_producers(ports), 1)
    ports.log.delete_head(KEY)
    assert ports.log.remove_producers(KEY, leaving) == (False, None)
    assert ports.log.heads([KEY]) == {}


def test_put_evicted_keeps_the_newest_by_epoch_and_sequence(ports: Ports) -> None:
    assert ports.log.evicted_producer(KEY, 7) is None
    states = [
        ProducerState(epoch=epoch, last_sequence=sequence, written_ms=5_000 - sequence)
        for epoch in (1, 2)
        for sequence in (8, 9, 300)
    ]
    for number, state in enumerate(states):
        ports.log.put_evicted(KEY, 7, state, 1_000)
        for older in states[:number]:
            ports.log.put_evicted(KEY, 7, older, 9_000_000)
        assert ports.log.evicted_producer(KEY, 7) == state
    assert ports.log.evicted_producer(KEY, 8) is None
    assert ports.log.evicted_producer(OTHER, 7) is None


def _due(ports: Ports, zones: int = 0b111) -> tuple[Head, Page]:
    """A head whose tail is long enough for a roll, and the page of that."""
    ports.log.create_head(KEY)
    head = EMPTY_HEAD
    for number in range(TAIL_ROLL_REFS):
        head = ports.log.append(KEY, replace(ref(number), zones=zones), 0).head
    page = next_page(head)
    assert page is not None
    return head, page


def _visible(ports: Ports) -> list[Page]:
    return list(ports.log.pages(KEY, Offset(0), 10))


def test_roll_moves_the_oldest_refs_to_a_page(ports: Ports) -> None:
    _, page = _due(ports)
    behind = ports.log.append(KEY, ref(99), 0).head
    assert ports.log.put_page(KEY, page) == page
    assert ports.log.heads([KEY]) == {KEY: behind}
    is_done, head = ports.log.shorten_tail(KEY, page)
    assert is_done
    assert head == shortened(behind, page) == ports.log.heads([KEY])[KEY]
    assert head.tail == (ref(99),)
    assert _visible(ports) == [page]


def test_shorten_tail_is_refused_when_done_before(ports: Ports) -> None:
    _, page = _due(ports)
    roll(ports.log, KEY)
    after = ports.log.heads([KEY])
    assert ports.log.put_page(KEY, page) == page
    assert ports.log.shorten_tail(KEY, page) == (False, after[KEY])
    assert ports.log.heads([KEY]) == after
    assert _visible(ports) == [page]


def test_shorten_tail_is_refused_when_a_bit_was_set_since(ports: Ports) -> None:
    head, page = _due(ports, zones=0b011)
    ports.log.put_page(KEY, page)
    assert ports.log.mark_stored(KEY, {head.located_tail()[TAIL_ROLL_REFS - 1]: 0b100})
    is_done, now = ports.log.shorten_tail(KEY, page)
    assert not is_done
    assert now == ports.log.heads([KEY])[KEY] != head


def test_shorten_tail_tells_when_the_partition_is_deleted(ports: Ports) -> None:
    _, page = _due(ports)
    ports.log.delete_head(KEY)
    assert ports.log.shorten_tail(KEY, page) == (False, None)
    assert ports.log.heads([KEY]) == {}


def test_put_page_gives_the_page_that_is_there(ports: Ports) -> None:
    head, page = _due(ports, zones=0b011)
    ports.log.put_page(KEY, page)
    other = replace(page, refs=tuple(replace(each, zones=0b101) for each in page.refs))
    assert ports.log.put_page(KEY, other) == page
    both = replace(page, refs=tuple(replace(each, zones=0b111) for each in page.refs))
    assert not ports.log.replace_page(KEY, other, both)
    assert ports.log.replace_page(KEY, page, both)
    assert not ports.log.replace_page(KEY, page, both)
    assert ports.log.put_page(KEY, other) == both
    assert head == ports.log.heads([KEY])[KEY]


def test_replace_page_is_refused_when_there_is_none(ports: Ports) -> None:
    _, page = _due(ports)
    assert not ports.log.replace_page(KEY, page, page)
    assert _visible(ports) == []


def test_refs_of_both_forms_keep_theirs_over_rolls_and_repairs(ports: Ports) -> None:
    ports.log.create_head(KEY)
    wanted = [replace(ref(number), zones=0b001, is_short=number % 3 > 0) for number in range(TAIL_ROLL_REFS + 3)]
    for each in wanted:
        roll_if_due(ports.log, KEY, ports.log.append(KEY, each, 0).head)
    for index in (0, 1, TAIL_ROLL_REFS, TAIL_ROLL_REFS + 2):
        assert ports.log.mark_stored(KEY, {located_refs(ports)[index]: 0b010})
        wanted[index] = replace(wanted[index], zones=0b011)
    assert [located.ref for located in located_refs(ports)] == wanted
    [page] = ports.log.pages(KEY, Offset(0), 1)
    assert page.refs == tuple(wanted[:TAIL_ROLL_REFS])


def test_tag_filter_and_delivery_time_stay_over_appends_rolls_and_repairs(ports: Ports) -> None:
    ports.log.create_head(KEY)
    wanted = [
        replace(ref(number), zones=0b001, tag_filter=2**64 - 1 - number, appended_ms=number or None)
        for number in range(TAIL_ROLL_REFS + 2)
    ]
    for each in wanted:
        roll_if_due(ports.log, KEY, ports.log.append(KEY, each, 0).head)
    assert [located.ref for located in located_refs(ports)] == wanted
    for index in (3, TAIL_ROLL_REFS + 1):
        assert ports.log.mark_stored(KEY, {located_refs(ports)[index]: 0b010})
        wanted[index] = replace(wanted[index], zones=0b011)
    assert [located.ref for located in located_refs(ports)] == wanted
    [page] = ports.log.pages(KEY, Offset(0), 1)
    assert page.max_timestamp_ms == max(each.max_timestamp_ms for each in wanted[:TAIL_ROLL_REFS])
