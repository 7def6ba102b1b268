"""The least that a record costs in this Python: loops of the steps that `send` and `poll` cannot leave out.

It has no producer and no consumer, only the calls that any of them makes for each record.
"""

import threading
import time
from collections.abc import Callable

from bench.loads.traced_client import VALUE
from penstock.model import ConsumerRecord
from penstock.producer.delivery import Delivery
from penstock.producer.key_hashing import key_hashing
from penstock_core.records.codec import BatchBuilder, decode
from penstock_core.records.partitioner import murmur2

_BATCH_BYTES = 1 << 28


class _Sends:
    """A `send` that takes its lock, reads the clock, appends to one batch and returns a future."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._append = BatchBuilder(batch_bytes=_BATCH_BYTES).append

    def send(  # noqa: PLR0913 - as Producer.send
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: tuple[()] = (),
        partition: int | None = None,  # noqa: ARG002
        timestamp_ms: int | None = None,
        deliver_at_ms: int | None = None,  # noqa: ARG002
        delay_ms: int | None = None,  # noqa: ARG002
        cancellable: bool = False,  # noqa: ARG002
        on_delivery: None = None,  # noqa: ARG002
    ) -> Delivery:
        timestamp_ms = time.time_ns() // 1_000_000
        with self._lock:
            self._append(timestamp_ms, key, value, headers)
        return Delivery(topic, 0, timestamp_ms)  # type: ignore[arg-type]  # it never asks for its batch


def send(records: int) -> float:
    """The CPU seconds of so many such sends."""
    sends = _Sends()
    begun_s = time.process_time()
    for _ in range(records):
        sends.send("orders", VALUE)
    return time.process_time() - begun_s


def hash_in_python(records: int) -> float:
    """The CPU seconds of murmur2 of so many keys, none of them twice."""
    return _hashed(lambda key, _: murmur2(key), records)


def hash_as_the_producer(records: int) -> float:
    """As `hash_in_python`, by what the producer has found: compiled code, where it is installed."""
    return _hashed(key_hashing(), records)


def read(records: int) -> float:
    """The CPU seconds of so many records from one batch: checked, decoded, and made what `poll` returns."""
    builder = BatchBuilder(batch_bytes=_BATCH_BYTES)
    for _ in range(records):
        builder.append(0, None, VALUE)
    data = builder.build()
    begun_s, make = time.process_time(), tuple.__new__
    for each in decode(data):
        place = ("orders", 0, each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
        make(ConsumerRecord, place)
    return time.process_time() - begun_s


FLOORS: dict[str, Callable[[int], float]] = {
    "a send of a clock, a lock, an append and a future": send,
    "murmur2 of a key, in Python": hash_in_python,
    "murmur2 of a key, as the producer has it": hash_as_the_producer,
    "a record decoded and made": read,
}


def _hashed(hashing: Callable[[bytes, int], int], records: int) -> float:
    keys = [b"customer-%d" % number for number in range(records)]
    begun_s = time.process_time()
    for key in keys:
        hashing(key, 4)
    return time.process_time() - begun_s
