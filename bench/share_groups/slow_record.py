"""Let one record take a minute, and see who waits for it: nobody, or with order by key the records of its key.

Two groups read the same records at the same time, one of each ordering. Locks are much shorter than the slow record
takes, so it comes again if its lock is not renewed. Exit code 0: it was delivered once, and the right ones waited.
"""

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

import click

from bench.report.recording import Report, reported
from bench.report.result import Row, Value
from bench.share_groups.shared_topic import SharedTopic, shared_topic
from penstock import Producer, ShareConsumer
from penstock.model.share import ShareRecord

LOCK_MS = 15_000
KEYS = 50
WORKERS = 4
HANDLED_SHARE_MIN = 0.95  # of the records that come while the slow one is at work
ORDERINGS = ("none", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """One call of a handler. Record 0 is the slow one."""

    number: int
    begun_s: float
    ended_s: float


@click.command(help=__doc__)
@reported("share_slow_record")
@click.option("--slow-s", default=60.0, show_default=True, help="That the slow record takes.")
@click.option("--records-per-s", default=100, show_default=True, type=click.IntRange(1), help="That come meanwhile.")
def main(report: Report, slow_s: float, records_per_s: int) -> None:
    report.conditions.append(f"{WORKERS} workers in each group, {KEYS} keys, locks of {LOCK_MS // 1_000} s.")
    rows: list[Row] = []
    with shared_topic() as shared, ExitStack() as ends:
        teams = [_Team(shared.create_group(lock_ms=LOCK_MS, ordering=each), each, slow_s) for each in ORDERINGS]
        for team in teams:
            team.start(ends)
        sent_s = _send(shared, slow_s, records_per_s)
        for team in teams:
            shared.wait_until_finished(team.group)
            lost = sum(each.locks_lost for each in team.consumers)
            rows.append({"ordering": team.ordering, **row_of(team.found, sent_s), "locks_lost": lost})
    report.show("a_slow_record", rows)
    report.judge(holds=all(is_right(row) for row in rows))


class _Team:
    """The workers of one group, as threads, and what they have handled. The first record takes `slow_s`."""

    def __init__(self, group: str, ordering: str, slow_s: float) -> None:
        self.group, self.ordering = group, ordering
        self.consumers = [ShareConsumer(group_id=group) for _ in range(WORKERS)]
        self.found: list[Handling] = []
        self._slow_s = slow_s

    def start(self, ends: ExitStack) -> None:
        """Start the workers. `ends` stops them."""
        for consumer in self.consumers:
            thread = threading.Thread(target=consumer.run, args=(self._handle,), kwargs={"concurrency": 1})
            ends.callback(thread.join)
            ends.callback(consumer.stop)
            thread.start()

    def _handle(self, record: ShareRecord) -> None:
        number, begun_s = int(record.value or b""), time.monotonic()
        if number == 0:
            time.sleep(self._slow_s)
        self.found.append(Handling(number=number, begun_s=begun_s, ended_s=time.monotonic()))


def _send(shared: SharedTopic, slow_s: float, records_per_s: int) -> dict[int, float]:
    """Send the slow record, and then others at their pace for as long as it takes. When each was sent, by number."""
    sent_s: dict[int, float] = {}
    with Producer(linger_ms=20) as producer:
        producer.send(shared.name, b"0", key=b"0").result()
        began_s = sent_s[0] = time.monotonic()
        for number in range(1, int(slow_s * records_per_s)):
            time.sleep(max(0.0, began_s + number / records_per_s - time.monotonic()))
            sent_s[number] = time.monotonic()
            producer.send(shared.name, b"%d" % number, key=b"%d" % (number % KEYS))
    return sent_s


def row_of(found: Sequence[Handling], sent_s: Mapping[int, float]) -> Row:
    """The group's work while the slow record was at work, and whether the records of each key came in order.

    `sent_s` has the time of each record, by number. Those whose number `KEYS` divides have the slow record's key.
    """
    slow = [each for each in found if each.number == 0]
    begun_s, ended_s = slow[0].begun_s, slow[0].ended_s
    meanwhile = [each for each in found if each.number and each.ended_s <= ended_s]
    others = [each for each in meanwhile if each.number % KEYS]
    waits_ms = [(each.begun_s - sent_s[each.number]) * 1_000 for each in others]
    return {
        "deliveries_of_the_slow_record": len(slow),
        "slow_s": round(ended_s - begun_s, 1),
        "others_sent_meanwhile": sum(number % KEYS > 0 and at_s <= ended_s for number, at_s in sent_s.items()),
        "others_handled_meanwhile": len(others),
        "others_wait_p50_ms": round(statistics.median(waits_ms)),
        "others_wait_p99_ms": round(statistics.quantiles(waits_ms, n=100)[98]),
        "its_key_sent": sum(number % KEYS == 0 for number in sent_s) - 1,
        "its_key_handled_meanwhile": len(meanwhile) - len(others),
        "keys_out_of_order": _keys_out_of_order(found),
        "handled_again": len(found) - len({each.number for each in found}),
    }


def is_right(row: Mapping[str, Value]) -> bool:
    """The slow record came once, no other key waited for it, and its own key did so with order by key only."""
    if row["ordering"] == "key":
        has_waited = row["its_key_handled_meanwhile"] == 0 and row["keys_out_of_order"] == 0
    else:
        has_waited = not _is_most(row["its_key_handled_meanwhile"], row["its_key_sent"])
    return (
        row["deliveries_of_the_slow_record"] == 1
        and _is_most(row["others_handled_meanwhile"], row["others_sent_meanwhile"])
        and has_waited is (row["ordering"] == "key")
    )


def _is_most(part: Value, whole: Value) -> bool:
    return float(part or 0) >= HANDLED_SHARE_MIN * float(whole or 0)


def _keys_out_of_order(found: Sequence[Handling]) -> int:
    """The keys of which a record was begun before an earlier one had ended."""
    by_key: dict[int, list[Handling]] = defaultdict(list)
    for each in sorted(found, key=lambda each: each.number):
        by_key[each.number % KEYS].append(each)
    return sum(any(after.begun_s < before.ended_s for before, after in pairwise(each)) for each in by_key.values())
