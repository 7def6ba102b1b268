"""Deliver one record in a thousand that the target cannot handle, and let the target be down for minutes.

Exit code 0: the poison record alone is in the dead-letter topic, with its reason, after no more invocations than a
clean run and its bound; and the outage sends nothing there.
"""

import math
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click

from bench.push.pushed_topic import PATIENCE_S, PushedTopic, origin, pushed_topic
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_core.limits import PUSH_ATTEMPTS_DEFAULT, PUSH_BACKOFF_LAST_MS_DEFAULT
from penstock_core.share.dead_letter import HEADER_PREFIX

PARTITIONS = 2


@click.command(help=__doc__)
@reported("push_failures")
@click.option("--records", default=1_000, show_default=True, type=click.IntRange(2))
@click.option("--batch", default=100, show_default=True, type=click.IntRange(1), help="Records of a delivery.")
@click.option("--down-s", default=600, show_default=True, type=click.IntRange(1), help="How long the target is down.")
def main(report: Report, records: int, batch: int, down_s: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pushed_topic(Path(folder), partitions=PARTITIONS) as topic:
        row, holds = _poison(topic, records, batch)
    report.show("one poison record", [row])
    report.judge(holds=holds)
    with tempfile.TemporaryDirectory() as folder, pushed_topic(Path(folder), partitions=PARTITIONS) as topic:
        row, holds = _outage(topic, records, batch, down_s)
    report.show("a target that is down", [row])
    report.judge(holds=holds)


def _poison(topic: PushedTopic, records: int, batch: int) -> tuple[Row, bool]:
    poison = records // 2 + 7
    topic.control(poison=[str(poison)])
    topic.send([b"%d" % number for number in range(records)])
    topic.subscribe(start="earliest", batch_records=batch, dead_letter_topic=topic.dead_letter_topic)
    seconds = topic.wait_until_delivered()
    verdict, letters = topic.verdict(), topic.dead_letters()
    clean = sum(math.ceil(len([p for p, _ in topic.sent if p == each]) / batch) for each in range(PARTITIONS))
    bound = clean + math.floor(2 * math.log2(batch)) + PUSH_ATTEMPTS_DEFAULT
    row = {
        "records": records,
        **asdict(verdict),
        "invocations_of_a_clean_run": clean,
        "bound": bound,
        "reason": " ".join((dict(each.headers)[f"{HEADER_PREFIX}reason"] or b"").decode() for each in letters),
        "seconds": round(seconds, 1),
    }
    is_alone = [int(each.value or b"") for each in letters] == [poison]
    return row, verdict.is_right and is_alone and verdict.invocations <= bound


def _outage(topic: PushedTopic, records: int, batch: int, down_s: int) -> tuple[Row, bool]:
    topic.control(is_down=True)
    topic.subscribe(start="earliest", batch_records=batch, dead_letter_topic=topic.dead_letter_topic)
    topic.send([b"%d" % number for number in range(records)])
    time.sleep(down_s)
    tries = len(topic.invocations())
    topic.control()
    came_back_s = time.monotonic()
    topic.wait_until_delivered(PATIENCE_S + PUSH_BACKOFF_LAST_MS_DEFAULT / 1_000)  # the pause may have grown so far
    verdict, letters = topic.verdict(), [*map(origin, topic.dead_letters())]
    row = {
        "down_s": down_s,
        "records": records,
        **asdict(verdict),
        "invocations_while_down": tries,
        "seconds_until_all_was_delivered": round(time.monotonic() - came_back_s, 1),
    }
    return row, verdict.is_right and not letters
