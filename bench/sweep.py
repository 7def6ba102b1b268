"""Sweeps a large store in memory: runs, list calls, peak of memory, and objects of marks.

The store has three zones with keys by the hour, as directory buckets have. Each segment holds one ref, in pages of 16.
The segments are spread evenly over a day, and one in ten is garbage. Storage answers each call in `--call-ms` of
simulated time, so a run ends at its budget as on Lambda. Memory is what Python allocates during the sweep.
"""

import tracemalloc
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_core.ids import Offset, SegmentId, new_segment_id
from penstock_core.limits import LIST_KEYS_MAX, TAIL_ROLL_REFS
from penstock_core.log.index import Page
from penstock_core.log.ref import Ref, stored_bytes
from penstock_core.storage.keys import KeyLayout, segment_folder, segment_key
from penstock_service.adapters.memory.segments import MemorySegmentStore
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import ListedKeys
from penstock_service.retention.sweep import sweep
from tests.support.interleaving import InOrder
from tests.support.service import Intercepted, SteppedClock, key_of, new_topic

HOUR_MS = 3_600_000
GARBAGE_SHARE = 10


@click.command(help=__doc__)
@reported("sweep")
@click.option("--segments", default=100_000, show_default=True, type=click.IntRange(1_000), help="That refs name.")
@click.option("--partitions", default=100, show_default=True, type=click.IntRange(1))
@click.option("--call-ms", default=20, show_default=True, type=click.IntRange(1))
def main(report: Report, segments: int, partitions: int, call_ms: int) -> None:
    rows: list[Row] = []
    for title, budget_ms, live_max in (
        ("one run", 720_000, 2_000_000),
        ("runs of 3 s", 3_000, 2_000_000),
        ("runs of 3 s, 20,000 marks", 3_000, 20_000),
    ):
        store = _Store(segments, partitions, call_ms)
        row = store.swept(budget_ms, live_max)
        rows.append({"case": title, **row})
        report.judge(holds=row["deleted"] == 3 * store.garbage and row["live left"] == 3 * segments)
    report.show("sweep", rows)


class _FolderStore(MemorySegmentStore):
    """A zone in memory that finds the keys of a folder without a look at all others."""

    def __init__(self, zone: str) -> None:
        super().__init__(zone, KeyLayout.BY_HOUR)
        self._folders: dict[str, list[str]] = {}

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        super().put(segment_id, body, crc32c)
        keys = self._folders.setdefault(segment_folder(segment_id, self.layout), [])
        insort(keys, segment_key(segment_id, self.layout))

    def list_folders(self) -> Sequence[str]:
        return list(self._folders)

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        behind = [key for key in self._folders.get(prefix, ()) if token is None or key > token]
        part = behind[:LIST_KEYS_MAX]
        return ListedKeys(keys=part, next_token=part[-1] if len(behind) > len(part) else None)


class _Store:
    """A store of that size, and the sweep of it."""

    def __init__(self, segments: int, partitions: int, call_ms: int) -> None:
        self._clock = SteppedClock()
        self._random = Random(7)
        self._call_ms = call_ms
        self.garbage = segments // GARBAGE_SHARE
        self._zones = [_FolderStore(zone) for zone in "abc"]
        plain = memory_instance(clock=self._clock, executor=InOrder())
        self._instance = replace(plain, stores=replace(plain.stores, zones=self._zones))
        self._counts: Counter[str] = Counter()
        self._live: set[SegmentId] = set()
        topic = new_topic(self._instance, partitions=partitions)
        began_ms = self._clock.now_ms()
        for partition in range(partitions):
            self._fill(topic, partition, began_ms, segments // partitions)
        for segment_id in self._ids(began_ms, self.garbage):
            self._put(segment_id)
        self._clock.time_ms = began_ms + 48 * HOUR_MS + 1

    def _ids(self, began_ms: int, count: int) -> Iterator[SegmentId]:
        for number in range(count):
            yield new_segment_id(began_ms + number * 24 * HOUR_MS // count, self._random.randbytes(10))

    def _put(self, segment_id: SegmentId) -> None:
        for zone in self._zones:
            zone.put(segment_id, b"x", 0)

    def _fill(self, topic: str, partition: int, began_ms: int, count: int) -> None:
        key, log = key_of(self._instance, topic, partition), self._instance.stores.log
        base, written, rolled_bytes = 0, list[Ref](), 0
        for segment_id in self._ids(began_ms, count):
            self._put(segment_id)
            self._live.add(segment_id)
            ref = Ref(
                segment_id=segment_id, position=0, length=100, offset_span=1, record_count=1,
                max_timestamp_ms=-1, zones=0b111,
            )  # fmt: skip
            log.append(key, ref, 0)
            written.append(ref)
            if len(written) == 2 * TAIL_ROLL_REFS:
                refs = tuple(written[:TAIL_ROLL_REFS])
                rolled_bytes += stored_bytes(refs)
                page = Page(base_offset=Offset(base), refs=refs, max_timestamp_ms=-1, rolled_bytes=rolled_bytes)
                log.put_page(key, page)
                log.shorten_tail(key, page)
                base, written = int(page.end_offset), written[TAIL_ROLL_REFS:]

    def swept(self, budget_ms: int, live_max: int) -> Row:
        """The figures of a whole sweep."""
        instance = self._timed()
        runs, deleted = 0, 0
        tracemalloc.start()
        while True:
            done = sweep(instance, budget_ms=budget_ms, live_max=live_max)
            runs, deleted = runs + 1, deleted + done.deleted
            if done.is_finished:
                break
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return {
            "runs": runs,
            "list calls": self._counts["list_keys"] + self._counts["list_folders"],
            "delete calls": self._counts["delete"],
            "index reads": self._counts["heads"] + self._counts["pages"],
            "objects of marks": self._counts["put"],
            "gets of marks": self._counts["get"],
            "memory MB": round(peak / 1_000_000, 1),
            "deleted": deleted,
            "live left": sum(len(self._live & zone.segments.keys()) for zone in self._zones),
        }

    def _timed(self) -> Instance:
        """The instance, whose calls take time and are counted."""

        def timed(name: str) -> Callable[..., Any]:
            def hook(original: Callable[..., Any], *arguments: Any) -> Any:
                self._counts[name] += 1
                self._clock.time_ms += self._call_ms
                return original(*arguments)

            return hook

        def metered(port: Any, *names: str) -> Any:
            return Intercepted(port, **{name: timed(name) for name in names})

        stores = self._instance.stores
        names = ("list_keys", "list_folders", "delete", "put", "get")
        return replace(
            self._instance,
            stores=replace(
                stores,
                log=metered(stores.log, "heads", "pages"),
                archive=metered(stores.archive, *names),
                zones=[metered(zone, *names) for zone in stores.zones],
            ),
        )


if __name__ == "__main__":
    main()
