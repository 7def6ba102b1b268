"""What the tests of the use cases set up: batches, further function instances, a stepped clock, ports with faults."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from penstock_broker.adapters.memory import MemorySegmentStore, memory_broker
from penstock_broker.append import Appended
from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_topic
from penstock_broker.directory import TopicDirectory
from penstock_broker.events import Events
from penstock_broker.fetch import Fetched, FetchEntry, fetch
from penstock_broker.group_directory import GroupDirectory
from penstock_broker.held_segments import HeldSegments
from penstock_broker.ports import Clock
from penstock_broker.produce import ProduceEntry, produce
from penstock_broker.zone_directory import ZoneDirectory
from penstock_broker.zone_health import ZoneHealth
from penstock_broker.zone_latency import ZoneLatency
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.limits import FETCH_BYTES_MAX
from penstock_core.quorum import Acks
from penstock_core.record_batch import Compression
from penstock_core.records import NewRecord, decode, encode
from penstock_core.ref import LocatedRef

UNAVAILABLE = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "it does not answer")
LOST_ANSWER = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "the answer was lost", maybe_applied=True)


class Killed(BaseException):
    """The function instance ends here, as Lambda may end it anywhere: nothing in the service catches this."""


class SteppedClock:
    """A clock that only sleeping moves; `on_sleep` is what others do meanwhile."""

    def __init__(self) -> None:
        self.time_ms = 1_000_000.0
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


def patient_broker(clock: Clock | None = None, zones: Iterable[str] = ("a", "b", "c")) -> Broker:
    """A service in memory whose appends wait for every zone that answers, so that what they note is determined."""
    broker = memory_broker(clock=clock, zones=list(zones))
    return replace(broker, straggler_grace_ms=60_000, put_timeout_ms=60_000, hedge_floor_ms=60_000)


def another_instance(broker: Broker, **changes: Any) -> Broker:
    """A second function instance over the same stores, which remembers nothing yet."""
    remembering: dict[str, Any] = {
        "directory": TopicDirectory(broker.topics, broker.clock),
        "group_directory": GroupDirectory(changes.get("memberships", broker.memberships), broker.clock),
        "zone_directory": ZoneDirectory(changes.get("zone_states", broker.zone_states), broker.clock),
        "latency": ZoneLatency(),
        "health": ZoneHealth(),
        "events": Events(),
        "held": HeldSegments(),
    }
    return replace(broker, **(remembering | changes))


def counted_broker(broker: Broker, counts: Counter[str]) -> Broker:
    """The same service, each call to its stores counted; zones as `zone.put` and `zone.get`."""
    topics = Counted(broker.topics, "topics", counts)
    zone_states = Counted(broker.zone_states, "zone_states", counts)
    return another_instance(
        broker,
        topics=topics,
        log=Counted(broker.log, "log", counts),
        groups=Counted(broker.groups, "groups", counts),
        transactions=Counted(broker.transactions, "transactions", counts),
        memberships=Counted(broker.memberships, "memberships", counts),
        zone_states=zone_states,
        zones=[Counted(zone, "zone", counts) for zone in broker.zones],
        archive=Counted(broker.archive, "archive", counts),
        compaction=Counted(broker.compaction, "compaction", counts),
        directory=TopicDirectory(topics, broker.clock),  # type: ignore[arg-type]
    )


def zone_of(broker: Broker, index: int) -> MemorySegmentStore:
    zone = broker.zones[index]
    assert isinstance(zone, MemorySegmentStore)
    return zone


def batch(*values: str, timestamp_ms: int = 1_000, compression: Compression = Compression.NONE) -> bytes:
    return encode([NewRecord(timestamp_ms, None, value.encode()) for value in values], compression)


def new_topic(broker: Broker, name: str = "orders", partitions: int = 1, **config: int | str) -> str:
    return create_topic(broker, name, partitions, config).name


def key_of(broker: Broker, topic: str, partition: int = 0) -> PartitionKey:
    return PartitionKey(broker.directory.look_up(topic).topic_id, Partition(partition))


def head_of(broker: Broker, topic: str, partition: int = 0) -> Head:
    key = key_of(broker, topic, partition)
    return broker.log.heads([key])[key]


def refs_of(broker: Broker, key: PartitionKey) -> list[LocatedRef]:
    """All refs of a partition, in pages and tail."""
    pages = broker.log.pages(key, Offset(0), 100)
    return [each for page in pages for each in page.located()] + list(broker.log.heads([key])[key].located_tail())


def entry(topic: str, partition: int, *batches: bytes) -> ProduceEntry:
    return ProduceEntry(topic=topic, partition=partition, data=b"".join(batches))


def send(broker: Broker, topic: str, *values: str, partition: int = 0, acks: Acks = Acks.QUORUM) -> Appended:
    """One batch of the values in one append; raises what it was refused with."""
    [result] = produce(broker, [entry(topic, partition, batch(*values))], acks)
    if isinstance(result, PenstockError):
        raise result
    return result


def ask(
    broker: Broker,
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_bytes: int = FETCH_BYTES_MAX,
    min_bytes: int = 1,
    wait_ms: int = 0,
) -> Fetched:
    """One partition's part of a fetch; raises its error."""
    wanted = FetchEntry(topic=topic, partition=partition, offset=offset, max_bytes=max_bytes)
    [result] = fetch(broker, [wanted], max_bytes=max_bytes, min_bytes=min_bytes, wait_ms=wait_ms)
    if isinstance(result, PenstockError):
        raise result
    return result


def values_of(fetched: Fetched, start: int = 0) -> list[tuple[int, str]]:
    """The records from `start` on, as a consumer sees them."""
    return [
        (record.offset, (record.value or b"").decode()) for record in decode(fetched.data) if record.offset >= start
    ]


def read_all(
    broker: Broker, topic: str, partition: int = 0, offset: int = 0, max_bytes: int = FETCH_BYTES_MAX
) -> list[tuple[int, str]]:
    """Fetch after fetch from `offset` to the end; each must go on exactly where the one before ended."""
    records: list[tuple[int, str]] = []
    while True:
        fetched = ask(broker, topic, offset, partition=partition, max_bytes=max_bytes)
        found = values_of(fetched, offset)
        assert [number for number, _ in found] == list(range(offset, fetched.next_offset))
        records += found
        if fetched.next_offset == fetched.high_watermark:
            return records
        assert fetched.next_offset > offset, "a fetch below the high watermark must move on"
        offset = fetched.next_offset
