"""Counts what AWS meters of requests of several sizes: nothing here has a price, and no call is assumed.

Each quantity has the name of its line in `penstock.prices`. The time of a function is assumed, as for the whole bill
(`bench/bill/deployment.py`).
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import boto3

from bench.bill.deployment import (
    ACCESS_LOG_BYTES,
    FUNCTION_MS,
    FUNCTION_MS_PER_MIB,
    Bill,
    BilledDeployment,
    BilledProfile,
    BillError,
    billed_deployment,
)
from bench.bill.idle_consumers import MEMBER_MS, bill_waiting_member, commit_as_member
from bench.bill.metered_calls import EXPRESS, Lines, Usage
from penstock import Admin, Producer, prices
from penstock_cdk.settings import FUNCTION_SIZES
from penstock_core.limits import BATCH_BYTES_MAX, KIB, MIB, TAIL_ROLL_REFS
from penstock_core.records import frame
from penstock_core.storage.item import item_bytes
from penstock_handlers import hourly

Counts = dict[str, float]

SIZES = (KIB, 16 * KIB, 64 * KIB, 256 * KIB, 512 * KIB - 2 * KIB, MIB, BATCH_BYTES_MAX - KIB)
"""Bytes of a request's records. Two of them stay below a bound: of API Gateway's 512 KiB, and of our 4 MiB."""
MANY_PARTITIONS = 6
MANY_SEGMENTS = 4
TIERED_REQUESTS = 64
TIER_MS_PER_CALL = 10  # of S3, one after the other, assumed
ROUNDS = TAIL_ROLL_REFS
TOPIC, _GROUP = "orders", "billing"
_TIER_AFTER_MS = 6 * 3_600_000


@dataclass(slots=True)
class CountingBill(Bill):
    """A bill that keeps what was metered, too."""

    usage: Usage = field(default_factory=Usage)
    runs: int = 0  # of functions, be it for a request or not

    def add(self, usage: Usage, lines: Lines) -> None:
        """Puts captured calls and dollars on the bill."""
        Bill.add(self, usage, lines)
        mine = self.usage
        self.runs += 1
        for each in ("puts", "gets", "uploaded", "retrieved"):
            getattr(mine, each).update(getattr(usage, each))
        mine.wake_ups += usage.wake_ups
        mine.sqs_requests += usage.sqs_requests


@dataclass(slots=True)
class Counting:
    """The deployment, and the counts of what it did since the last `take`."""

    profile: BilledProfile
    deployment: BilledDeployment

    def start(self) -> None:
        """Forgets what was done so far."""
        self.deployment.bill = CountingBill()

    def take(self, requests: int, function: str, answer_bytes: int = 0) -> Counts:
        """The counts of one request, the mean of so many."""
        bill = self.deployment.bill
        if not isinstance(bill, CountingBill):
            raise BillError("nothing was counted: call start() first")
        self.start()
        return {name: round(value / requests, 6) for name, value in self._all(bill, function, answer_bytes).items()}

    def _all(self, bill: CountingBill, function: str, answer_bytes: int) -> Counts:
        counts: Counts = {
            "API_REQUESTS": round(bill.lines["api"] * prices.API_REQUESTS.per / prices.API_REQUESTS.usd),
            "LAMBDA_REQUESTS": bill.requests or bill.runs,
            "LAMBDA_GB_SECONDS": FUNCTION_SIZES[function].memory_mb
            / KIB
            * (bill.function_ms + bill.requests * FUNCTION_MS_PER_MIB * answer_bytes / MIB)
            / 1_000,
            "WRITE_UNITS": bill.write_units,
            "READ_UNITS": bill.read_units,
            "LOGGED_BYTES": bill.lines["logs"] * prices.LOGGED_BYTES.per / prices.LOGGED_BYTES.usd,
            "WAKE_UPS": bill.usage.wake_ups,
            "SQS_REQUESTS": bill.usage.sqs_requests,
        }
        for bucket, bucket_prices in self.profile.buckets.items():
            kind = "EXPRESS" if bucket_prices == EXPRESS else "S3"
            _add(counts, f"{kind}_PUTS", bill.usage.puts[bucket])
            _add(counts, f"{kind}_GETS", bill.usage.gets[bucket])
            if kind == "EXPRESS":
                _add(counts, "EXPRESS_UPLOADED_BYTES", bill.usage.uploaded[bucket])
                _add(counts, "EXPRESS_RETRIEVED_BYTES", bill.usage.retrieved[bucket])
        others = (bill.usage.puts.keys() | bill.usage.gets.keys()) - self.profile.buckets.keys()
        for bucket in others:  # the archive
            _add(counts, "S3_PUTS", bill.usage.puts[bucket])
            _add(counts, "S3_GETS", bill.usage.gets[bucket])
        return {name: value for name, value in counts.items() if value}


def _add(counts: Counts, name: str, value: float) -> None:
    counts[name] = counts.get(name, 0.0) + value


def count_appends(profile: BilledProfile, size: int, partitions: int, inline_bytes_max: str = "0") -> Counts:
    """One produce request by an idempotent producer, with its share of rolls, and the bytes it leaves in the index."""
    with topic_of(profile, partitions, inline_bytes_max) as counting:
        with producer_of(counting.deployment) as producer:
            append(producer, size, partitions)
            before = index_bytes()
            counting.start()
            for _ in range(ROUNDS):
                append(producer, size, partitions)
            counts = counting.take(ROUNDS, "produce")
        added = index_bytes() - before
        return counts | {"INDEX_BYTES": round(added / ROUNDS, 1)}


def count_fetches(
    profile: BilledProfile, size: int, *, segments: int = 1, partitions: int = 1, inline_bytes_max: str = "0"
) -> Counts:
    """One fetch at the tail that asks for so many partitions, and finds so many requests' records in the first."""
    opened = topic_of(profile, partitions, inline_bytes_max)
    with opened as counting, producer_of(counting.deployment) as producer:
        offset = 0
        total: Counts = {}
        for _ in range(ROUNDS):
            for _ in range(segments):
                append(producer, size, 1)
            counting.start()
            found = _fetch(counting.deployment, [offset, *[0] * (partitions - 1)])
            if found != segments:
                raise BillError(f"a fetch found {found} of {segments} batches")
            offset += found
            for name, value in counting.take(1, "fetch", answer_bytes=size * segments).items():
                _add(total, name, value)
        return {name: round(value / ROUNDS, 6) for name, value in total.items()}


