"""The workload: producers and consumers with the SDK, in processes of their own, and the reader after the faults.

Each process writes a history of its own. The producers' futures go into `acknowledged` lines of their own.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from random import Random
from typing import Protocol

from botocore.credentials import Credentials

from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.configuration import Configuration
from penstock.errors import UnavailableError
from penstock.http.transport import HttpTransport
from penstock.model import RecordMetadata
from penstock.producer.settings import AcksName, CompressionName
from penstock_core.errors import PenstockError
from tests.chaos.clients.values import make_value, name_of
from tests.chaos.recording import RecordingTransport
from tests.history.format import Assign, Commit, Function, Poll, Truncate
from tests.history.recorder import Recorder

DELIVERY_TIMEOUT_MS = 30_000
TRUNCATED = "clicks"  # the topic, so that nothing excuses what is missing from the others
_PRODUCER_LIFE_S = 20.0
_GROUP_LIFE_S = 10.0
_COMMIT_EACH_S = 1.0
_PAUSE_S = 0.15
_TRUNCATE_EACH_S = 6.0
FILTERED_TAG = "7"  # a tenth of the records


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The service's address, the caller, the topics, and the folder for notes."""

    url: str
    region: str
    access_key_id: str
    secret_access_key: str
    topics: tuple[str, ...]
    partitions: int
    folder: Path

    def transport(self) -> HttpTransport:
        credentials = Credentials(self.access_key_id, self.secret_access_key)
        return HttpTransport(Configuration(url=self.url, region=self.region, credentials=credentials))

    def all_partitions(self) -> list[TopicPartition]:
        return self.partitions_of(self.topics)

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in topics for number in range(self.partitions)]

    def tell_unread(self, name: str, left: list[str]) -> None:
        """Note what a reader could not read."""
        (self.folder / f"{name}.unread.json").write_text(json.dumps(left))

    @contextmanager
    def recorder(self, name: str) -> Iterator[Recorder]:
        with Recorder.open(self.folder / f"{name}.history.jsonl") as recorder:
            yield recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpec:
    """The sends of a producer: bursts of up to `burst` records, some of them of up to `value_bytes_max`."""

    name: str
    acks: AcksName
    is_keyed: bool
    burst: int
    value_bytes_max: int
    compression_type: CompressionName
    seed: int


def run_producers(target: Target, specs: list[ProducerSpec], stop: Event) -> None:
    """A process's entry: a thread for each producer, until `stop`."""
    with target.recorder(specs[0].name) as recorder:
        run_all([partial(_produce, target, spec, recorder, stop) for spec in specs])


def run_consumers(target: Target, stop: Event) -> None:
    """A process's entry: a consumer at the tail, one of a group that comes back, a slow one, one with a filter, and an
    operator, who truncates.
    """
    with target.recorder("consumers") as recorder:
        run_all(
            [
                partial(follow, target, recorder, stop, "tail"),
                partial(follow, target, recorder, stop, "slow", max_records=20, pause_s=0.25),
                partial(follow, target, recorder, stop, "filtered", tag=FILTERED_TAG),
                partial(_run_group, target, recorder, stop),
                partial(_truncate, target, recorder, stop),
            ]
        )


def run_reader(target: Target, name: str, within_s: float) -> None:
    """A process's entry: read every partition from its log start to its end.

    `<name>.unread.json` lists the partitions that are left after `within_s`. The list is empty if all was read.
    """
    deadline = time.monotonic() + within_s
    with (
        target.recorder(name) as recorder,
        Consumer(transport=target.transport(), fetch_wait_ms=0, max_in_flight=4) as consumer,
    ):
        target.tell_unread(name, read_to_end(consumer, recorder, name, target.all_partitions(), deadline))


