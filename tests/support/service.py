"""The set-up of the tests of use cases: batches, further function instances, a stepped clock, ports with faults."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey
from penstock_core.limits import FETCH_BYTES_MAX
from penstock_core.log.index import Head
from penstock_core.log.ref import LocatedRef
from penstock_core.outcomes import Outcome
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import MemorySegmentStore, memory_instance
from penstock_service.instance.instance import Instance, RecentReads, Tuning
from penstock_service.ports.runtime import Clock, Executor
from penstock_service.records.append import AppendedRange
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.topics.create_topic import create_topic

UNAVAILABLE = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "it does not answer")
LOST_ANSWER = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "the answer was lost", maybe_applied=True)


class Killed(BaseException):
    """The function instance ends here, as Lambda may end it anywhere: nothing in the service catches this."""


START_MS = 1_000_000  # also the number of the first transaction of an id that begins then


class SteppedClock:
    """A clock that only sleeping moves; `on_sleep` is what others do meanwhile."""

    def __init__(self) -> None:
        self.time_ms = float(START_MS)
        self.sleeps: list[float] = []
        self.on_sleep: Callable[[], object] = lambda: None

    def now_ms(self) -> int:
        return int(self.time_ms)

    def monotonic_ms(self) -> float:
        return self.time_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.sleeps.append(duration_ms)
        self.time_ms += duration_ms
        self.on_sleep()


class FrozenClock:
    """The clock of one process. Its monotonic part stood still for `frozen_ms`, the other was set back."""

    def __init__(self, clock: SteppedClock) -> None:
        self._clock = clock
        self.frozen_ms = 0.0
        self.set_back_ms = 0

    def freeze(self, duration_ms: int) -> None:
        """Time passes for all but this process's monotonic clock."""
        self._clock.time_ms += duration_ms
        self.frozen_ms += duration_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() - self.set_back_ms

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms() - self.frozen_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._clock.sleep_ms(duration_ms)


class Intercepted:
    """A port whose named methods go through a hook first: `hook(original, *arguments)`."""

    def __init__(self, port: Any, **hooks: Callable[..., Any]) -> None:
        self._port = port
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._port, name)
        hook = self._hooks.get(name)
        return original if hook is None else partial(hook, original)


class Counted:
    """A port whose calls are counted under `<label>.<method>`."""

    def __init__(self, port: Any, label: str, counts: Counter[str]) -> None:
        self._port = port
        self._label = label
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            self._counts[f"{self._label}.{name}"] += 1
            return found(*arguments)

        return call


