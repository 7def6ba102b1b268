"""Compaction under attack: a process that compacts all topics without pause, and what kills it again and again.

`python -m tests.chaos.compactor STORAGE FOLDER [last]` is that process.
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
from penstock_broker import rewrite_run
from penstock_broker.adapters.aws import Storage, aws_broker
from penstock_broker.adapters.storage_calls import StorageCalls
from penstock_broker.broker import Broker
from penstock_broker.compact import Compacted, compact, partitions_of
from penstock_core.compaction import CompactionSettings
from penstock_core.errors import PenstockError

# Small and soon, as a run lasts for minutes. Partitions of more keys than fit are cleaned pass by pass.
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
_LIFE_S = (5.0, 20.0)
_NOTES = "compaction.jsonl"
ENDED = "compact: ended by itself"


def run_compactor(storage: Storage, folder: Path, *, is_last: bool) -> None:
    """One partition after the other, with a line of notes for each: for ever, or, if it `is_last`, until nothing is
    left to do."""
    vars(rewrite_run)["COMPACTION_RUN_MS_MAX"] = _RUN_MS_MAX
    broker = aws_broker(storage, StorageCalls())
    with (folder / _NOTES).open("ab", buffering=0) as notes:
        while True:
            is_idle = is_last
            for topic, partition in _partitions(broker):
                try:
                    done = compact(broker, topic, partition, SETTINGS, budget_ms=_BUDGET_MS)
                except PenstockError as error:
                    done = Compacted(topic=topic, partition=partition, failures=1, errors=[str(error)])
                notes.write(json.dumps(asdict(done)).encode() + b"\n")
                is_idle &= not (done.runs or done.refused or done.failures or done.is_held)
            if is_idle:
                return


def compact_to_the_end(storage: Storage, folder: Path, checkout: Path, within_s: float) -> list[str]:
    """What those who were killed have left is finished by one run that nobody disturbs: what was wrong with it."""
    with _started(storage, folder, checkout, "last") as process:
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return [f"compaction did not come to its end within {within_s:.0f} s"]
    return [f"the last compaction ended with exit code {code}"] if code else []


@contextmanager
def compacting(storage: Storage, folder: Path, checkout: Path, seed: int) -> Iterator[Counter[str]]:
    """Compaction by the code of `checkout` goes on meanwhile, in one process after the other: each is killed after a
    few seconds, if no fault has done it before. The counter says in the end what the runs have told, and who died."""
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
        done.update(_told(folder / _NOTES))


def _started(storage: Storage, folder: Path, checkout: Path, *more: str) -> subprocess.Popen[bytes]:
    places = (checkout / "functions", CHECKOUT, CHECKOUT / "functions", CHECKOUT / "sdk")
    with (folder / "compaction.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.compactor", json.dumps(asdict(storage)), str(folder), *more],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
            stderr=log,
        )


def _partitions(broker: Broker) -> list[tuple[str, int]]:
    while True:
        try:
            return [(name, int(partition)) for name, partition in partitions_of(broker, ())]
        except PenstockError:
            continue


def _told(notes: Path) -> Counter[str]:
    told: Counter[str] = Counter()
    for line in notes.read_text().splitlines() if notes.exists() else ():
        facts = json.loads(line)
        told["compact: partitions looked at"] += 1
        for name in ("runs", "refs_before", "refs_after", "bytes_before", "bytes_after", "refused", "failures"):
            told[f"compact: {name}"] += facts[name]
    return told


if __name__ == "__main__":
    run_compactor(Storage(**json.loads(sys.argv[1])), Path(sys.argv[2]), is_last=sys.argv[3:] == ["last"])
