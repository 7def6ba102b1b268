"""The log against a plain list: any order of appends, reads, truncations, outages, lost answers and rolls that fail."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.index import Head
from penstock_core.log.ref import Ref
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.records.produce import produce
from penstock_service.topics.alter_topic import truncate
from penstock_service.topics.describe_topic import describe_topic
from penstock_service.topics.list_offsets import OffsetSpec, list_offsets
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    entry,
    new_topic,
    patient_instance,
    values_of,
    zone_of,
)

PARTITIONS = 2
NEEDED = {Acks.NONE: 1, Acks.ONE: 1, Acks.QUORUM: 2, Acks.ALL: 2}


class LogMachine(RuleBasedStateMachine):
    """`records[p]` is what partition p must hold from offset 0 on, `starts[p]` its log start."""

    @initialize()
    def begin(self) -> None:
        self.fate = "applied"
        self.rolls_fail = False
        self.inner = patient_instance(SteppedClock())
        log = Intercepted(self.inner.stores.log, append=self._append, roll=self._roll)
        self.instances: list[Instance] = [another_instance(self.inner, log=log) for _ in range(2)]
        new_topic(self.inner, partitions=PARTITIONS)
        self.records: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.starts = [0] * PARTITIONS
        self.zones_of: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.sent = 0

    def _append(self, original: Any, key: PartitionKey, ref: Ref, unconfirmed: int) -> Head:
        if self.fate == "refused":
            raise UNAVAILABLE
        head: Head = original(key, ref, unconfirmed)
        self.zones_of[key.partition] += [ref.zones] * ref.offset_span
        if self.fate == "answer lost":
            raise LOST_ANSWER
        return head

    def _roll(self, original: Any, *arguments: Any) -> bool:
        if self.rolls_fail:
            raise UNAVAILABLE
        return bool(original(*arguments))

    @rule(
        other=st.integers(0, 1),
        shape=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2), min_size=PARTITIONS, max_size=PARTITIONS),
        acks=st.sampled_from(Acks),
        fate=st.sampled_from(["applied", "applied", "applied", "refused", "answer lost"]),
        times=st.integers(1, 20),
    )
    def produce(self, other: int, shape: list[list[int]], acks: Acks, fate: str, times: int) -> None:
        for _ in range(times):
            self._produce_once(self.instances[other], shape, acks, fate)

    def _produce_once(self, instance: Instance, shape: list[list[int]], acks: Acks, fate: str) -> None:
        values: list[list[list[str]]] = []
        for counts in shape:
            values.append([])
            for count in counts:
                values[-1].append([str(self.sent + number) for number in range(count)])
                self.sent += count
        entries = [
            entry("orders", number, *(batch(*group) for group in groups)) for number, groups in enumerate(values)
        ]
        self.fate = fate
        up = sum(1 << zone for zone in range(3) if not zone_of(self.inner, zone).is_down)
        refusal: PenstockError | None = None
        try:
            results = produce(instance, entries, acks)
        except PenstockError as error:
            refusal = error
        if refusal is not None:
            assert (refusal.code, refusal.maybe_applied) == (ErrorCode.NOT_ENOUGH_ZONES, False)
            states = self.inner.stores.zone_states.get()
            usable = up & states.written(self.inner.stores.zone_names)
            is_short = acks is Acks.ALL and states.in_sync(self.inner.stores.zone_names) & ~up
            assert usable.bit_count() < NEEDED[acks] or is_short
            return
        assert up.bit_count() >= NEEDED[acks]
        if acks is Acks.ALL:
            assert not self.inner.stores.zone_states.get().in_sync(self.inner.stores.zone_names) & ~up
        for number, (groups, result) in enumerate(zip(values, results, strict=True)):
            flat = [value for group in groups for value in group]
            if isinstance(result, PenstockError):
                assert (fate, result.maybe_applied) in (("refused", False), ("answer lost", True))
            else:
                assert result.base_offset == len(self.records[number])
                assert result.next_offset == result.base_offset + len(flat)
            if fate != "refused":
                self.records[number] += flat

    @rule(other=st.integers(0, 1), partition=st.integers(0, PARTITIONS - 1), data=st.data())
    def fetch(self, other: int, partition: int, data: st.DataObject) -> None:
        end = len(self.records[partition])
        offset = data.draw(st.integers(self.starts[partition], end), "offset")
        max_bytes = data.draw(st.sampled_from([1, 100, 300, 2_000, 100_000]), "max_bytes")
        is_readable = all(self._is_readable(zones) for zones in self.zones_of[partition][offset:])
        wanted = FetchEntry(topic="orders", partition=partition, offset=offset, max_bytes=max_bytes)
        [fetched] = fetch(self.instances[other], [wanted], max_bytes=max_bytes, min_bytes=1, wait_ms=0)
        if isinstance(fetched, PenstockError):
            assert fetched.code is ErrorCode.STORAGE_UNAVAILABLE
            assert not is_readable, "some zone that is up has it"
            return
        found = [value for number, value in values_of(fetched) if number >= offset]
        assert found == self.records[partition][offset : fetched.next_offset]
        assert (fetched.log_start_offset, fetched.high_watermark) == (self.starts[partition], end)
        assert fetched.next_offset > offset or offset == end

    def _is_readable(self, zones: int) -> bool:
        return any(zones >> zone & 1 and not zone_of(self.inner, zone).is_down for zone in range(3))

    @rule(partition=st.integers(0, PARTITIONS - 1), data=st.data())
    def truncate(self, partition: int, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.records[partition]) + 1), "offset")
        [result] = truncate(self.instances[0], "orders", {partition: offset})
        if offset > len(self.records[partition]):
            assert isinstance(result, PenstockError)
            assert result.code is ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            self.starts[partition] = max(self.starts[partition], offset)
            assert isinstance(result, Head)
            assert result.log_start_offset == self.starts[partition]

    @rule(zone=st.integers(0, 2), is_down=st.booleans())
    def outage(self, zone: int, is_down: bool) -> None:
        zone_of(self.inner, zone).is_down = is_down

    @rule(fail=st.booleans())
    def rolls(self, fail: bool) -> None:
        self.rolls_fail = fail

    @precondition(lambda self: any(self.records))
    @rule()
    def read_everything_with_all_zones_up(self) -> None:
        downs = [zone_of(self.inner, zone).is_down for zone in range(3)]
        for zone in range(3):
            zone_of(self.inner, zone).is_down = False
        for partition, records in enumerate(self.records):
            offset = self.starts[partition]
            while offset < len(records):
                fetched = ask(self.inner, "orders", offset, partition=partition, max_bytes=1_000)
                found = [value for number, value in values_of(fetched) if number >= offset]
                assert found == records[offset : fetched.next_offset] != []
                offset = fetched.next_offset
        for zone, is_down in enumerate(downs):
            zone_of(self.inner, zone).is_down = is_down

    @invariant()
    def bounds_are_true(self) -> None:
        if not hasattr(self, "records"):
            return
        bounds = [
            (item.log_start_offset, item.high_watermark)
            for item in describe_topic(self.inner.topic_cache, self.inner.stores.log, "orders")[1]
        ]
        assert bounds == list(zip(self.starts, map(len, self.records), strict=True))
        ends = list_offsets(self.inner, "orders", OffsetSpec.LATEST, None).all_ok()
        assert [item.offset for item in ends] == [len(records) for records in self.records]


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
test_log_agrees_with_a_list_whatever_fails = pytest.mark.slow(LogMachine.TestCase)