class SeededEntropy:
    """Entropy of a seed: a test that counts calls must not depend on chance."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        """The next bytes."""
        return self._random.randbytes(count)


def patient_instance(clock: Clock | None = None, zones: Iterable[str] = ("a", "b", "c"), seed: int = 0) -> Instance:
    """A service in memory whose appends wait for every zone that answers, so that what they note is determined.

    Its random bytes follow from the seed.
    """
    return with_tuning(
        memory_instance(clock=clock, entropy=SeededEntropy(seed), zones=list(zones)),
        straggler_grace_ms=60_000,
        put_timeout_ms=60_000,
        hedge_floor_ms=60_000,
    )


def with_stores(other: Instance, **ports: Any) -> Instance:
    """The same instance with all that it remembers, with other stores under these names."""
    return replace(other, stores=replace(other.stores, **ports))


def with_tuning(other: Instance, **tuning: Any) -> Instance:
    """The same instance with all that it remembers, tuned otherwise."""
    return replace(other, tuning=replace(other.tuning, **tuning))


class _NoReads(RecentReads):
    def keep(self, contents: Mapping[LocatedRef, Outcome[memoryview]]) -> None:
        """Keeps nothing."""


def without_recent_reads(other: Instance) -> Instance:
    """The same instance, whose next fetch gets the bytes anew."""
    return replace(other, recent_reads=_NoReads(other.clock))


def another_instance(
    other: Instance, *, executor: Executor | None = None, clock: Clock | None = None, **changes: Any
) -> Instance:
    """A second function instance, which remembers nothing yet; `changes` are other stores and other tuning."""
    tuned = {each.name for each in fields(Tuning)} & changes.keys()
    stores = replace(other.stores, **{name: port for name, port in changes.items() if name not in tuned})
    return Instance.new(
        stores,
        replace(other.runtime, executor=executor or other.executor, clock=clock or other.clock),
        replace(other.tuning, **{name: changes[name] for name in tuned}),
    )


def counted_instance(other: Instance, counts: Counter[str]) -> Instance:
    """A new instance, each call to its stores counted; zones as `zone.put` and `zone.get`."""
    names = (
        "topics", "log", "groups", "transactions", "memberships", "share", "zone_states", "archive", "compaction",
        "inline", "timers",
    )  # fmt: skip
    ports = {name: Counted(getattr(other.stores, name), name, counts) for name in names}
    zones = [Counted(zone, "zone", counts) for zone in other.stores.zones]
    return another_instance(other, **ports, zones=zones)


def zone_of(instance: Instance, index: int) -> MemorySegmentStore:
    zone = instance.stores.zones[index]
    assert isinstance(zone, MemorySegmentStore)
    return zone


def batch(*values: str, timestamp_ms: int = 1_000, compression: Compression = Compression.NONE) -> bytes:
    return encode([NewRecord(timestamp_ms, None, value.encode()) for value in values], compression)


def new_topic(instance: Instance, name: str = "orders", partitions: int = 1, **config: int | str) -> str:
    return create_topic(instance, name, partitions, config).name


def filled_topic(instance: Instance, name: str = "orders", partitions: int = 1, records: int = 100) -> str:
    """A topic with so many records in each partition."""
    topic = new_topic(instance, name, partitions)
    for partition in range(partitions):
        send(instance, topic, *map(str, range(records)), partition=partition)
    return topic


def key_of(instance: Instance, topic: str, partition: int = 0) -> PartitionKey:
    return PartitionKey(instance.topic_cache.read_through(topic).topic_id, Partition(partition))


def head_of(instance: Instance, topic: str, partition: int = 0) -> Head:
    key = key_of(instance, topic, partition)
    return instance.stores.log.heads([key])[key]


def refs_of(instance: Instance, key: PartitionKey) -> list[LocatedRef]:
    """All refs of a partition, in pages and tail."""
    pages = instance.stores.log.pages(key, Offset(0), 100)
    return [each for page in pages for each in page.located()] + list(
        instance.stores.log.heads([key])[key].located_tail()
    )


def entry(topic: str, partition: int, *batches: bytes) -> ProduceEntry:
    return ProduceEntry(topic=topic, partition=partition, data=b"".join(batches))


def appended(base_offset: int, next_offset: int) -> AppendedRange:
    return AppendedRange(base_offset=Offset(base_offset), next_offset=Offset(next_offset))


def send(instance: Instance, topic: str, *values: str, partition: int = 0, acks: Acks = Acks.QUORUM) -> AppendedRange:
    """One batch of the values in one append; raises what it was refused with."""
    [result] = produce(instance, [entry(topic, partition, batch(*values))], acks)
    if isinstance(result, PenstockError):
        raise result
    return result


def ask(
    instance: Instance,
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_bytes: int = FETCH_BYTES_MAX,
    min_bytes: int = 1,
    wait_ms: int = 0,
) -> FetchResult:
    """One partition's part of a fetch; raises its error."""
    wanted = FetchEntry(topic=topic, partition=partition, offset=offset, max_bytes=max_bytes)
    [result] = fetch(instance, [wanted], max_bytes=max_bytes, min_bytes=min_bytes, wait_ms=wait_ms)
    if isinstance(result, PenstockError):
        raise result
    return result


def values_of(fetched: FetchResult, start: int = 0) -> list[tuple[int, str]]:
    """The records from `start` on, as a consumer sees them."""
    return [
        (record.offset, (record.value or b"").decode()) for record in decode(fetched.data) if record.offset >= start
    ]


def read_all(
    instance: Instance, topic: str, partition: int = 0, offset: int = 0, max_bytes: int = FETCH_BYTES_MAX
) -> list[tuple[int, str]]:
    """Fetch after fetch from `offset` to the end; each must go on exactly where the one before ended."""
    records: list[tuple[int, str]] = []
    while True:
        fetched = ask(instance, topic, offset, partition=partition, max_bytes=max_bytes)
        found = values_of(fetched, offset)
        assert [number for number, _ in found] == list(range(offset, fetched.next_offset))
        records += found
        if fetched.next_offset == fetched.high_watermark:
            return records
        assert fetched.next_offset > offset, "a fetch below the high watermark must move on"
        offset = fetched.next_offset
