"""Restores of the log table: the tables of some moments come back later, and no live record has lost its item.

A restored table has the items and copies of its moment, and no TTL until the restore turns it on. Objects are left out:
the sweep may have removed them since (docs/how-to/restore.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from penstock.transports.restoring import jump_topics
from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey, SegmentId
from penstock_core.limits import RAISE_SETTLED_MS, UNLIMITED
from penstock_core.log.topic import Topic
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.table_stores import table_stores
from penstock_service.adapters.memory.service import MemorySegmentStore
from penstock_service.adapters.tables.tables import Tables
from penstock_service.index.reader import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Runtime
from penstock_service.records.jump_heads import Restore
from penstock_service.retention.keep_items import keep_items
from penstock_service.retention.retain import retain
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import GRACE_MS, Simulation
from tests.support.interleaving import InOrder

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_WITHOUT_END = 1e12
_MANY = 1_000_000
_BACKUPS_MAX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backup:
    """The items of all tables at a moment, and the segments that were items then."""

    at_ms: float
    restored_ms: float
    items: Mapping[str, Sequence[Mapping[str, Any]]]
    segments: frozenset[SegmentId]


class RestoreCheck:
    """Copies the tables at some moments, and restores each copy once the run is over."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._random = Random(f"restores {simulation.scheduler.random.random()}")
        self._backups: list[_Backup] = []

    def take(self) -> None:
        """Copy the tables as they are, a few times at most. A raise has just come, perhaps, and no walk after it."""
        if len(self._backups) == _BACKUPS_MAX:
            return
        storage, now_ms = self._simulation.storage, self._simulation.scheduler.now_ms
        later_ms = self._random.choice([_HOUR_MS, 12 * _DAY_MS, 20 * _DAY_MS, 34 * _DAY_MS])
        self._backups.append(
            _Backup(
                at_ms=now_ms,
                restored_ms=now_ms + later_ms,
                items={
                    name: [stored[0] for stored in table.items()]
                    for name, table in storage.tables.tables._tables.items()
                },
                segments=frozenset(storage.inline_segments | storage.expiring_segments),
            )
        )

    def check(self) -> None:
        """Restore each copy, and check that records which the topic keeps have their item, for weeks."""
        for backup in self._backups:
            self._simulation.count("restore")
            self._check(backup)

    def _check(self, backup: _Backup) -> None:
        clock = _Clock(EPOCH_MS + backup.restored_ms)
        entropy = _Entropy(self._random)
        tables = Tables(clock.now_ms)
        for name, items in backup.items.items():
            for item in items:
                tables.put_item(TableName=name, Item=item)
        zones = [_copy(store) for store in self._simulation.stores.zones]
        stores = replace(self._simulation.stores, zones=zones, **table_stores(DynamoDbClient(tables, clock, entropy)))
        instance = Instance.new(stores, Runtime(clock=clock, entropy=entropy, executor=InOrder()))
        harmed = self._simulation.stores.log
        for each in jump_topics(instance, Restore(restore_id=f"{backup.at_ms}", harmed=harmed), lambda _: None):
            expect(not isinstance(each.outcome, PenstockError), f"{each.topic} was not restored: {each.outcome}")
        for pause_ms in (0, RAISE_SETTLED_MS, 3 * _DAY_MS, 10 * _DAY_MS):
            clock.time_ms += pause_ms
            if pause_ms:
                keep_items(instance, budget_ms=_WITHOUT_END)
                retain(instance, budget_ms=_WITHOUT_END, grace_ms=GRACE_MS)
            tables.expire(_MANY)  # the TTL is on
            for topic in instance.stores.topics.list():
                self._check_topic(instance, backup, topic)

    def _check_topic(self, instance: Instance, backup: _Backup, topic: Topic) -> None:
        now_ms = instance.clock.now_ms() + CLOCK_SKEW_MS
        config = topic.config
        for partition in topic.all_partitions():
            key = PartitionKey(topic.topic_id, partition)
            at_ms = {each.base_offset: each.at_ms for each in self._simulation.oracle.log.appends.get(key, ())}
            for located in refs_of(instance.stores.log, key, 0):
                segment_id = located.ref.segment_id
                if not located.ref.tier.is_item or segment_id not in backup.segments:
                    continue
                is_kept = not config.is_expiring or config.retention_ms == UNLIMITED
                if is_kept or now_ms - (EPOCH_MS + at_ms[int(located.base_offset)]) < config.retention_ms:
                    is_there = bool(instance.stores.inline.get_expiring([segment_id]))
                    expect(is_there, f"a restore has lost the item of {key} at {located.base_offset}: {located.ref}")
                    self._simulation.count("item restored")


def _copy(store: Any) -> MemorySegmentStore:
    copied = MemorySegmentStore(store.zone, store.layout)
    copied.segments = dict(store.segments)
    return copied


class _Clock:
    """The time of a restored stage, which the check steps."""

    def __init__(self, time_ms: float) -> None:
        self.time_ms = time_ms

    def now_ms(self) -> int:
        return int(self.time_ms)

    def monotonic_ms(self) -> float:
        return self.time_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.time_ms += duration_ms


class _Entropy:
    def __init__(self, random: Random) -> None:
        self._random = random

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def random(self) -> float:
        return self._random.random()
