"""Compare a share group with SQS on the same emulator: send, receive and delete records of 100 B, in turns.

SQS is called through boto3 in batches of 10, the most that it takes. Penstock is called in batches of 100, and of 500,
the most that an acquire takes. A client makes one call after the other. The emulator's SQS answers from the memory of
the emulator's own process. A call to Penstock invokes a function, which calls the emulator's DynamoDB and S3.
"""

import multiprocessing
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import click

from bench.meters.counting import CountingTransport
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.share_groups.raw_group import RawGroup
from bench.share_groups.workers import shared_topic
from localstack.clients import client
from penstock.configuration import find_configuration
from penstock.http.transport import Transport, open_transport

BODY = "x" * 100
SQS_BATCH, PENSTOCK_BATCHES = 10, (100, 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue of SQS, or the topic and the share group of Penstock in its place. `batch` is the records of a call."""

    service: str
    batch: int
    port: int = 0
    url: str = ""
    topic: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """The work of one client. Times are monotonic seconds, the same for all processes of the machine.

    `cpu_ms` and `storage_calls` are those of Penstock's functions.
    """

    records: int
    calls: int
    cpu_ms: float
    storage_calls: int
    begun_s: float
    ended_s: float


Cycle = Callable[[], int]  # sends, receives and deletes a batch of records, and returns its calls


@click.command(help=__doc__)
@reported("share_beside_sqs")
@click.option("--records", default=2_000, show_default=True, type=click.IntRange(500), help="Of each client and turn.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often they take turns.")
@click.option("--clients", default=(1, 4), show_default=True, multiple=True, type=click.IntRange(1))
def main(report: Report, records: int, rounds: int, clients: tuple[int, ...]) -> None:
    report.conditions.append(
        "SQS is the emulator's: Python, in the memory of one process. AWS's SQS has other latencies and other limits."
    )
    port = urlsplit(find_configuration().url).port
    if port is None:
        raise click.ClickException("PENSTOCK_URL is no local stack: `penstock local up` starts one")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    rows: list[Row] = []
    for count in clients:
        with context.Pool(count) as pool, _queue(port) as sqs, _share_groups() as penstock:
            sides = [sqs, *penstock]
            done: list[list[list[Stint]]] = [[] for _ in sides]
            for number in range(rounds):
                for place in range(len(sides)) if number % 2 else reversed(range(len(sides))):
                    done[place].append(pool.starmap(work, [(sides[place], records)] * count, chunksize=1))
        rows += rows_of(sides, done)
    report.show("send_receive_and_delete", rows)


def rows_of(sides: Sequence[Queue], done: Sequence[Sequence[Sequence[Stint]]]) -> list[Row]:
    """A row for each side, with medians over its turns. `done` has the stints by side and turn; SQS is the first."""
    rates = [[_rate(stints) for stints in turns] for turns in done]
    return [
        {
            "clients": len(turns[0]),
            "service": side.service,
            "records_of_a_call": side.batch,
            "records_per_s": round(statistics.median(mine)),
            "times_sqs": round(statistics.median(mine) / statistics.median(rates[0]), 2),
            "ms_per_call": round(_per_call(turns, lambda each: 1_000 * (each.ended_s - each.begun_s)), 1),
            "function_cpu_ms_per_call": round(_per_call(turns, lambda each: each.cpu_ms), 1),
            "storage_calls_per_call": round(_per_call(turns, lambda each: each.storage_calls), 1),
        }
        for side, turns, mine in zip(sides, done, rates, strict=True)
    ]


def _rate(stints: Sequence[Stint]) -> float:
    """The records of all clients a second."""
    seconds = max(each.ended_s for each in stints) - min(each.begun_s for each in stints)
    return sum(each.records for each in stints) / seconds


def _per_call(turns: Sequence[Sequence[Stint]], of: Callable[[Stint], float]) -> float:
    """The median over the turns."""
    return statistics.median(sum(map(of, turn)) / sum(each.calls for each in turn) for turn in turns)


def work(queue: Queue, records: int) -> Stint:
    """One client, in a process of the pool. The first cycle opens its connections and is not counted."""
    transport = CountingTransport(open_transport())
    cycle = _sqs(queue) if queue.service == "SQS" else _penstock(queue, transport)
    cycle()
    transport.reset()
    begun_s, cycles = time.monotonic(), records // queue.batch
    calls = sum(cycle() for _ in range(cycles))
    ended_s, counts = time.monotonic(), transport.total()
    return Stint(
        records=cycles * queue.batch,
        calls=calls,
        cpu_ms=counts.cpu_ms,
        storage_calls=counts.storage_calls.total(),
        begun_s=begun_s,
        ended_s=ended_s,
    )


def _sqs(queue: Queue) -> Cycle:
    sqs = client("sqs", queue.port)
    entries = [{"Id": str(number), "MessageBody": BODY} for number in range(queue.batch)]

    def cycle() -> int:
        calls, left = 1, queue.batch
        sqs.send_message_batch(QueueUrl=queue.url, Entries=entries)
        while left:
            found = sqs.receive_message(QueueUrl=queue.url, MaxNumberOfMessages=left).get("Messages")
            calls += 1
            if found:
                handles = [{"Id": each["MessageId"], "ReceiptHandle": each["ReceiptHandle"]} for each in found]
                sqs.delete_message_batch(QueueUrl=queue.url, Entries=handles)
                calls, left = calls + 1, left - len(found)
        return calls

    return cycle


def _penstock(queue: Queue, transport: Transport) -> Cycle:
    group = RawGroup(transport=transport, topic=queue.topic, group=queue.group)
    values = [BODY.encode()] * queue.batch

    def cycle() -> int:
        calls, left = 1, queue.batch
        group.produce(values)
        while left:
            found = group.acquire(left)
            calls += 1
            if found.records:
                group.accept(found.lock_ids)
                calls, left = calls + 1, left - found.records
        return calls

    return cycle


@contextmanager
def _queue(port: int) -> Iterator[Queue]:
    sqs = client("sqs", port)
    url = sqs.create_queue(QueueName=f"beside-{secrets.token_hex(4)}")["QueueUrl"]
    yield Queue(service="SQS", batch=SQS_BATCH, port=port, url=url)
    sqs.delete_queue(QueueUrl=url)


@contextmanager
def _share_groups() -> Iterator[list[Queue]]:
    """A topic and a group for each size of batch."""
    with ExitStack() as topics:
        queues: list[Queue] = []
        for batch in PENSTOCK_BATCHES:
            shared = topics.enter_context(shared_topic())
            queues.append(Queue(service="Penstock", batch=batch, topic=shared.name, group=shared.create_group()))
        yield queues
