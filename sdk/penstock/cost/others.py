"""The month of the same workload on other systems, by their billing rules.

These bills follow from published rules and prices. No call of these systems is captured. Each function returns an
Estimate, or the reason why the system does not take the workload. Traffic between zones is left out: clients of Kafka
pay it, and those of the other systems do not. Batches are as full as the workload's requests.
"""

import math
from collections.abc import Callable, Sequence

from penstock import prices
from penstock.cost.estimate import CostLine, Estimate, by_price, line
from penstock.cost.workload import HOURS_PER_MONTH, Workload
from penstock_core.limits import KIB, MIB

_DAYS = HOURS_PER_MONTH / 24
_SQS_BATCH, _SQS_REQUEST_BYTES, _SQS_UNIT_BYTES = 10, MIB, 64 * KIB
_SQS_DAYS_MAX = 14
_SQS_POLL_S = 20  # of an empty receive
_EXPRESS_IN, _EXPRESS_OUT = 15.6e6, 31.2e6  # bytes a second of an express.m7g.large (MSK developer guide, limits)
_SERVERLESS_IN, _SERVERLESS_OUT = 200 * MIB, 400 * MIB  # bytes a second of a cluster (the same page)
_AGENTS_MIN, _AGENT_IN = 3, 50 * MIB  # one in each zone; the rate of an agent is assumed
_AGENT_FLUSHES_PER_S, _AGENT_FILE_BYTES = 4.0, 4 * MIB  # as WarpStream's documentation states its defaults; unverified
_UNVERIFIED = "unverified"

Other = Callable[[Workload], Estimate | str]


def kinesis(workload: Workload) -> Estimate | str:
    """Kinesis on demand: bytes in and out, the hours of a stream for each topic, and days beyond the first."""
    moved = _kinesis_bytes(workload)
    week_days = max(0.0, min(workload.retention_days, 7) - 1)
    long_days = max(0.0, workload.retention_days - 7)
    lines = [
        line("produce", "bytes in", moved, prices.KINESIS_BYTES_IN),
        line("consume", "bytes out", moved * workload.readers, prices.KINESIS_BYTES_OUT),
        line("idle", "hours of streams", workload.topics * HOURS_PER_MONTH, prices.KINESIS_STREAM_HOURS),
        line("store", "days 2 to 7", _gb(moved) / _DAYS * week_days, prices.KINESIS_WEEK_GB_MONTHS),
        line("store", "days from the 8th on", _gb(moved) / _DAYS * long_days, prices.KINESIS_LONG_GB_MONTHS),
    ]
    note = f"{_UNVERIFIED}: days 2 on" if week_days else ""
    return Estimate(system="Kinesis on-demand", lines=by_price(lines), note=note)


def kinesis_advantage(workload: Workload) -> Estimate | str:
    """Kinesis on-demand Advantage: cheaper bytes, and a minimum for the account."""
    moved = _kinesis_bytes(workload)
    days = max(0.0, workload.retention_days - 1)
    used = [
        line("produce", "bytes in", moved, prices.KINESIS_ADVANTAGE_BYTES_IN),
        line("consume", "bytes out", moved * workload.readers, prices.KINESIS_ADVANTAGE_BYTES_OUT),
    ]
    least = prices.KINESIS_ADVANTAGE_MINIMUM_DAYS.of(_DAYS)
    missing = max(0.0, least - sum(each.usd for each in used))
    lines = [
        *used,
        CostLine(part="idle", what="up to the minimum of the account", quantity=1, unit="month", usd=missing),
        line("store", "days from the 2nd on", _gb(moved) / _DAYS * days, prices.KINESIS_ADVANTAGE_GB_MONTHS),
    ]
    note = f"{_UNVERIFIED}: days 2 on" if days else ""
    return Estimate(system="Kinesis Advantage", lines=by_price(lines), note=note)


def sqs(workload: Workload) -> Estimate | str:
    """Standard queues, one for each reader: the producer sends each record to all of them."""
    return _sqs("SQS standard", prices.SQS_REQUESTS, workload)


def sqs_fifo(workload: Workload) -> Estimate | str:
    """FIFO queues, one for each reader."""
    return _sqs("SQS FIFO", prices.SQS_FIFO_REQUESTS, workload)


def msk_serverless(workload: Workload) -> Estimate | str:
    """MSK Serverless: hours of clusters and partitions, bytes in and out, and storage."""
    moved = workload.bytes_per_month
    clusters = _ceil(
        workload.bytes_per_s / _SERVERLESS_IN, workload.bytes_per_s * workload.readers / _SERVERLESS_OUT, 1
    )
    lines = [
        line("idle", "hours of clusters", clusters * HOURS_PER_MONTH, prices.MSK_SERVERLESS_HOURS),
        line(
            "idle",
            "hours of partitions",
            workload.topics * workload.partitions * HOURS_PER_MONTH,
            prices.MSK_SERVERLESS_PARTITION_HOURS,
        ),
        line("produce", "bytes in", moved, prices.MSK_SERVERLESS_BYTES_IN),
        line("consume", "bytes out", moved * workload.readers, prices.MSK_SERVERLESS_BYTES_OUT),
        line("store", "GB-months", _gb(workload.stored_bytes), prices.MSK_SERVERLESS_GB_MONTHS),
    ]
    return Estimate(system="MSK Serverless", lines=by_price(lines), note=_UNVERIFIED)


