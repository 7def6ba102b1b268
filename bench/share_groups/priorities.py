"""Send urgent records beside a backlog, and see how long they wait for one of 20 busy workers.

One group lists two topics. The backlog is in the lower one. A record takes a worker `--job-ms` on average, half as
long or up to half longer. Exit code 0: p99 from send to hand-out is within `HAND_OUT_P99_MS`, and each record was
handled once.
"""

import random
import statistics
import threading
import time
from collections import Counter
from contextlib import ExitStack

import click

from bench.report.recording import Report, reported
from bench.share_groups.shared_topic import shared_topic
from penstock import Producer, ShareConsumer
from penstock.model.share import ShareRecord

WORKERS = 20
HAND_OUT_P99_MS = 300
FIRST_RECORDS = 10  # that a worker's first acquire may bring


@click.command(help=__doc__)
@reported("share_priorities")
@click.option("--backlog", default=10_000, show_default=True, help="Low records that wait.")
@click.option("--urgent", default=300, show_default=True, type=click.IntRange(2), help="High records to send.")
@click.option("--job-ms", default=500, show_default=True, help="That a record takes on average.")
@click.option("--max-records", default=100, show_default=True, help="That a worker holds, within 250 ms of work.")
def main(report: Report, backlog: int, urgent: int, job_ms: int, max_records: int) -> None:
    report.conditions.append(f"{WORKERS} workers, {job_ms} ms a record on average, max_records={max_records}.")
    with shared_topic() as high, shared_topic() as low, ExitStack() as ends:
        group = f"{low.name}.listed"
        low.admin.create_share_group(group, [high.name, low.name], {"topic_order": "listed"})
        low.groups.append(group)
        with Producer() as producer:
            for number in range(backlog):
                producer.send(low.name, b"%d" % number)
        handled, waits_ms, by_worker = Counter[tuple[str, bytes]](), list[float](), Counter[int]()

        def handle(record: ShareRecord) -> None:
            by_worker[threading.get_ident()] += 1
            handled[record.topic, record.value or b""] += 1
            if record.topic == high.name:
                waits_ms.append(time.time() * 1_000 - float(record.value or b""))
            time.sleep(job_ms / 1_000 * random.uniform(0.5, 1.5))  # equal ones would let workers march in step

        for _ in range(WORKERS):
            worker = ShareConsumer(group_id=group, max_records=max_records)
            thread = threading.Thread(target=worker.run, args=(handle,), kwargs={"concurrency": 1})
            ends.callback(thread.join)
            ends.callback(worker.stop)
            thread.start()
        while len(by_worker) < WORKERS or min(by_worker.values()) <= FIRST_RECORDS:
            time.sleep(0.1)
        with Producer(linger_ms=0) as producer:
            for _ in range(urgent):
                producer.send(high.name, repr(time.time() * 1_000).encode()).result()
                time.sleep(random.uniform(0, 0.4))
        while len(waits_ms) < urgent:
            time.sleep(0.1)
        left = low.unfinished(group)
    quantiles = statistics.quantiles(waits_ms, n=100)
    twice = sum(count > 1 for count in handled.values())
    row = {"urgent": urgent, "p50_ms": round(quantiles[49]), "p99_ms": round(quantiles[98]), "twice": twice}
    report.show("urgent_records", [{**row, "unfinished_after": left}])
    report.judge(holds=quantiles[98] <= HAND_OUT_P99_MS and not twice and left > 0)


if __name__ == "__main__":
    main()
