"""A log that is compacted, with the records that a reader must find, may find, and must not find."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.filter import tags_of
from penstock_core.log.index import Head
from penstock_core.records.codec import BatchBuilder, Headers, NewRecord, decode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import CompactionResult, compact
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.topics.alter_topic import truncate
from penstock_service.topics.create_topic import create_topic
from tests.support.interleaving import InOrder
from tests.support.service import SteppedClock, ask, head_of, key_of, patient_instance

FOR_EVER, HOUR_MS, DAY_MS = 10**9, 3_600_000, 24 * 3_600_000
RETENTION_MS, DELETE_RETENTION_MS = 2 * DAY_MS, DAY_MS
_PRODUCER_ID = 7

Told = tuple[bytes | None, bytes | None, Headers]  # key, value, headers
Found = tuple[int, bytes | None, bytes | None, int, Headers]  # offset, key, value, timestamp, headers
Step = tuple[str, Any]


@dataclass(slots=True, kw_only=True)
class CompactedLog:
    """One partition of a service in memory, under a clock of its own.

    `passes` are the ends and times of cleanings that finished. `removed_below` bounds truncation and retention.
    """

    policy: str
    settings: CompactionSettings
    clock: SteppedClock = field(default_factory=SteppedClock)
    instance: Instance = field(init=False)
    topic: str = "orders"
    appended: list[Found] = field(default_factory=list)
    numbered: list[tuple[bytes, AppendedRange]] = field(default_factory=list)
    passes: list[tuple[int, int]] = field(default_factory=list)
    removed_below: int = 0

    def __post_init__(self) -> None:
        self.instance = replace(patient_instance(self.clock), executor=InOrder())
        config = {
            "cleanup_policy": self.policy,
            "retention_ms": RETENTION_MS,
            "delete_retention_ms": DELETE_RETENTION_MS,
            "index_tags": True,
        }
        create_topic(self.instance, self.topic, 1, config)

    @property
    def head(self) -> Head:
        return head_of(self.instance, self.topic)

    def append(
        self, records: Iterable[Told], compression: Compression = Compression.NONE, *, is_numbered: bool = False
    ) -> None:
        made = [NewRecord(self.clock.now_ms(), *each) for each in records]
        builder = BatchBuilder(compression)
        for each in made:
            assert builder.append(*each)
        if is_numbered:
            first = sum(appended.next_offset - appended.base_offset for _, appended in self.numbered)
            data = builder.build(producer_id=_PRODUCER_ID, producer_epoch=0, base_sequence=first)
        else:
            data = builder.build()
        appended = self._produce(data)
        assert isinstance(appended, AppendedRange), appended
        assert appended.base_offset == len(self.appended)
        self.appended += [
            (appended.base_offset + index, each.key, each.value, each.timestamp_ms, tuple(each.headers))
            for index, each in enumerate(made)
        ]
        if is_numbered:
            self.numbered.append((data, appended))

    def repeat(self, number: int) -> None:
        """The idempotent producer sends one of its batches again.

        The answer is the first answer, or the batch is refused as a duplicate.
        """
        if self.numbered:
            data, first = self.numbered[number % len(self.numbered)]
            answer = self._produce(data)
            is_refused = isinstance(answer, PenstockError) and answer.code is ErrorCode.DUPLICATE_SEQUENCE
            assert answer == first or is_refused
            assert self.head.next_offset == len(self.appended)

    def compact(self, **changes: Any) -> CompactionResult:
        done = compact(self.instance, self.topic, 0, replace(self.settings, **changes))
        key, now_ms = key_of(self.instance, self.topic), self.clock.now_ms()
        state = self.instance.stores.compaction.acquire(key, now_ms, now_ms)
        assert state is not None
        self.instance.stores.compaction.save(key, replace(state, deadline_ms=0))
        self.passes += [(each.end_offset, each.at_ms) for each in state.cleaned if each.at_ms == now_ms]
        return done

    def truncate(self, offset: int) -> None:
        truncate(self.instance, self.topic, {0: offset})
        self.removed_below = max(self.removed_below, offset)

    def retain(self) -> None:
        """Retention and sweep. The log start may rise over expired records only, whether the offsets still have records
        or not.
        """
        retain(self.instance, budget_ms=FOR_EVER)
        if "delete" in self.policy:
            expired_ms = self.clock.now_ms() - RETENTION_MS
            kept = (offset for offset, _, _, time_ms, _ in self.appended if time_ms > expired_ms)
            self.removed_below = max(self.removed_below, next(kept, len(self.appended)))
        sweep(self.instance, budget_ms=FOR_EVER)
        assert self.head.log_start_offset <= self.removed_below

    def take(self, step: Step) -> None:
        """Carry out one of STEPS."""
        match step:
            case "append", batches:
                for each in batches:
                    self.append(*each[:2], is_numbered=each[2])
            case "repeat", number:
                self.repeat(number)
            case "compact", keys_max:
                done = self.compact(keys_max=keys_max)
                assert not done.failures, done.errors
            case "truncate", share:
                self.truncate(int(share * len(self.appended)))
            case "retain", _:
                self.retain()
            case _, time_ms:
                self.clock.time_ms += time_ms

    def needed(self) -> set[Found]:
        """The records that must be there, apart from those below the log start.

        In a cleaned log these are the newest record of each key, and all records without a key. A tombstone may go when
        a pass has left it alone for long enough.
        """
        if "compact" not in self.policy:
            return set(self.appended)
        alone = self.clock.now_ms() - DELETE_RETENTION_MS
        tombstones_from = max((end for end, at_ms in self.passes if at_ms <= alone), default=0)
        newest = {key: offset for offset, key, *_ in self.appended}
        return {
            each
            for each in self.appended
            if each[1] is None or (newest[each[1]] == each[0] and (each[2] is not None or each[0] >= tombstones_from))
        }

    def superseded(self) -> set[Found]:
        """The records that must be gone: those below the end of a pass with a newer record of their key, also below
        that end.
        """
        end = max((end for end, _ in self.passes), default=0)
        newest = {key: offset for offset, key, *_ in self.appended[:end]}
        return {each for each in self.appended[:end] if each[1] is not None and newest[each[1]] != each[0]}

    def check(self, found: Sequence[Found], start: int, end: int) -> None:
        """Check that these are the records that a reader must find in `[start, end)`: in place, in order, and once."""
        self._check(found, start, end, self.needed(), self.superseded())

    def check_from_every_offset(self, max_bytes: int = 300) -> list[Found]:
        """Fetch from each offset, and check that a consumer there finds what it must, and moves on. Returns all records
        found.

        So a consumer that moves on reads as one that starts at the offset it came to.
        """
        head, needed, superseded = self.head, self.needed(), self.superseded()
        all_found: list[Found] = []
        for offset in range(head.log_start_offset, head.next_offset):
            fetched = ask(self.instance, self.topic, offset, max_bytes=max_bytes)
            assert offset < fetched.next_offset <= fetched.high_watermark == head.next_offset
            found = [
                (each.offset, each.key, each.value, each.timestamp, tuple(each.headers))
                for each in decode(fetched.data)
                if each.offset >= offset
            ]
            self._check(found, offset, fetched.next_offset, needed, superseded)
            all_found += [each for each in found if each[0] == offset]
        return all_found

    def _check(self, found: Sequence[Found], start: int, end: int, needed: set[Found], superseded: set[Found]) -> None:
        wanted = set(self.appended[start:end])
        assert [each[0] for each in found] == sorted({each[0] for each in found})
        assert needed & wanted <= set(found) <= wanted - superseded

    def _produce(self, data: bytes) -> AppendedRange | PenstockError:
        bits = 0
        for record in decode(data):
            bits |= tags_of(record.headers)
        entry = ProduceEntry(topic=self.topic, partition=0, data=data, tag_filter=bits)  # so refs are of version 3
        [result] = produce(self.instance, [entry], Acks.QUORUM)
        return result


_KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"a key of more than sixteen bytes"])
_VALUES = st.sampled_from([None, b"", b"x", b"y" * 40])
_HEADERS = st.sampled_from([(), (("name", b"1"),), (("tag", b"1"),), (("name", None), ("name", b""))])
_BATCHES = st.tuples(
    st.lists(st.tuples(_KEYS, _VALUES, _HEADERS), min_size=1, max_size=3), st.sampled_from(Compression), st.booleans()
)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(_BATCHES, min_size=16, max_size=40)),
    st.tuples(st.just("repeat"), st.integers(0, 1_000)),
    st.tuples(st.just("compact"), st.integers(1, 40)),
    st.tuples(st.just("truncate"), st.floats(0, 0.4)),
    st.tuples(st.just("retain"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([HOUR_MS, DAY_MS, 3 * DAY_MS])),
)
"""The steps of a CompactedLog, which `take` carries out."""
