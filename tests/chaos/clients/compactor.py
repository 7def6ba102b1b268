"""Compaction under attack: a process compacts all topics without pause, and the run kills it again and again.

`python -m tests.chaos.clients.compactor STORAGE FOLDER [last]` is that process.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random

from localstack.places import CHECKOUT
from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.log.inline import InlineBounds
from penstock_service.adapters.aws import Storage, ZoneBucket, aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.compaction import rewrite_run
from penstock_service.compaction.compact import CompactionResult, compact, partitions_of
from penstock_service.instance.instance import Instance

# Small sizes and short times, as a run lasts for minutes. A partition with more keys than fit needs several passes.
SETTINGS = CompactionSettings(
    age_ms_min=5_000,
    refs_min=8,
    ref_bytes=200_000,
    segment_bytes=2_000_000,
    dirty_share_min=0.0,
    lease_ms=2_000,
    keys_max=40,
)
# From a segment's id to its swap: less than the sweep's grace, which is a minute here.
_RUN_MS_MAX = 20_000
_BUDGET_MS = 10_000
_LIST_TRIES_MAX = 1_000
_LIFE_S = (5.0, 20.0)
_NOTES = "compaction.jsonl"
ENDED = "compact: ended by itself"


def run_compactor(storage: Storage, folder: Path, *, is_last: bool) -> None:
    """Compact one partition after the other, and write a line of notes for each.

    It goes on for ever. If it `is_last`, it ends once no partition has anything left to compact.
    """
    assert hasattr(rewrite_run, "COMPACTION_RUN_MS_MAX")  # else the next line would change nothing
    vars(rewrite_run)["COMPACTION_RUN_MS_MAX"] = _RUN_MS_MAX
    instance = aws_instance(storage, StorageCalls())
    with (folder / _NOTES).open("ab", buffering=0) as notes:
        while True:
            is_idle = is_last
            for topic, partition in _partitions(instance):
                try:
                    done = compact(instance, topic, partition, SETTINGS, budget_ms=_BUDGET_MS)
                except PenstockError as error:
                    done = CompactionResult(topic=topic, partition=partition, failures=1, errors=(str(error),))
                notes.write(json.dumps(asdict(done)).encode() + b"\n")
                is_idle &= not (done.runs or done.refused or done.failures or done.is_held)
            if is_idle:
                return


def compact_to_the_end(storage: Storage, folder: Path, checkout: Path, within_s: float) -> list[str]:
    """Finish the work of the killed processes by one undisturbed run, and return what was wrong with it."""
    with _started(storage, folder, checkout, "last") as process:
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return [f"compaction did not come to its end within {within_s:.0f} s"]
    return [f"the last compaction ended with exit code {code}"] if code else []


@contextmanager
def compacting(storage: Storage, folder: Path, checkout: Path, seed: int) -> Iterator[Counter[str]]:
    """Compact meanwhile by the code of `checkout`, in one process after the other.

    A process that no fault has killed is killed after a few seconds. In the end the counter holds the runs' own counts,
    and the number of processes by their ends.
    """
    chance = Random(seed)
    stop = threading.Event()
    done: Counter[str] = Counter()

    def run_and_kill() -> None:
        while not stop.is_set():
            with _started(storage, folder, checkout) as process:
                try:
                    is_fault = process.wait(chance.uniform(*_LIFE_S)) == -signal.SIGKILL
                    done["compact: killed by a fault" if is_fault else ENDED] += 1
                except subprocess.TimeoutExpired:
                    process.kill()
                    done["compact: killed by the run"] += 1

    thread = threading.Thread(target=run_and_kill)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
        done.update(_counts(folder / _NOTES))


def storage_of_json(text: str) -> Storage:
    """The storage whose `asdict` the text is."""
    found = json.loads(text)
    zones = tuple(ZoneBucket(**each) for each in found["zones"])
    return Storage(**{**found, "zones": zones, "small": InlineBounds(**found["small"])})


def _started(storage: Storage, folder: Path, checkout: Path, *more: str) -> subprocess.Popen[bytes]:
    places = (checkout / "functions", CHECKOUT, CHECKOUT / "functions", CHECKOUT / "sdk")
    with (folder / "compaction.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.clients.compactor", json.dumps(asdict(storage)), str(folder), *more],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
            stderr=log,
        )


def _partitions(instance: Instance) -> list[tuple[str, int]]:
    for _ in range(_LIST_TRIES_MAX):
        try:
            return [(name, int(partition)) for name, partition in partitions_of(instance, ())]
        except PenstockError:
            continue
    raise AssertionError(f"the partitions could not be listed in {_LIST_TRIES_MAX:,} tries")


def _counts(notes: Path) -> Counter[str]:
    told: Counter[str] = Counter()
    for line in notes.read_text().splitlines() if notes.exists() else ():
        facts = json.loads(line)
        told["compact: partitions looked at"] += 1
        for name in ("runs", "refs_before", "refs_after", "bytes_before", "bytes_after", "refused", "failures"):
            told[f"compact: {name}"] += facts[name]
    return told


if __name__ == "__main__":
    run_compactor(storage_of_json(sys.argv[1]), Path(sys.argv[2]), is_last=sys.argv[3:] == ["last"])