def read_to_end(
    consumer: Consumer, recorder: Recorder, name: str, partitions: list[TopicPartition], deadline: float
) -> list[str]:
    """Read the partitions from their log starts to their ends. Return what is left at the deadline."""
    ends = consumer.end_offsets(partitions)
    starts = consumer.beginning_offsets(partitions)
    consumer.assign(partitions)
    recorder.done(name, Function.ASSIGN, [Assign((), tuple((each, starts[each]) for each in partitions))])
    unread = partitions
    while unread and time.monotonic() < deadline:
        _poll(consumer, recorder, name, partitions, 5_000)
        unread = [each for each in partitions if consumer.position(each) < ends[each]]
    return [f"{each.topic}[{each.partition}] from {consumer.position(each)} to {ends[each]}" for each in unread]


def run_all(bodies: list[Callable[[], None]]) -> None:
    """Run each in a thread, and wait for all. Raises the error of the first that died."""
    failures: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:  # the thread's edge: a client that dies must fail the run
            failures.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _produce(target: Target, spec: ProducerSpec, recorder: Recorder, stop: Event) -> None:
    chance = Random(spec.seed)
    requests: Counter[str] = Counter()
    appends: list[tuple[float, float, bool]] = []
    number = life = 0
    # Unbuffered, one write per line: the sender's threads write at once, which breaks a buffered text file.
    with (target.folder / f"{spec.name}.acknowledged.jsonl").open("xb", buffering=0) as notes:
        while not stop.is_set():
            process = f"{spec.name}.{life}"
            transport = RecordingTransport(target.transport(), recorder, process)
            ends_at = time.monotonic() + _PRODUCER_LIFE_S
            with Producer(
                transport=transport,
                acks=spec.acks,
                compression_type=spec.compression_type,
                linger_ms=20,
                max_in_flight=2,
                delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            ) as producer:
                while not stop.is_set() and time.monotonic() < ends_at:
                    for _ in range(chance.randint(1, spec.burst)):
                        number += 1
                        _send(producer, target, spec, chance, f"{spec.name}-{number}", notes.write)
                    stop.wait(_PAUSE_S)
            requests += transport.requests
            appends += transport.appends
            life += 1
    figures = {"acks": spec.acks, "requests": requests, "appends": appends}
    (target.folder / f"{spec.name}.figures.json").write_text(json.dumps(figures))


def _send(
    producer: Producer,
    target: Target,
    spec: ProducerSpec,
    chance: Random,
    name: str,
    note: Callable[[bytes], object],
) -> None:
    size = chance.randint(0, spec.value_bytes_max) if chance.random() < 0.2 else 0
    topic = chance.choice(target.topics)
    key = f"key-{chance.randrange(50)}" if spec.is_keyed else None

    def delivered(error: PenstockError | None, metadata: RecordMetadata) -> None:
        answer = {
            "value": name,
            "topic": metadata.topic,
            "partition": metadata.partition,
            "offset": None if error else metadata.offset,
            "maybe_applied": error is not None and error.maybe_applied,
        }
        note(json.dumps(answer).encode() + b"\n")

    try:
        headers = [("tag", name[-1].encode())]
        producer.send(topic, make_value(name, size), key=key, headers=headers, on_delivery=delivered)
    except UnavailableError:
        return  # the topic could not be looked up: nothing was sent


