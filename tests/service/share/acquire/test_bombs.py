"""Batches that hold far more than they look: an acquire decodes a bounded part, and records behind them come."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import LockNonce
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, FETCH_BYTES_MAX, MIB, READ_DECODED_BYTES_MAX
from penstock_core.records import record_check
from penstock_core.records.codec import NewRecord, Record, decode, encode
from penstock_core.records.record_batch import BytesLike
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire
from penstock_service.share.acquire.decode_acquired import decode_acquired
from tests.service.share.sharing import GROUP, finish, new_group, offsets_in, take
from tests.support.poison import bomb, undecodable_batch
from tests.support.service import new_topic

BOMBS = 6
GOOD = NewRecord(1_000, b"k", b"good", [("type", b"yes")])


def take_as_json(instance: Instance) -> Acquired:
    wish = AcquireWish(nonce=LockNonce("nonce-01"), records_max=100, bytes_max=FETCH_BYTES_MAX)
    try:
        return decode_acquired(instance, acquire(instance, GROUP, wish), lambda record: len(record.value or b""))[0]
    except PenstockError:  # the only records were too large
        return take(instance)


@pytest.mark.parametrize(
    ("config", "acquire"),
    [
        ({"filter": {"type": ["yes"]}}, take),
        ({"ordering": "key"}, take),
        ({"ordering": "key", "filter": {"type": ["yes"]}}, take),
        ({}, take_as_json),
    ],
    ids=["filter", "key", "key and filter", "json"],
)
@pytest.mark.parametrize("poison", [bomb(40 * MIB), undecodable_batch(1)], ids=["bomb", "undecodable"])
def test_acquire_decodes_a_bounded_part_and_reaches_the_record_behind(
    instance: Instance,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    acquire: Callable[[Instance], Acquired],
    poison: bytes,
) -> None:
    decoded: list[int] = []

    def counting(data: BytesLike, note_bytes: Callable[[int], object]) -> Iterator[Record]:
        def note(count: int) -> None:
            decoded.append(count)
            note_bytes(count)

        return decode(data, note)

    monkeypatch.setattr(record_check, "decode", counting)
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead", **config)
    for data in (poison * BOMBS, encode([GOOD])):
        produce(instance, [ProduceEntry(topic="orders", partition=0, data=data)], Acks.QUORUM).all_ok()
    for _ in range(BOMBS + 2):
        decoded.clear()
        acquired = acquire(instance)
        # what looks for keys, what matches the filter, and what makes JSON have a budget each
        assert sum(decoded) <= 2 * (READ_DECODED_BYTES_MAX + BATCH_DECODED_BYTES_MAX)
        if (0, BOMBS) in offsets_in(acquired):
            return
        finish(instance, acquired)
    pytest.fail("the record behind did not come")
