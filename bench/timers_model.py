"""Reckons how many delayed records a second one partition delivers on AWS, and what limits it.

The deliveries and the items are the service's own, so their write units are exact. The latencies are assumptions:
Penstock has not run on AWS yet. A promoter delivers 90 timers in each transaction, one after the other. DynamoDB takes
1,000 write units a second for one partition key, and a transaction costs twice the units of its items.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_core.ids import SEGMENT_ID_BYTES, Partition, PartitionKey, TopicId, new_segment_id
from penstock_core.limits import (
    KIB,
    TAIL_ROLL_REFS,
    TIMER_SHARDS,
    TIMERS_PER_MINUTE_MAX,
    TIMERS_PROMOTED_MAX,
    TIMERS_READ_MAX,
)
from penstock_core.log.delivery import Delivery, HeadRoll, rolling
from penstock_core.log.index import EMPTY_HEAD, Head, appended
from penstock_core.log.ref import Ref, Tier
from penstock_core.log.roll import next_page, shortened
from penstock_core.log.timer import Timer, TimerPlace, delivered, new_timer_id
from penstock_core.storage.head_item import head_item
from penstock_core.storage.item import item_bytes
from penstock_core.storage.page_item import page_item
from penstock_core.storage.timer_item import timer_item

UNITS_PER_S = 1_000.0  # of one partition key: "Best practices for designing and using partition keys", AWS
TRANSACTION_MS = (20.0, 40.0, 80.0)  # of 97 actions; AWS publishes none
QUERIES_MS, READ_MS, WRITE_MS = 15.0, 4.0, 5.0  # of 8 queries side by side, a head, and a put or an update
CPU_MS = 5.0 / 0.29  # measured 5 ms on a whole core: 512 MB have 0.29 of one
TRANSACTIONS_PER_READ = TIMERS_READ_MAX / TIMERS_PROMOTED_MAX
KEY = PartitionKey(TopicId("0f" * 10), Partition(0))
NOW_MS = 1_800_000_000_000


@click.command(help=__doc__)
@reported("timers_model")
def main(report: Report) -> None:
    report.conditions.append(
        f"Assumed: {', '.join(f'{each:.0f}' for each in TRANSACTION_MS)} ms for a transaction, {QUERIES_MS:.0f} ms for "
        f"the queries of {TIMER_SHARDS} shards, {READ_MS:.0f} and {WRITE_MS:.0f} ms for a read and a write of an item."
    )
    delivery = _delivery()
    report.show("write units of a timer", [_put_and_mark(delivery.timers[0])])
    rows = [_rates("rolling", _rolling_units(delivery), _rolling_ms, each) for each in TRANSACTION_MS]
    plain = _rates("plain, with rolls", _plain_units(delivery), _plain_ms, TRANSACTION_MS[1])
    report.show("timers a second of one partition", [*rows, plain])
    report.judge(holds=float(str(rows[1]["timers_per_s"])) * 60 >= TIMERS_PER_MINUTE_MAX)


def _delivery() -> Delivery:
    """A full delivery to a head with a usual tail."""
    head = EMPTY_HEAD
    for number in range(TAIL_ROLL_REFS // 2):
        head = appended(head, replace(_timer(number).ref, appended_ms=NOW_MS, is_delayed=True))
    timers = [_timer(number) for number in range(TIMERS_PROMOTED_MAX)]
    return rolling(Delivery(key=KEY, timers=timers, now_ms=NOW_MS + 1_000), head)


def _timer(number: int) -> Timer:
    ref = Ref(
        segment_id=new_segment_id(NOW_MS, bytes(SEGMENT_ID_BYTES - 6)),
        position=123_456,
        length=1_000,
        offset_span=1,
        record_count=1,
        max_timestamp_ms=NOW_MS,
        zones=0,
        tier=Tier.ARCHIVE,
    )
    place = TimerPlace(NOW_MS + number, new_timer_id(NOW_MS, number, bytes(6)))
    return Timer(key=KEY, place=place, ref=ref, crc=2**31, is_announced=True)


def _put_and_mark(timer: Timer) -> Row:
    mark = delivered(timer, NOW_MS + 1_000)
    put, delivery = _units(item_bytes(timer_item(timer))), 2 * _units(item_bytes(timer_item(mark)))
    return {
        "item_bytes": item_bytes(timer_item(mark)),
        "put": put,
        "delivery": delivery,
        "of_all_shards_timers_per_s": round(TIMER_SHARDS * UNITS_PER_S / (put + delivery)),
        "of_one_key_timers_per_s": round(UNITS_PER_S / (put + delivery)),
    }


def _rates(name: str, units: float, ms_of: Callable[[float], float], transaction_ms: float) -> Row:
    """What the head's key and the time of one promoter allow. The shards allow what the other table says."""
    by_units = UNITS_PER_S / units * TIMERS_PROMOTED_MAX
    by_time = 1_000.0 / ms_of(transaction_ms) * TIMERS_PROMOTED_MAX
    return {
        "delivery": name,
        "transaction_ms": round(transaction_ms),
        "head_and_page_units_per_timer": round(units / TIMERS_PROMOTED_MAX, 2),
        "by_units_of_the_head": round(by_units),
        "by_time_of_a_promoter": round(by_time),
        "timers_per_s": round(min(by_units, by_time)),
    }


def _rolling_units(delivery: Delivery) -> float:
    roll = _roll(delivery)
    pages = sum(2 * _units(item_bytes(page_item(KEY, page))) for page in roll.pages)
    return pages + 2 * max(_head_units(roll.before), _head_units(roll.after))


def _plain_units(delivery: Delivery) -> float:
    """One transaction with a long head, and then two plain writes for each page."""
    head = _roll(delivery).before
    for ref in delivery.refs:
        head = appended(head, ref)
    units = 2.0 * _head_units(head)
    while (page := next_page(head)) is not None and (shorter := shortened(head, page)) is not None:
        units += _units(item_bytes(page_item(KEY, page))) + _head_units(head)
        head = shorter
    return units


def _rolling_ms(transaction_ms: float) -> float:
    return CPU_MS + transaction_ms + (QUERIES_MS + READ_MS) / TRANSACTIONS_PER_READ


def _plain_ms(transaction_ms: float) -> float:
    pages = TIMERS_PROMOTED_MAX / TAIL_ROLL_REFS
    return CPU_MS + transaction_ms + READ_MS + pages * 2 * WRITE_MS + QUERIES_MS / TRANSACTIONS_PER_READ


def _roll(delivery: Delivery) -> HeadRoll:
    if delivery.roll is None:
        raise click.ClickException("a full delivery has no pages: see log/delivery.py")
    return delivery.roll


def _head_units(head: Head) -> int:
    return _units(item_bytes(head_item(KEY, head)))


def _units(size: int) -> int:
    return math.ceil(size / KIB)


if __name__ == "__main__":
    main()