def count_arming_fetches(profile: BilledProfile, partitions: int) -> Counts:
    """One fetch at the end of all partitions that arms them, because the append before has woken the reader."""
    with topic_of(profile, partitions) as counting, producer_of(counting.deployment) as producer:
        total: Counts = {}
        for number in range(ROUNDS):
            counting.start()
            _fetch(counting.deployment, [number] * partitions, arm=True)
            for name, value in counting.take(1, "fetch").items():
                _add(total, name, value)
            counting.start()
            append(producer, KIB, partitions)
            for name, value in counting.take(1, "produce").items():
                if name == "WAKE_UPS":
                    _add(total, name, value)
        return {name: round(value / ROUNDS, 6) for name, value in total.items()}


def count_commit(profile: BilledProfile, partitions: int) -> Counts:
    """One commit of an offset for each partition, by the member of a group that owns them all."""
    with topic_of(profile, partitions) as counting:
        commits = commit_as_member(counting.deployment, partitions)
        counting.start()
        commits()
        return counting.take(1, "groups")


def commit(deployment: BilledDeployment, offset: int, partitions: int = 1) -> None:
    """One commit of this offset for each partition, by a program that is no member."""
    offsets = [{"topic": TOPIC, "partition": each, "offset": offset} for each in range(partitions)]
    answer = deployment.call("POST", f"/v1/groups/{_GROUP}/offsets", {}, {}, json.dumps({"offsets": offsets}).encode())
    if answer.status != 200 or b"error" in answer.body:
        raise BillError(f"the commit failed: {answer.body!r}")


def count_idle_member(profile: BilledProfile) -> Counts:
    """An hour of a member of a group that waits for wake-ups on six partitions and gets none."""
    return of_bill(bill_waiting_member(profile), "groups", MEMBER_MS / 3_600_000) | {"APPSYNC_MINUTES": 60}


def count_idle_group_of_two(profile: BilledProfile) -> Counts:
    """An hour of both members of a group, that wait on the same six partitions: they share the checks of the group."""
    return of_bill(bill_waiting_member(profile, members=2), "groups", MEMBER_MS / 3_600_000) | {"APPSYNC_MINUTES": 120}


