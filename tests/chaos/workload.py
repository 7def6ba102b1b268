"""The clients of a run, and what each has to do before the run may be judged."""

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from random import Random
from typing import Any

from penstock.producer.settings import AcksName, CompressionName
from penstock_service.adapters.aws import Storage
from tests.chaos.clients.clients import ProducerSpec, Target, run_consumers, run_producers, run_reader
from tests.chaos.clients.compactor import compact_to_the_end, compacting
from tests.chaos.clients.keyed_clients import run_keyed, run_keyed_reader
from tests.chaos.clients.queue_ends import run_drains, run_queue_end_reader
from tests.chaos.clients.queue_topics import LATER, TASKS
from tests.chaos.clients.share_workers import SLOTS
from tests.chaos.clients.task_producers import run_task_producers
from tests.chaos.injector import Injector
from tests.chaos.judging.verdict import Verdict
from tests.chaos.push.push_clients import run_push_drains, run_push_operator
from tests.chaos.push.push_run import PushRun
from tests.chaos.push.subscriptions import DRAINED, PUSHED

_WARM_CALLS = 40
PUSH_STRIKES_PER_S = 0.6  # the calls other than deliveries are so few, and a killed one holds its lane for 65 s
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients of a run: all of them, or only those of subscriptions."""

    target: Target
    pushes: PushRun
    seed: int
    is_push_only: bool

    def start(self, stop: Event) -> list[SpawnProcess]:
        """Start the processes that work until `stop`, but for the operator of subscriptions."""
        topics = (PUSHED,) if self.is_push_only else (PUSHED, TASKS, LATER)
        calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(run_task_producers, (self.seed, stop, topics))]
        if not self.is_push_only:
            specs = _producers(self.seed)
            calls += [(run_producers, (half, stop)) for half in (specs[::2], specs[1::2])]
            calls += [(run_consumers, (stop,)), (run_keyed, (self.seed, stop))]
        processes = [_SPAWN.Process(target=entry, args=(self.target, *rest)) for entry, rest in calls]
        for process in processes:
            process.start()
        return processes

    def start_operator(self, stop: Event) -> SpawnProcess:
        """Start the operator of subscriptions."""
        process = _SPAWN.Process(target=run_push_operator, args=(self.target, self.pushes.targets, stop))
        process.start()
        return process

    def slots(self) -> tuple[str, ...]:
        """The slots of workers of share groups."""
        return () if self.is_push_only else SLOTS

    def is_warm(self, injector: Injector) -> bool:
        """Whether the functions have started. Calls at the same time each start one, which takes a second."""
        paths = ("/v1/produce",) if self.is_push_only else ("/v1/produce", "/v1/fetch")
        least = _WARM_CALLS // 4 if self.is_push_only else _WARM_CALLS
        return all(injector.calls[f"api POST {path}"] >= least for path in paths)

    @contextmanager
    def compacting(self, storage: Storage, folder: Path, checkout: Path) -> Iterator[Counter[str]]:
        """Compact all topics meanwhile, and be killed again and again."""
        if self.is_push_only:
            yield Counter()
        else:
            with compacting(storage, folder, checkout, self.seed) as done:
                yield done

    def compact_to_the_end(self, storage: Storage, folder: Path, checkout: Path, within_s: float) -> list[str]:
        """Compact what is left. Return what was wrong."""
        return [] if self.is_push_only else compact_to_the_end(storage, folder, checkout, within_s)

    def drains(self) -> list[Callable[..., None]]:
        return [run_push_drains] if self.is_push_only else [run_drains, run_push_drains]

    def names_of_drains(self) -> list[str]:
        return ["push-drains"] if self.is_push_only else ["drains", "push-drains"]

    def readers(self) -> list[Callable[..., None]]:
        keyed = [] if self.is_push_only else [run_keyed_reader]
        return [run_reader, *keyed, run_queue_end_reader]

    def undone(self, verdict: Verdict) -> list[str]:
        """What a run must have done: a run that does nothing proves nothing."""
        has_commits = self.is_push_only or verdict.history.counts.commits
        pushed = {name for name, figures in verdict.history.subscriptions.items() if figures.records}
        return [
            *([] if has_commits else ["no commit of the group was acknowledged"]),
            *(f"subscription {name} has delivered nothing" for name in DRAINED if name not in pushed),
        ]


def _producers(seed: int) -> list[ProducerSpec]:
    chance = Random(seed)
    kinds: list[tuple[str, AcksName, bool, int, int, CompressionName]] = [
        ("quorum-keyed", "quorum", True, 20, 2_000, "zstd"),
        ("all-keyed", "all", True, 10, 2_000, "none"),
        ("all-unkeyed", "all", False, 10, 200, "lz4"),
        ("quorum-large", "quorum", False, 8, 100_000, "none"),
    ]
    return [
        ProducerSpec(
            name=name,
            acks=acks,
            is_keyed=is_keyed,
            burst=burst,
            value_bytes_max=value_bytes_max,
            compression_type=compression_type,
            seed=chance.randrange(2**32),
        )
        for name, acks, is_keyed, burst, value_bytes_max, compression_type in kinds
    ]
