"""Worker processes of a share group, and topics that have one.

A fork server starts the workers: it has imported all that they need, so a new worker takes no second of CPU.
"""

import multiprocessing
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import click

from bench.share_groups.facts import Handled, Ledger, lock_of
from bench.share_groups.ledger_transport import LedgerTransport
from penstock import Admin, Consumer, Producer, ShareConsumer, TopicPartition
from penstock.http.transport import open_transport
from penstock.model import ConsumerRecord
from penstock.share_model import ShareRecord
from penstock_core.share.dead_letter import HEADER_PREFIX

PATIENCE_S = 120  # for one more record to be finished


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One life of a worker, which handles one record after the other."""

    name: str
    group: str
    ledger: Path
    work_ms: float


def work(spec: WorkerSpec) -> None:
    """Work until SIGTERM or a kill."""
    with Ledger(spec.ledger, spec.name) as ledger:

        def handle(record: ShareRecord) -> None:
            time.sleep(spec.work_ms / 1_000)
            ledger.write(
                [
                    Handled(
                        worker=spec.name,
                        lock=lock_of(record.lock_id),
                        offset=record.offset,
                        deliveries=record.delivery_count,
                    )
                ]
            )

        transport = LedgerTransport(open_transport(), ledger)
        ShareConsumer(group_id=spec.group, transport=transport).run(handle, concurrency=1)


class Fleet:
    """The living workers of a group. A new one takes the place of one that is killed."""

    def __init__(self, group: str, folder: Path, *, workers: int, work_ms: float) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._group, self._folder, self._work_ms = group, folder, work_ms
        self._born = 0
        self._alive: list[tuple[str, BaseProcess]] = []
        self.killed: list[str] = []
        for _ in range(workers):
            self._start()

    def kill(self, place: int) -> None:
        """Send SIGKILL, and start another worker."""
        name, process = self._alive.pop(place)
        process.kill()
        process.join()
        self.killed.append(name)
        self._start()

    @property
    def ledgers(self) -> list[Path]:
        """The ledgers of all workers, dead ones too."""
        return sorted(self._folder.glob("*.ledger.jsonl"))

    def end(self) -> None:
        """Ask all workers to stop, and wait until they have."""
        for _, process in self._alive:
            process.terminate()
        for name, process in self._alive:
            process.join()
            if process.exitcode != 0:
                raise click.ClickException(f"worker {name} ended with code {process.exitcode}: see above")
        self._alive = []

    def clean_up(self) -> None:
        """Kill what still lives."""
        for _, process in self._alive:
            process.kill()
            process.join()

    def _start(self) -> None:
        name = f"w{self._born}"
        self._born += 1
        ledger = self._folder / f"{name}.ledger.jsonl"
        spec = WorkerSpec(name=name, group=self._group, ledger=ledger, work_ms=self._work_ms)
        process = self._context.Process(target=work, args=(spec,), daemon=True)
        process.start()
        self._alive.append((name, process))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTopic:
    """A topic of one partition, a dead-letter topic beside it, and share groups that read it."""

    admin: Admin
    name: str
    groups: list[str] = field(default_factory=list)

    @property
    def dead_letter_topic(self) -> str:
        """It has one partition, too."""
        return f"{self.name}.dead"

    def create_group(self, **config: object) -> str:
        """A new share group, by its name."""
        group = f"{self.name}.{len(self.groups)}"
        self.admin.create_share_group(group, self.name, config)
        self.groups.append(group)
        return group

    def send(self, records: int, record_bytes: int = 0) -> None:
        """Send records with their numbers as values, filled up to `record_bytes`, and wait for the answers."""
        with Producer() as producer:
            sent = [producer.send(self.name, b"%0*d" % (record_bytes, number)) for number in range(records)]
            producer.flush()
        if any(each.exception() is not None for each in sent):
            raise click.ClickException("a record was not acknowledged: see above")

    def unfinished(self, group: str) -> int:
        """The records that the group has not finished."""
        return sum(each.lag for each in self.admin.describe_share_group(group).partitions)

    def wait_until_below(self, group: str, records: int) -> None:
        """Wait until so few records are unfinished. Raises ClickException if the group gets nowhere."""
        least, deadline_s = self.unfinished(group), time.monotonic() + PATIENCE_S
        while least >= records:
            time.sleep(0.1)
            left = self.unfinished(group)
            if left < least:
                least, deadline_s = left, time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline_s:
                raise click.ClickException(f"{least:,} records are unfinished, and no more are finished")

    def wait_until_finished(self, group: str) -> None:
        """Wait until the group has finished all records. Raises as `wait_until_below`."""
        self.wait_until_below(group, 1)

    def dead_letters(self) -> list[ConsumerRecord]:
        """All records of the dead-letter topic."""
        where, found = TopicPartition(self.dead_letter_topic, 0), list[ConsumerRecord]()
        with Consumer() as consumer:
            consumer.assign([where])
            end = consumer.end_offsets([where])[where]
            while consumer.position(where) < end:
                found += consumer.poll()
        return found


def dead_letter_number(letter: ConsumerRecord, name: str) -> int:
    """A number in the headers of a dead letter: `offset` or `deliveries`."""
    return int(dict(letter.headers)[f"{HEADER_PREFIX}{name}"] or b"")


@contextmanager
def shared_topic() -> Iterator[SharedTopic]:
    """A topic with its dead-letter topic. They and the groups are deleted afterwards."""
    with Admin() as admin:
        shared = SharedTopic(admin=admin, name=f"share-{secrets.token_hex(4)}")
        topics = (shared.name, shared.dead_letter_topic)
        for topic in topics:
            admin.create_topic(topic, partitions=1)
        yield shared
        for group in shared.groups:
            admin.delete_share_group(group)
        for topic in topics:
            admin.delete_topic(topic)
