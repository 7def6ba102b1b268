"""Models share groups on AWS: many workers, few partitions, and the latencies of AWS, in simulated time.

The plans of acquires and acknowledgements are the service's own, and so is the appetite of the SDK's share consumer.
The latencies are assumptions: Penstock has not run on AWS yet.
"""

from dataclasses import replace

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.share_model.worker import Habits, Worker
from bench.share_model.world import World
from penstock_core.limits import SDK_SHARE_LINGER_MS, SDK_SHARE_LINGER_PART_MS
from penstock_core.share.share_group import ORDER_KEY, new_share_group_config

# The bars.
SHARE_OF_RATE_MIN, ONE_PARTITION_MIN = 0.95, 20_000
WRITES_MAX = 1.1  # writes for each one that succeeds

LINGERS_MS = (500.0, 0.0)  # besides the SDK's, for which a finished lock waits for an acquire
WARM_UP_MS = 5_000.0
SLOW_MS, WORK_MS = 20.0, (20.0, 5.0, 1.0)  # of one record


@click.command(help=__doc__)
@reported("share_model")
@click.option("--seconds", default=12, show_default=True, type=click.IntRange(6), help="Of simulated time.")
def main(report: Report, seconds: int) -> None:
    report.conditions.append(
        "Latencies are assumed medians: 22 ms for API and function, 4 and 5 ms for DynamoDB, 6 ms for S3 Express."
    )
    habits = Habits(
        config=new_share_group_config({}),
        work_ms=5.0,
        records_max=100,
        linger_ms=SDK_SHARE_LINGER_MS,
        part_linger_ms=SDK_SHARE_LINGER_PART_MS,
    )
    rows: list[Row] = []
    for linger_ms in (SDK_SHARE_LINGER_MS, *LINGERS_MS):
        found = model(300, 6, replace(habits, linger_ms=linger_ms), seconds)
        rows.append({"linger_ms": linger_ms, **_pick(found, "records_per_s", "share_of_possible", "empty_acquires")})
        report.judge(holds=linger_ms != SDK_SHARE_LINGER_MS or _number(found, "share_of_possible") >= SHARE_OF_RATE_MIN)
    report.show("300_workers_6_partitions_5_ms_a_record", rows)
    one = model(40, 1, replace(habits, work_ms=0.05), seconds)
    report.show("one_partition_40_workers_batches_of_100", [_pick(one, "records_per_s", "writes_per_success")])
    report.judge(holds=_number(one, "records_per_s") >= ONE_PARTITION_MIN)
    report.show("one_partition_20_workers", _one_partition(report, habits, seconds))


def model(workers: int, partitions: int, habits: Habits, seconds: int) -> Row:
    """The figures of one run, of the time after the warm-up. A write may be refused: it costs as much."""
    world = World(workers, partitions)
    for _ in range(workers):
        world.start(Worker(world, habits).work(), world.random.uniform(0.0, 1_000.0))
    world.run_until(WARM_UP_MS)
    world.counts.clear()
    world.run_until(seconds * 1_000.0)
    counts = world.counts
    records_per_s = counts["handled"] / (seconds - WARM_UP_MS / 1_000.0)
    thousands = max(1, counts["handled"]) / 1_000.0
    return {
        "records_per_s": round(records_per_s),
        "share_of_possible": round(records_per_s * habits.work_ms / 1_000.0 / workers, 3),
        "records_per_acquire": round(counts["granted"] / max(1, counts["acquires"] - counts["empty"]), 1),
        "empty_acquires": counts["empty"],
        "writes_per_success": round(counts["updates"] / max(1, counts["updates"] - counts["refused"]), 3),
        "writes_per_1000_records": round(counts["updates"] / thousands, 1),
        "write_units_per_1000_records": round(counts["units"] / thousands, 1),
        "item_bytes_max": max(item.bytes_max for item in world.items),
    }


def _one_partition(report: Report, habits: Habits, seconds: int) -> list[Row]:
    """20 workers. By key the bar is for workers that do not fill the places of records in flight."""
    rows: list[Row] = []
    for ordering in ("none", ORDER_KEY):
        config = new_share_group_config({"ordering": ordering})
        for failing_share in (0.0, 0.01):
            for work_ms in WORK_MS:
                chosen = replace(habits, config=config, failing_share=failing_share, work_ms=work_ms)
                found = model(20, 1, chosen, seconds)
                is_barred = ordering != ORDER_KEY or work_ms >= SLOW_MS
                report.judge(holds=not is_barred or _number(found, "writes_per_success") <= WRITES_MAX)
                rows.append(
                    {"ordering": ordering, "failing_percent": 100 * failing_share, "ms_a_record": work_ms, **found}
                )
    return rows


def _pick(row: Row, *names: str) -> Row:
    return {name: row[name] for name in names}


def _number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, int | float)
    return value


if __name__ == "__main__":
    main()