def msk_express(workload: Workload) -> Estimate | str:
    """MSK Express: as many brokers of the smallest size as the rate needs, three at least, in threes."""
    moved = workload.bytes_per_month
    busy = _ceil(workload.bytes_per_s / _EXPRESS_IN, workload.bytes_per_s * workload.readers / _EXPRESS_OUT, 1)
    brokers = 3 * math.ceil(busy / 3)
    lines = [
        line("idle", f"hours of {brokers} brokers", brokers * HOURS_PER_MONTH, prices.MSK_EXPRESS_BROKER_HOURS),
        line("produce", "bytes in", moved, prices.MSK_EXPRESS_BYTES_IN),
        line("store", "GB-months", _gb(workload.stored_bytes), prices.MSK_EXPRESS_GB_MONTHS),
    ]
    return Estimate(system="MSK Express", lines=by_price(lines), note=_UNVERIFIED)


def warpstream(workload: Workload) -> Estimate | str:
    """WarpStream in your own account: its fees, three agents or more, and S3 for what they write and read."""
    moved = workload.bytes_per_month
    agents = _ceil(workload.bytes_per_s / _AGENT_IN, _AGENTS_MIN)
    flushes = min(agents * _AGENT_FLUSHES_PER_S, workload.requests_per_s)
    puts = max(flushes, workload.bytes_per_s / _AGENT_FILE_BYTES) * workload.busy_s
    gets = puts * _AGENTS_MIN * min(1, workload.readers)  # each zone reads a file once
    lines = [
        line("idle", "hours of the cluster", HOURS_PER_MONTH, prices.WARPSTREAM_CLUSTER_HOURS),
        line("idle", f"hours of {agents} agents", agents * HOURS_PER_MONTH, prices.AGENT_HOURS),
        line("produce", "bytes in", moved, prices.WARPSTREAM_BYTES_IN),
        line("produce", "S3 puts", puts, prices.S3_PUTS),
        line("consume", "S3 gets", gets, prices.S3_GETS),
        line("store", "GiB-months", workload.stored_bytes / KIB**3, prices.WARPSTREAM_GIB_MONTHS),
        line("store", "S3", _gb(workload.stored_bytes), prices.S3_GB_MONTHS),
    ]
    return Estimate(system="WarpStream", lines=by_price(lines), note=_UNVERIFIED)


OTHERS: Sequence[Other] = (kinesis, kinesis_advantage, sqs, sqs_fifo, msk_serverless, msk_express, warpstream)
NAMES: Sequence[str] = (
    "Kinesis on-demand",
    "Kinesis Advantage",
    "SQS standard",
    "SQS FIFO",
    "MSK Serverless",
    "MSK Express",
    "WarpStream",
)


def estimates(workload: Workload) -> list[Estimate | str]:
    """The month on each system, in the order of `NAMES`, or why it does not take the workload."""
    return [other(workload) for other in OTHERS]


def _sqs(system: str, price: prices.Price, workload: Workload) -> Estimate | str:
    if workload.record_bytes > _SQS_REQUEST_BYTES:
        return f"a message has {_SQS_REQUEST_BYTES // MIB} MiB at most"
    if workload.retention_days > _SQS_DAYS_MAX:
        return f"a queue keeps messages for {_SQS_DAYS_MAX} days at most"
    batch = max(1.0, min(_SQS_BATCH, workload.records_per_request, _SQS_REQUEST_BYTES // workload.record_bytes))
    units = math.ceil(batch * workload.record_bytes / _SQS_UNIT_BYTES)
    batches = workload.records_per_month / batch
    readers = workload.readers
    polls = max(workload.topics * readers, workload.all_members + workload.share_workers)
    empty = max(0.0, polls * workload.worked_s / _SQS_POLL_S - batches * readers)
    lines = [
        line("produce", "sends", batches * units * readers, price),
        line("consume", "receives", batches * units * readers, price),
        line("consume", "deletes", batches * readers, price),
        line("idle", "empty receives", empty, price),
    ]
    return Estimate(system=system, lines=by_price(lines))


def _kinesis_bytes(workload: Workload) -> float:
    """The bytes of a month that Kinesis bills: each record in whole KB."""
    return workload.records_per_month * KIB * math.ceil(workload.record_bytes / KIB)


def _ceil(*values: float) -> int:
    return math.ceil(max(values))


def _gb(size: float) -> float:
    return size / prices.GB
