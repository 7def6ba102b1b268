"""Count the storage calls of a share group: of its busy workers, and of single requests.

Twenty workers share one partition. Each call that locks or acknowledges records should write the share item once; a
refused write costs another one. Exit code 0: the share item stays below 4 KiB, an acquire of 100 records at the tail
takes two reads, one write and ranged gets at most, and an acknowledgement takes one write.
"""

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import click

from bench.meters.counting import CountingTransport, Counts
from bench.meters.metering import metered_instance
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.share_groups.facts import Called, read_ledgers
from bench.share_groups.ledger_transport import READS, WRITES
from bench.share_groups.raw_group import RawGroup
from bench.share_groups.workers import Fleet, SharedTopic, shared_topic
from penstock.http.transport import open_transport
from penstock_core.ids import Partition
from penstock_core.limits import KIB
from penstock_core.share.share_state import ShareKey
from penstock_core.storage.item import item_bytes
from penstock_core.storage.share.share_state_item import share_item

ITEM_BYTES_MAX = 4 * KIB
READS_MAX, WRITES_MAX = 2, 1
ACQUIRED = 100  # records of a single acquire
LOOK_S = 0.05  # between two looks at the share item


@click.command(help=__doc__)
@reported("share_writes")
@click.option("--records", default=10_000, show_default=True, type=click.IntRange(1), help="For the workers to handle.")
@click.option("--workers", default=20, show_default=True, type=click.IntRange(1), help="Processes.")
@click.option("--work-ms", default=5.0, show_default=True, help="That a worker takes for a record.")
@click.option("--samples", default=5, show_default=True, type=click.IntRange(1), help="Single acquires.")
def main(report: Report, records: int, workers: int, work_ms: float, samples: int) -> None:
    report.conditions.append("One partition. Counts are those that the functions report.")
    with tempfile.TemporaryDirectory() as folder, shared_topic() as shared:
        shared.send(records)
        group = shared.create_group()
        fleet = Fleet(group, Path(folder), workers=workers, work_ms=work_ms)
        try:
            with _Scale(group, shared.name) as scale:
                shared.wait_until_finished(group)
            fleet.end()
        finally:
            fleet.clean_up()
        called = [fact for fact in read_ledgers(fleet.ledgers) if isinstance(fact, Called)]
    report.show("workers_on_one_partition", [row_of(called, records, scale.bytes_max)])
    with shared_topic() as shared:
        acquires, accepts = _single_requests(shared, samples)
    report.show(
        "single_requests", [_request(f"acquire of {ACQUIRED} at the tail", acquires), _request("accept them", accepts)]
    )
    report.judge(
        holds=scale.bytes_max < ITEM_BYTES_MAX
        and all(_reads(each) <= READS_MAX and _writes(each) <= WRITES_MAX for each in acquires)
        and all(_reads(each) == 0 and _writes(each) == 1 for each in accepts)
    )


class _Scale:
    """Looks at the share item in a thread, and keeps its largest size."""

    def __init__(self, group: str, topic: str) -> None:
        self.bytes_max = 0
        instance, _ = metered_instance()
        found = instance.share_group_cache.get(group)
        [topic_id] = [each for name, each in found.topics.items() if name == topic]
        self._key = ShareKey(found.share_group_id, topic_id, Partition(0))
        self._share = instance.stores.share
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "_Scale":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopping.wait(LOOK_S):
            state = self._share.find_states([self._key]).get(self._key)
            if state is not None:
                self.bytes_max = max(self.bytes_max, item_bytes(share_item(self._key, state)))


def row_of(called: Sequence[Called], records: int, item_bytes_max: int) -> Row:
    """The writes of the workers' calls. A success is a call that locked or acknowledged records."""
    successes = [each for each in called if each.records or each.acknowledgements]
    empty = [each for each in called if not (each.records or each.acknowledgements)]
    return {
        "records": records,
        "successes": len(successes),
        "writes_of_successes": sum(each.writes for each in successes),
        "writes_per_success": round(sum(each.writes for each in successes) / len(successes), 3),
        "acquires_with_records": sum(each.records > 0 for each in called),
        "acknowledgements_alone": sum(each.call == "acknowledge" for each in called),
        "records_per_write": round(records / sum(each.writes for each in called), 1),
        "acquires_in_vain": len(empty),
        "writes_of_those": sum(each.writes for each in empty),
        "item_bytes_max": item_bytes_max,
    }


def _single_requests(shared: SharedTopic, samples: int) -> tuple[list[Counts], list[Counts]]:
    """The counts of each acquire and of each acknowledgement, at the tail of a log, on warm functions."""
    transport = CountingTransport(open_transport())
    group = RawGroup(transport=transport, topic=shared.name, group=shared.create_group())
    acquires: list[Counts] = []
    accepts: list[Counts] = []
    for _ in range(1 + samples):
        group.produce([b"x" * 100] * ACQUIRED)
        transport.reset()
        found = group.acquire(ACQUIRED)
        group.accept(found.lock_ids)
        if found.records != ACQUIRED:
            raise click.ClickException(f"an acquire of {ACQUIRED} records brought {found.records}")
        acquires.append(transport.counts(group.acquire_path))
        accepts.append(transport.counts(group.acknowledge_path))
    return acquires[1:], accepts[1:]


def _request(name: str, counts: Sequence[Counts]) -> Row:
    return {
        "request": name,
        "reads_max": max(map(_reads, counts)),
        "writes_max": max(map(_writes, counts)),
        "gets_max": max(each.storage_calls["s3.GetObject"] for each in counts),
        "all_calls_max": max(each.storage_calls.total() for each in counts),
    }


def _reads(counts: Counts) -> int:
    return sum(counts.storage_calls[name] for name in READS)


def _writes(counts: Counts) -> int:
    return sum(counts.storage_calls[name] for name in WRITES)