class Stop(Protocol):
    """Asks a client to end."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float, /) -> bool: ...


def follow(
    target: Target,
    recorder: Recorder,
    stop: Stop,
    name: str,
    *,
    topics: tuple[str, ...] | None = None,
    max_records: int = 500,
    pause_s: float = 0.0,
    tag: str | None = None,
) -> None:
    """Read the topics from their start, with `tag` only the records of that tag, which ends their names."""
    partitions = target.partitions_of(topics or target.topics)
    wanted = None if tag is None else {"tag": [tag]}
    with Consumer(
        transport=target.transport(), max_poll_records=max_records, max_in_flight=1, filter=wanted
    ) as consumer:
        consumer.assign(partitions)
        recorder.done(name, Function.ASSIGN, [Assign((), tuple((each, 0) for each in partitions))])
        while not stop.is_set():
            _poll(consumer, recorder, name, partitions, 1_000, tag=tag)
            stop.wait(pause_s)


def _run_group(target: Target, recorder: Recorder, stop: Event) -> None:
    """Reads from the group's committed offset, commits, and comes back as another process every few seconds."""
    partitions = target.all_partitions()
    allowed: dict[TopicPartition, set[int | None]] = {each: {None} for each in partitions}
    life = 0
    while not stop.is_set():
        process = f"group.{life}"
        with Consumer(
            transport=target.transport(), group_id="chaos", enable_auto_commit=False, max_in_flight=1
        ) as consumer:
            starts = _committed(consumer, partitions, stop)
            if starts is None:
                return
            for each, offset in starts.items():
                if offset not in allowed[each]:
                    raise AssertionError(f"{each}: committed offset {offset}, not one of {allowed[each]} (G7)")
                allowed[each] = {offset}
            consumer.assign(partitions)
            told = tuple((each, starts[each] or 0) for each in partitions)
            recorder.done(process, Function.ASSIGN, [Assign((), told)], group="chaos")
            ends_at = time.monotonic() + _GROUP_LIFE_S
            commit_at = time.monotonic() + _COMMIT_EACH_S
            while not stop.is_set() and time.monotonic() < ends_at:
                _poll(consumer, recorder, process, partitions, 500, group="chaos")
                if time.monotonic() >= commit_at:
                    _commit(consumer, recorder, process, partitions, allowed)
                    commit_at = time.monotonic() + _COMMIT_EACH_S
        life += 1


def _truncate(target: Target, recorder: Recorder, stop: Event) -> None:
    """Cut every partition of the topic at half of its records, perhaps where the slow consumer is just reading."""
    with Admin(transport=target.transport()) as admin:
        while not stop.wait(_TRUNCATE_EACH_S):
            try:
                bounds = admin.describe_topic(TRUNCATED).offsets
            except PenstockError:
                continue
            before = {each.partition: (each.log_start_offset + each.high_watermark) // 2 for each in bounds}
            ops = [Truncate((TRUNCATED, partition), offset) for partition, offset in before.items()]
            operation = recorder.invoke("operator", Function.TRUNCATE, ops)
            try:
                admin.truncate(TRUNCATED, before)
            except PenstockError:
                recorder.maybe(operation)  # of several partitions, some may have been truncated
            else:
                recorder.ok(operation)


def _committed(
    consumer: Consumer, partitions: list[TopicPartition], stop: Event
) -> dict[TopicPartition, int | None] | None:
    while not stop.is_set():
        try:
            return {each: consumer.committed(each) for each in partitions}
        except UnavailableError:
            continue  # the SDK has tried for 30 s
    return None


def _commit(
    consumer: Consumer,
    recorder: Recorder,
    process: str,
    partitions: list[TopicPartition],
    allowed: dict[TopicPartition, set[int | None]],
) -> None:
    try:
        positions = {each: consumer.position(each) for each in partitions}
    except UnavailableError:
        return  # it has not learned yet where to start
    ops = [Commit(each, offset) for each, offset in positions.items()]
    operation = recorder.invoke(process, Function.COMMIT, ops, group="chaos")
    for each, offset in positions.items():
        allowed[each].add(offset)
    try:
        consumer.commit(positions)
    except PenstockError:
        recorder.maybe(operation)  # of several partitions, some may have been committed
        return
    recorder.ok(operation)
    for each, offset in positions.items():
        allowed[each] = {offset}


def _poll(
    consumer: Consumer,
    recorder: Recorder,
    process: str,
    partitions: list[TopicPartition],
    timeout_ms: int,
    *,
    group: str | None = None,
    tag: str | None = None,
) -> None:
    operation = recorder.invoke(process, Function.POLL, group=group)
    try:
        records = consumer.poll(timeout_ms=timeout_ms)
    except PenstockError:
        recorder.fail(operation)
        return
    found: dict[TopicPartition, list[tuple[int, str]]] = {each: [] for each in partitions}
    for record in records:
        found[TopicPartition(record.topic, record.partition)].append((record.offset, name_of(record.value)))
    recorder.ok(operation, [Poll(each, tuple(rows), None, tag) for each, rows in found.items()])
