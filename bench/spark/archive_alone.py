"""Measures the CPU of archiving and replaying on one core: no Spark, no network, storage in memory and a folder.

Beside `bench.spark.archive`, this separates the code from Spark, HTTP and the emulator. There is one partition, with
random values, which do not compress. The best of several rounds counts.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial

import click

from bench.loads.archive_steps import ProcessPlace, archive, replay
from bench.loads.filling import fill_topic
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.spark.archive import MB, to_rows
from penstock_service.adapters.aws import Storage
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.topics.create_topic import create_topic

NOWHERE = Storage(topics_table="", log_table="", groups_table="", repair_queue_url=None, zones=(), archive="")


@click.command(help=__doc__)
@reported("archive_alone")
@click.option("--mb", default=50, show_default=True, help="How many MB of values.")
@click.option("--rounds", default=3, show_default=True, help="How often each step is timed.")
def main(report: Report, mb: int, rounds: int) -> None:
    report.show("steps", [row for value_bytes in (1_024, 100) for row in measure(value_bytes, mb, rounds)])


def measure(value_bytes: int, mb: int, rounds: int) -> list[Row]:
    """MB of values and records per second of CPU time, of each step."""
    seconds: dict[str, float] = {}
    for _ in range(rounds):
        instance = memory_instance()
        source, to = (create_topic(instance, name, 1, {}) for name in ("source", "target"))
        records = fill_topic(instance, source, value_bytes, mb * MB // value_bytes)
        place = ProcessPlace(own=instance, storage=NOWHERE)
        with tempfile.TemporaryDirectory() as folder:
            for step, run in (
                ("archive", partial(archive, place, source, folder)),
                ("replay", partial(replay, place, source, to, folder)),
            ):
                seconds[step] = min(cpu_seconds(run), seconds.get(step, float("inf")))
    return to_rows(value_bytes, records, seconds)


def cpu_seconds(step: Callable[[], None]) -> float:
    """The CPU seconds of this process, all threads."""
    started = time.process_time()
    step()
    return time.process_time() - started


if __name__ == "__main__":
    main()
