"""A batch is a repeat only if its bytes are those of the first, wherever the first is found (docs/protocol/log)."""

import struct
from collections import Counter

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import truncate
from tests.service.records.test_idempotence import crowd, numbered, tell
from tests.support.service import (
    Intercepted,
    another_instance,
    appended,
    counted_instance,
    head_of,
    new_topic,
    patient_instance,
    read_all,
    send,
)


@pytest.fixture
def instance() -> Instance:
    return patient_instance()


def refused(instance: Instance, topic: str, *batches: bytes) -> PenstockError:
    with pytest.raises(PenstockError, match="with other bytes") as caught:
        tell(instance, topic, *batches)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE
    return caught.value


def test_batch_of_another_is_not_acknowledged_as_the_next_of_a_producer(instance: Instance) -> None:
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "mine0"))
    tell(instance, topic, numbered(1, "forged"))
    error = refused(instance, topic, numbered(1, "mine1"))
    assert (error.maybe_applied, error.facts["expected_sequence"]) == (False, 2)
    assert tell(instance, topic, numbered(0, "mine1", producer_id=8)) == appended(2, 3)
    assert read_all(instance, topic) == [(0, "mine0"), (1, "forged"), (2, "mine1")]


def test_other_bytes_are_refused_when_the_producer_has_left_the_head(instance: Instance) -> None:
    topic = new_topic(instance)
    first = tell(instance, topic, numbered(0, "a"))
    crowd(instance, topic)
    assert 7 not in head_of(instance, topic).producers
    assert not refused(instance, topic, numbered(0, "b")).maybe_applied
    assert tell(instance, topic, numbered(0, "a")) == first


@pytest.mark.parametrize("appends_since", [0, TAIL_ROLL_REFS])
def test_other_bytes_are_refused_where_the_index_has_the_first(instance: Instance, appends_since: int) -> None:
    topic = new_topic(instance)
    first = tell(instance, topic, numbered(0, "a"))
    tell(instance, topic, numbered(1, "b"))
    for number in range(appends_since):
        send(instance, topic, str(number))
    assert not refused(instance, topic, numbered(0, "x")).maybe_applied
    assert tell(instance, topic, numbered(0, "a")) == first


def test_part_of_a_forged_append_is_refused(instance: Instance) -> None:
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "forged", "forged", "forged"))
    for first in range(3):
        refused(instance, topic, numbered(first, "mine"))


def test_batches_sent_together_repeat_only_as_they_were(instance: Instance) -> None:
    topic = new_topic(instance)
    together = numbered(0, "a"), numbered(1, "b"), numbered(2, "c")
    first = tell(instance, topic, *together)
    assert tell(instance, topic, *together) == first
    assert tell(instance, topic, together[1]) == appended(1, 2)
    assert tell(instance, topic, *together[1:]) == appended(1, 3)
    assert refused(instance, topic, together[0], numbered(1, "x"), together[2]).maybe_applied, "two are there"
    assert not refused(instance, topic, numbered(0, "x"), numbered(1, "y"), numbered(2, "z")).maybe_applied
    assert not refused(instance, topic, numbered(0, "a", "b", "c")).maybe_applied, "other batches, and so other bytes"
    assert len(read_all(instance, topic)) == 3


def test_bytes_outside_of_the_crc_do_not_matter(instance: Instance) -> None:
    topic = new_topic(instance)
    batch = numbered(0, "a")
    first = tell(instance, topic, batch)
    stamped = struct.pack(">q", 77) + batch[8:12] + struct.pack(">i", 5) + batch[16:]
    assert stamped != batch
    assert tell(instance, topic, stamped) == first


def test_other_bytes_are_refused_when_the_first_have_expired(instance: Instance) -> None:
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "a"))
    for number in range(2 * TAIL_ROLL_REFS):
        send(instance, topic, str(number))
    truncate(instance, topic, {0: 20})
    expired = another_instance(instance, log=Intercepted(instance.stores.log, pages_before=lambda *_: []))
    refused(expired, topic, numbered(0, "b"))
    with pytest.raises(PenstockError) as caught:
        tell(expired, topic, numbered(0, "a"))
    assert caught.value.code is ErrorCode.DUPLICATE_SEQUENCE


def test_usual_repeat_reads_no_segment_and_any_other_one_range(instance: Instance) -> None:
    counts: Counter[str] = Counter()
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "a"))
    tell(instance, topic, numbered(1, "b"))
    warm = counted_instance(instance, counts)
    send(warm, topic, "warm")
    counts.clear()
    tell(warm, topic, numbered(1, "b"))
    assert counts == {"zone.put": 3, "log.append_in_sequence": 1}
    counts.clear()
    tell(warm, topic, numbered(0, "a"))
    assert counts == {"zone.put": 3, "log.append_in_sequence": 1, "zone.get": 1}


def test_repeat_says_that_it_may_have_been_applied_when_it_cannot_be_compared(instance: Instance) -> None:
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "a"))
    tell(instance, topic, numbered(1, "b"))

    def away(*_: object) -> bytes:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "away")

    blind = another_instance(instance, zones=[Intercepted(zone, get=away) for zone in instance.stores.zones])
    with pytest.raises(PenstockError) as caught:
        tell(blind, topic, numbered(0, "a"))
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)