def of_bill(bill: Bill, function: str, shares: float) -> Counts:
    """The counts of one of so many shares of a bill of requests that one function serves."""
    lines = {
        "API_REQUESTS": bill.requests,
        "LAMBDA_REQUESTS": bill.requests,
        "LAMBDA_GB_SECONDS": bill.function_ms / 1_000 * FUNCTION_SIZES[function].memory_mb / KIB,
        "WRITE_UNITS": bill.write_units,
        "READ_UNITS": bill.read_units,
        "LOGGED_BYTES": bill.lines["logs"] * prices.LOGGED_BYTES.per / prices.LOGGED_BYTES.usd,
    }
    return {name: round(value / shares, 6) for name, value in lines.items()}


def count_tiering(profile: BilledProfile, size: int) -> Counts:
    """The share of one request of `size` in the run of `tier` that moves it to the archive."""
    with topic_of(profile, 1) as counting:
        with producer_of(counting.deployment) as producer:
            for _ in range(TIERED_REQUESTS):
                append(producer, size, 1)
        counting.deployment.clock.sleep_ms(_TIER_AFTER_MS)
        counting.start()
        with patch.dict("os.environ", {"PENSTOCK_TIER_BUDGET_MS": "720000"}):
            counting.deployment.run("hourly", hourly.handler, {"task": "tier"})
        counts = counting.take(TIERED_REQUESTS, "hourly")
        calls = sum(counts.get(name, 0) for name in ("EXPRESS_GETS", "S3_GETS", "S3_PUTS"))
        duration_ms = calls * TIER_MS_PER_CALL + size / MIB * FUNCTION_MS_PER_MIB
        return counts | {
            "LAMBDA_GB_SECONDS": FUNCTION_SIZES["hourly"].memory_mb / KIB * duration_ms / 1_000,
            "INDEX_BYTES": round(index_bytes() / TIERED_REQUESTS, 1),
        }


@contextmanager
def topic_of(
    profile: BilledProfile, partitions: int, inline_bytes_max: str = "0", *, pushes: bool = False
) -> Iterator[Counting]:
    """A deployment with one topic, which is counted."""
    with billed_deployment(profile, inline_bytes_max=inline_bytes_max, pushes=pushes) as deployment:
        with Admin(transport=deployment) as admin:
            admin.create_topic(TOPIC, partitions=partitions, config={"max_batch_bytes": BATCH_BYTES_MAX})
        yield Counting(profile, deployment)


def producer_of(deployment: BilledDeployment) -> Producer:
    """A producer that sends when it is told to."""
    return Producer(
        transport=deployment, linger_ms=60_000, batch_bytes=BATCH_BYTES_MAX, compression_type="none", max_in_flight=1
    )


def append(producer: Producer, size: int, partitions: int) -> None:
    """One request with `size` bytes of records in all, one record for each partition."""
    for partition in range(partitions):
        producer.send(TOPIC, b"x" * (size // partitions), partition=partition)
    producer.flush()


def _fetch(deployment: BilledDeployment, offsets: list[int], *, arm: bool = False) -> int:
    """One fetch of all partitions from these offsets on. Returns the number of batches."""
    wanted = [
        {"topic": TOPIC, "partition": partition, "offset": offset, "max_bytes": 4 * MIB}
        for partition, offset in enumerate(offsets)
    ]
    body = json.dumps({"partitions": wanted, "max_bytes": 4 * MIB, "arm": arm}).encode()
    answer = deployment.call("POST", "/v1/fetch", {}, {}, body)
    if answer.status != 200:
        raise BillError(f"the fetch failed: {answer.body!r}")
    header, _ = frame.decode(answer.body)
    partitions: Any = header["partitions"]
    return sum(
        int(str(each["next_offset"])) - offsets[at] for at, each in enumerate(partitions) if "next_offset" in each
    )


def index_bytes() -> int:
    """The bytes of all items of the log's table."""
    client = boto3.client("dynamodb", region_name=prices.REGION, aws_access_key_id="x", aws_secret_access_key="x")
    pages = client.get_paginator("scan").paginate(TableName="log")
    return sum(item_bytes(item) for page in pages for item in page["Items"])


def model_constants() -> Mapping[str, float]:
    """The assumed time of a function, and the bytes of API Gateway's log line for a request."""
    return {
        "function_ms": FUNCTION_MS,
        "function_ms_per_mib": FUNCTION_MS_PER_MIB,
        "access_log_bytes": ACCESS_LOG_BYTES,
    }
