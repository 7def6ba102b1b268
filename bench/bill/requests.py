"""Bills single requests: an append of three sizes, a fetch at the tail. idle_consumers.py has those that wait."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.bill.deployment import Bill, BilledDeployment, BilledProfile, BillError, billed_deployment
from bench.report.result import Row
from penstock import Admin, Producer
from penstock.api import calls
from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.fetch_call import fetch
from penstock.consumer.settings import ConsumerSettings, WaitMode
from penstock.consumer.subscriber import told_since_ms
from penstock.http.client import Client
from penstock.http.steps import drive
from penstock.model import TopicPartition
from penstock.wake_ups.watch import Watch
from penstock_cdk.storage_profile import Profile
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.records import frame

MILLION = 1_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
PROFILES: tuple[Profile, ...] = ("express3", "express2", "standard1")
SIZES = {"1 KB": 1_000, "64 KB": 64_000, "1 MB": 1_000_000}  # of a record, not compressed
TURNAROUND_MS = 20  # of a request, outside the function, assumed: an idle consumer asks again so long after an answer
_ROUNDS = TAIL_ROLL_REFS  # so that the appends have their share of a roll
TOPIC = "orders"
# The columns of a bill, and the lines that each of them sums up.
_SHOWN = {
    "api": ("api", "wake-ups"),
    "lambda": ("lambda",),
    "s3": ("puts", "gets", "bytes"),
    "dynamodb": ("dynamodb",),
    "logs": ("logs",),
}
_RECORDS_MAX = 500  # of a poll


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledOperation:
    """The bill of one operation, from the mean of `count` of them."""

    name: str
    profile: str
    bill: Bill
    count: int

    @property
    def calls(self) -> dict[str, float]:
        """Storage calls of one operation by `service.Operation`."""
        return {name: number / self.count for name, number in sorted(self.bill.calls.items())}

    @property
    def usd_per_million(self) -> float:
        """The dollars of a million operations."""
        return self.bill.usd / self.count * MILLION

    def row(self) -> Row:
        """The storage calls, and the dollars of a million operations by line."""
        calls = [f"{_share(number)} {name.partition('.')[2]}" for name, number in self.calls.items()]
        lines: Row = {
            f"{line}_usd": round(sum(self.bill.lines[part] for part in parts) / self.count * MILLION, 2)
            for line, parts in _SHOWN.items()
        }
        sum_usd = round(self.usd_per_million, 2)
        return {"operation": self.name, "storage_calls": ", ".join(calls), **lines, "sum_usd": sum_usd}


def _share(number: float) -> str:
    """The number of calls, with the share of a roll as a fraction."""
    whole, rest = divmod(round(number * TAIL_ROLL_REFS), TAIL_ROLL_REFS)
    return " ".join(part for part in (str(whole) if whole else "", f"{rest}/{TAIL_ROLL_REFS}" if rest else "") if part)


def bill_operations(profile: BilledProfile) -> list[BilledOperation]:
    """An append of each size by an idempotent producer, with its share of a roll, and a fetch of 1 KB at the tail."""
    with with_topic(profile) as deployment, _producer(deployment) as producer:
        producer.send(TOPIC, b"").result()
        deployment.take()
        operations = []
        for size, value_bytes in SIZES.items():
            for _ in range(_ROUNDS):
                producer.send(TOPIC, b"x" * value_bytes).result()
            operations.append(_operation(f"append of {size}", profile, deployment.take()))
        operations.append(_operation("fetch of 1 KB", profile, _fetches(deployment, producer)))
        return [*operations, _operation("append of 1 KB that wakes", profile, _waking_appends(deployment, producer))]


def _operation(name: str, profile: BilledProfile, bill: Bill) -> BilledOperation:
    return BilledOperation(name=name, profile=profile.name, bill=bill, count=_ROUNDS)


def _fetches(deployment: BilledDeployment, producer: Producer) -> Bill:
    """The bill of `_ROUNDS` fetches that each find one new record."""
    consumer = Fetching(deployment, partitions=1)
    while consumer.step():
        pass
    bill = Bill()
    for _ in range(_ROUNDS):
        producer.send(TOPIC, b"x" * SIZES["1 KB"]).result()
        deployment.take()
        consumer.step()
        taken = deployment.take()
        bill.lines.add(taken.lines)
        bill.calls.update(taken.calls)
    return bill


def _waking_appends(deployment: BilledDeployment, producer: Producer) -> Bill:
    """The bill of `_ROUNDS` appends, each to a head that one reader has armed."""
    [end] = Admin(transport=deployment).list_offsets(TOPIC, "latest").values()
    bill = Bill()
    for number in range(_ROUNDS):
        _arm(deployment, [(end or 0) + number])
        deployment.take()
        producer.send(TOPIC, b"x" * SIZES["1 KB"]).result()
        taken = deployment.take()
        bill.lines.add(taken.lines)
        bill.calls.update(taken.calls)
    return bill


def _arm(deployment: BilledDeployment, offsets: Sequence[int]) -> None:
    """Fetch at the end of each partition, and arm it."""
    wanted = [
        {"topic": TOPIC, "partition": partition, "offset": offset, "max_bytes": 1_000_000}
        for partition, offset in enumerate(offsets)
    ]
    body = json.dumps({"partitions": wanted, "arm": True}).encode()
    header, _ = frame.decode(deployment.call("POST", "/v1/fetch", {}, {}, body).body)
    partitions: Any = header["partitions"]
    if not all(each.get("armed") for each in partitions):
        raise BillError(f"a partition is not armed: {header}")


class Fetching:
    """The part of a Consumer that decides what to fetch and when, in the deployment's time.

    The subscriptions of a consumer that waits for wake-ups begin at once.
    """

    def __init__(self, deployment: BilledDeployment, *, partitions: int, wait: WaitMode = "poll") -> None:
        self._settings = ConsumerSettings(max_in_flight=1, wait=wait)
        self._clock = deployment.clock
        self._client = Client(deployment)
        self._buffer = FetchBuffer(self._settings.fetch())
        self._looked_ms = deployment.clock.passed_ms
        wanted = [TopicPartition(TOPIC, partition) for partition in range(partitions)]
        self._buffer.assign(wanted)
        for each in wanted:
            self._buffer.start(each, 0, None)

    def step(self) -> int:
        """Fetches once, after the time that the consumer would wait. Returns the number of records that came."""
        while (request := self._buffer.next_request(int(self._clock.passed_ms))) is None:
            subscribe_to_wake_ups(self._buffer)
            self._clock.sleep_ms(max(1, self._buffer.wake_at_ms - self._clock.passed_ms))
            self._look_for_partitions()
        answer = drive(fetch(request), self._client.try_once)
        self._clock.sleep_ms(TURNAROUND_MS)
        self._buffer.complete(request, answer, int(self._clock.passed_ms), 0.5)
        return len(self._buffer.take(_RECORDS_MAX))

    def _look_for_partitions(self) -> None:
        while self._clock.passed_ms >= self._looked_ms + self._settings.metadata_max_age_ms:
            self._looked_ms += self._settings.metadata_max_age_ms
            if self._buffer.told_partitions(TOPIC, told_since_ms(self._settings, int(self._clock.passed_ms))) is None:
                self._client.call(calls.topic_metadata(TOPIC))


def subscribe_to_wake_ups(buffer: FetchBuffer) -> None:
    """Lets the subscriptions that a consumer wants begin at once."""
    if subscribe_all(buffer.waiting.watch):
        buffer.look_again()


def subscribe_all(watch: Watch | None) -> bool:
    """Lets the subscriptions of a watch begin at once. False if they have."""
    if watch is None or not watch.leaves or watch.is_covering:
        return False
    for leaf in watch.leaves:
        watch.subscribed(leaf)
    return True


@contextmanager
def with_topic(
    profile: BilledProfile, partitions: int = 1, inline_bytes_max: int | str = 0
) -> Iterator[BilledDeployment]:
    with billed_deployment(profile, inline_bytes_max=inline_bytes_max) as deployment:
        with Admin(transport=deployment) as admin:
            admin.create_topic(TOPIC, partitions=partitions)
        yield deployment


def _producer(deployment: BilledDeployment) -> Producer:
    return Producer(transport=deployment, linger_ms=0, compression_type="none")
