"""Kill workers of a share group while they work, and judge what became of each record.

A random worker gets kill -9 every second, and another one takes its place. Exit code 0: each record was accepted once
or is in the dead-letter topic, and none came again after its acceptance was answered.
"""

import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.share_groups.facts import Acknowledged, Fact, Took, read_ledgers
from bench.share_groups.verdict import Ending, Verdict, judge
from bench.share_groups.workers import Fleet, SharedTopic, dead_letter_number, shared_topic

CONFIG = {"lock_ms": 15_000, "retry_backoff_ms_min": 100, "retry_backoff_ms_max": 1_000}


@click.command(help=__doc__)
@reported("share_kills")
@click.option("--records", default=20_000, show_default=True, type=click.IntRange(1), help="Of one partition.")
@click.option("--workers", default=20, show_default=True, type=click.IntRange(1), help="Processes at a time.")
@click.option("--kills", default=20, show_default=True, type=click.IntRange(0), help="One a second.")
@click.option("--work-ms", default=20.0, show_default=True, help="That a worker takes for a record.")
@click.option("--seed", default=0, show_default=True, help="Chooses the victims.")
@click.option("--ledgers", type=click.Path(file_okay=False, path_type=Path), help="Keep the ledgers in this folder.")
def main(
    report: Report, records: int, workers: int, kills: int, work_ms: float, seed: int, ledgers: Path | None
) -> None:
    report.conditions.append(f"One partition, locks of {CONFIG['lock_ms'] // 1_000} s.")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary, shared_topic() as shared:
        folder = ledgers or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise click.UsageError(f"{folder} is not empty: the ledgers of two runs do not mix")
        shared.send(records)
        group = shared.create_group(dead_letter_topic=shared.dead_letter_topic, **CONFIG)
        fleet = Fleet(group, folder, workers=workers, work_ms=work_ms)
        try:
            seconds, left = _work(shared, group, fleet, [chance.randrange(workers) for _ in range(kills)])
            fleet.end()
        finally:
            fleet.clean_up()
        facts = list(read_ledgers(fleet.ledgers))
        killed = frozenset(fleet.killed)
        dead = [dead_letter_number(each, "offset") for each in shared.dead_letters()]
        verdict = judge(facts, Ending(records=records, dead=dead, killed=killed))
    report.show("records", [{"records": records, **asdict(verdict)}])
    report.show("kills", [_row(facts, killed, seconds, left, verdict)])
    report.judge(holds=verdict.is_right and left > 0)


def _work(shared: SharedTopic, group: str, fleet: Fleet, victims: Sequence[int]) -> tuple[float, int]:
    """Kill while the workers work. The seconds until all is finished, and the records left at the last kill."""
    records = left = shared.unfinished(group)
    shared.wait_until_below(group, records)  # the workers have started
    began_s = time.monotonic()
    for number, place in enumerate(victims, start=1):
        time.sleep(max(0.0, began_s + number - time.monotonic()))
        left = shared.unfinished(group)
        fleet.kill(place)
    shared.wait_until_finished(group)
    return time.monotonic() - began_s, left


def _row(facts: Sequence[Fact], killed: frozenset[str], seconds: float, left: int, verdict: Verdict) -> Row:
    held = _places(fact for fact in facts if isinstance(fact, Took) and fact.worker in killed)
    held -= _places(fact for fact in facts if isinstance(fact, Acknowledged))
    return {
        "kills": len(killed),
        "victims_with_locks": len({worker for worker, _, _ in held}),
        "records_under_them": len(held),
        "unfinished_at_the_last_kill": left,
        "seconds": round(seconds, 1),
        "records_per_s": round(verdict.handled / seconds),
    }


def _places(facts: Iterable[Took | Acknowledged]) -> set[tuple[str, str, int]]:
    """Worker, lock and offset of each record that the facts name."""
    return {
        (fact.worker, fact.lock, offset) for fact in facts for start, end in fact.ranges for offset in range(start, end)
    }
