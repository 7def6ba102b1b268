"""Kill `deliver` and its target while records are delivered, and judge what became of each record.

Every second one process of each of the two gets kill -9. Exit code 0: each record was handled, in the order
of its partition, and the dead-letter topic is empty.
"""

import random
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click

from bench.push.processes import kill_one
from bench.push.pushed_topic import DELIVER, PushedTopic, pushed_topic
from bench.report.recording import Report, reported


@click.command(help=__doc__)
@reported("push_kills")
@click.option("--records", default=10_000, show_default=True, type=click.IntRange(1))
@click.option("--partitions", default=6, show_default=True, type=click.IntRange(1))
@click.option("--batch", default=100, show_default=True, type=click.IntRange(1), help="Records of a delivery.")
@click.option("--kills", default=20, show_default=True, type=click.IntRange(0), help="One a second.")
@click.option("--work-ms", default=500, show_default=True, help="That the target takes for a batch.")
@click.option("--seed", default=0, show_default=True, help="Chooses the victims.")
def main(report: Report, records: int, partitions: int, batch: int, kills: int, work_ms: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pushed_topic(Path(folder), partitions=partitions) as topic:
        topic.control(work_ms=work_ms)
        topic.subscribe(start="earliest", batch_records=batch, dead_letter_topic=topic.dead_letter_topic)
        topic.send([b"%d" % number for number in range(records)])
        began_s = time.monotonic()
        killed, left = _kill(topic, kills, random.Random(seed))
        topic.wait_until_delivered()
        seconds = time.monotonic() - began_s
        verdict = topic.verdict()
        unanswered = sum(not each.is_handled for each in topic.invocations())
    report.show("records", [{"records": records, **asdict(verdict)}])
    report.show(
        "kills",
        [
            {
                "kills": sum(killed.values()),
                "of_deliver": killed[DELIVER],
                "of_the_target": sum(killed.values()) - killed[DELIVER],
                "left_at_the_last_kill": left,
                "invocations_that_did_not_end": unanswered,
                "seconds": round(seconds, 1),
            }
        ],
    )
    report.judge(holds=verdict.is_right and not verdict.dead and left > 0)


def _kill(topic: PushedTopic, kills: int, chance: random.Random) -> tuple[dict[str, int], int]:
    """The killed processes by function, and the records left at the last kill."""
    killed = {DELIVER: 0, topic.name: 0}
    left = topic.lag()
    topic.wait_for(lambda: bool(topic.invocations()), progress=topic.lag)
    began_s = time.monotonic()
    for number in range(kills):
        time.sleep(max(0.0, began_s + number + 1 - time.monotonic()))
        left = topic.lag()
        for victim in killed:
            killed[victim] += kill_one(victim, chance)
    return killed, left
