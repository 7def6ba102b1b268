"""One chaos run: a stack of its own, a plan of faults, a workload, the reads after it, and the verdict."""

import json
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from localstack.clients import read_rules, set_rules
from localstack.places import CHECKOUT
from penstock import Admin
from tests.chaos.clients.clients import TRUNCATED, Target
from tests.chaos.clients.compactor import ENDED
from tests.chaos.clients.keyed_clients import KEYED, fill_keyed
from tests.chaos.clients.queue_topics import create_queue
from tests.chaos.clients.share_workers import run_share_workers
from tests.chaos.clients.stop_file import StopFile
from tests.chaos.clients.task_producers import run_queue_reader
from tests.chaos.deployment import JOBS, LOOK, Zones, functions_through, storage_through, zone_of_bucket
from tests.chaos.injector import Injector
from tests.chaos.judging.keyed_verdict import KeyedVerdict, judge_keyed
from tests.chaos.judging.verdict import Verdict, judge, unread
from tests.chaos.plan import STRIKES_PER_S, Plan, ZoneFault, ZoneOutage, make_plan
from tests.chaos.push.delivery_watch import DeliveryWatch
from tests.chaos.push.push_run import ENDPOINT_ENDED, begin_push
from tests.chaos.push.targets import DELIVER
from tests.chaos.tormenting import ENDED as ENDED_THEMSELVES
from tests.chaos.tormenting import tormenting
from tests.chaos.workload import PUSH_STRIKES_PER_S, Clients
from tests.end_to_end.fault_proxy import fault_proxy
from tests.end_to_end.local_stack import Stack, free_port, run, up
from tests.history.recorder import Recorder

# All rules of AWS (docs/how-to/local-stack.md). This machine does a few calls a second to a partition key, so the
# units of a key and a table are that much smaller than on AWS. A few puts in a hundred meet a 409.
LIKE_AWS = (
    "all,throughput.write_units_per_key=6,throughput.read_units_per_key=30,throughput.write_units_per_table=40,"
    "throughput.read_units_per_table=250,directory_buckets.conflict_share=0.03,concurrency.account=30"
)
TOPICS = ("orders", TRUNCATED)
PARTITIONS = 3
_TICK_S = 0.1
_WARM_CALLS = 40
_START_S_MAX = 120.0
_END_S_MAX = 180.0  # with delivery time-outs and requests in flight
_READ_S_MAX = 600.0
_DRAIN_S_MAX = 900.0  # a slow machine needs minutes for what takes seconds
_CATCH_UP_S_MAX = 300.0  # recover_zones waits 40 s before its pass, and failed repairs come back after a minute
_RECOVER_EACH_S = 1.0
_JOB_EACH_S = 3.0
_SLOW_APPEND_S = 2.5  # a put that does not answer has failed after 3 s
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosReport:
    """The report of a run.

    `stopped_waiting_s` has an entry for each outage in which a zone hung. It is the time after its begin for which
    appends with acks=all still waited for it, or None if no later append was quick. `requests` counts by path and
    status, with 0 for no answer. `jobs` adds up the counts that scheduled functions return. `workers` counts what was
    done to the workers of share groups, and `deliveries` what was done to deliveries and their targets. `like_aws`
    counts what the rules of AWS did. `caught_up_s` is the time from the end of the last client until every zone was in
    sync with every segment, or None if that never came.
    """

    plan: Plan
    verdict: Verdict
    keyed: KeyedVerdict
    injected: dict[str, int]
    requests: dict[str, int]
    storage_calls: dict[str, int]
    jobs: dict[str, int]
    workers: dict[str, int]
    deliveries: dict[str, int]
    like_aws: dict[str, int]
    stopped_waiting_s: tuple[float | None, ...]
    caught_up_s: float | None
    faults_s: float
    whole_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosSettings:
    """What a run is to do. `checkout` is deployed instead of this one.

    The rules of AWS that `like_aws` names hold from the first fault to the last read. `is_push_only`: only the clients
    of subscriptions work, which a slow machine bears.
    """

    seconds: float
    seed: int
    checkout: Path | None = None
    like_aws: str = LIKE_AWS
    is_push_only: bool = False

    @property
    def strikes_per_s(self) -> float:
        """The strikes at single calls."""
        return PUSH_STRIKES_PER_S if self.is_push_only else STRIKES_PER_S


def run_chaos(folder: Path, settings: ChaosSettings, tell: Callable[[str], None]) -> ChaosReport:
    """Run in `folder`, which must be empty, and leave all notes there.

    `tell` is called with each step. Raises AssertionError if the stack does not come up.
    """
    began = time.monotonic()
    tell("deploying a stack")
    with _stack(folder / "stack", settings.checkout) as stack:
        buckets = zone_of_bucket(stack)
        plan = make_plan(settings.seed, settings.seconds, tuple(buckets.values()), settings.strikes_per_s)
        port = int(stack.endpoint_url.rpartition(":")[2])
        injector = Injector(plan, buckets)
        readers = {zone: f"reader-without-{zone}" for zone in buckets.values()}
        with (
            Recorder.open(folder / "injector.history.jsonl") as recorder,
            _proxied(stack, injector, recorder) as proxy_url,
        ):
            target = _target(stack, proxy_url, folder)
            pushes = begin_push(stack, target, settings.seed, recorder)
            clients = Clients(target=target, pushes=pushes, seed=settings.seed, is_push_only=settings.is_push_only)
            if not settings.is_push_only:
                tell("filling the compacted topic")
                fill_keyed(target)
            follower = _Follower(target)
            zones = Zones(stack)
            with _running(zones, ["recover_zones"], _RECOVER_EACH_S):
                compacts = storage_through(stack, proxy_url), folder, settings.checkout or CHECKOUT
                with _running(zones, JOBS, _JOB_EACH_S), clients.compacting(*compacts) as compacted:
                    begin = partial(set_rules, port, f"{settings.like_aws},seed={settings.seed}")
                    attacked = _attack(clients, injector, plan, tell, begin)
                violations = attacked.violations
                if compacted[ENDED]:
                    violations.append(f"compaction ended by itself {compacted[ENDED]:,} times: see compaction.log")
                faults_s = time.monotonic() - attacked.started_at
                with pushes.calm():
                    tell("compacting what is left")
                    violations += clients.compact_to_the_end(*compacts, _READ_S_MAX)
                    tell("working off share groups and subscriptions, and waiting for delayed records")
                    with _running(zones, ["promote", LOOK], _RECOVER_EACH_S):
                        violations += _together(*((drain, target, _DRAIN_S_MAX) for drain in clients.drains()))
                violations += follower.end()
                tell("waiting until every zone is in sync and has every segment")
                caught_up_s = _caught_up_s(zones)
            if caught_up_s is None:
                violations.append(f"after {_CATCH_UP_S_MAX:.0f} s zones still lack segments: {zones.missing_copies()}")
            violations += _read_everything(clients, injector, readers, tell)
        counted = read_rules(port)["counts"]
    tell("judging the history")
    pushes.tell_timeouts(folder / "stack" / "emulator.log")
    verdict = judge(folder, [*readers.values()])
    keyed = judge_keyed(folder, [*readers.values()])
    names = *clients.names_of_drains(), *(f"{reader}.queue" for reader in readers.values())
    violations += [*(each for name in names for each in unread(folder, name)), *clients.undone(verdict)]
    requests, slow = _figures(folder)
    return ChaosReport(
        plan=plan,
        verdict=replace(verdict, violations=(*verdict.violations, *keyed.violations, *violations)),
        keyed=keyed,
        injected=dict(injector.injected),
        requests=dict(requests),
        storage_calls={name: count for name, count in injector.calls.items() if not name.startswith("api ")},
        jobs=dict(zones.done + compacted),
        workers=attacked.workers,
        deliveries=attacked.deliveries,
        like_aws=counted,
        stopped_waiting_s=tuple(
            _stopped_waiting_s(outage, attacked.started_at, slow)
            for outage in plan.outages
            if outage.fault is ZoneFault.HANGING
        ),
        caught_up_s=caught_up_s,
        faults_s=faults_s,
        whole_s=time.monotonic() - began,
    )


@contextmanager
def _proxied(stack: Stack, injector: Injector, recorder: Recorder) -> Iterator[str]:
    """The proxy of functions and clients. `deliver` has one of its own, so that the history tells its faults."""
    watch = DeliveryWatch(injector.decide, recorder)
    with (
        fault_proxy(stack.endpoint_url, injector.decide) as proxy_url,
        fault_proxy(stack.endpoint_url, watch.decide, watch.told) as own_url,
        functions_through(stack, proxy_url, {DELIVER: own_url}),
    ):
        yield proxy_url


def _figures(folder: Path) -> tuple[Counter[str], list[tuple[float, float, bool]]]:
    """The requests of the producers, and the appends of those that wait for all zones."""
    figures = [json.loads(path.read_text()) for path in sorted(folder.glob("*.figures.json"))]
    requests = sum((Counter(each["requests"]) for each in figures), Counter[str]())
    return requests, [append for each in figures if each["acks"] == "all" for append in each["appends"]]


@contextmanager
def _stack(state_dir: Path, checkout: Path | None) -> Iterator[Stack]:
    try:
        yield up(state_dir, "--port", str(free_port()), checkout=checkout)
    finally:
        run("down", state_dir, checkout=checkout)


def _target(stack: Stack, proxy_url: str, folder: Path) -> Target:
    with Admin(transport=stack.transport()) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, partitions=PARTITIONS, config={"index_tags": True})
        admin.create_topic(KEYED, partitions=PARTITIONS, config={"cleanup_policy": "compact"})
        with Recorder.open(folder / "operator.history.jsonl") as recorder:
            create_queue(admin, recorder, PARTITIONS)
    return Target(
        url=stack.url.replace(stack.endpoint_url, proxy_url),
        region=stack.region,
        access_key_id=stack.access_key_id,
        secret_access_key=stack.secret_access_key,
        topics=TOPICS,
        partitions=PARTITIONS,
        folder=folder,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attacked:
    """What was wrong, when the faults began, and what was done to workers, deliveries and targets."""

    violations: list[str]
    started_at: float
    workers: dict[str, int]
    deliveries: dict[str, int]


def _attack(
    clients: Clients, injector: Injector, plan: Plan, tell: Callable[[str], None], begin: Callable[[], object]
) -> _Attacked:
    """Run the workload under the plan's faults until all clients have ended. `begin` comes right before the faults."""
    target = clients.target
    stop, end = _SPAWN.Event(), StopFile(target.folder / "stop-workers")
    processes = clients.start(stop)

    def worker(slot: str, life: int) -> SpawnProcess:
        return _SPAWN.Process(target=run_share_workers, args=(target, slot, life, plan.seed, end))

    with tormenting(clients.slots(), plan.seed, worker, end.set) as workers:
        try:
            deadline = time.monotonic() + _START_S_MAX
            while not clients.is_warm(injector) and time.monotonic() < deadline:
                time.sleep(_TICK_S)
            processes.append(clients.start_operator(stop))
            with clients.pushes.attacked() as deliveries:
                tell(f"faults for {plan.seconds:.0f} s, seed {plan.seed}")
                begin()
                started_at = time.monotonic()
                injector.start()
                while (elapsed_s := injector.elapsed_s()) < plan.seconds and not any(it.exitcode for it in processes):
                    injector.end_outages_until(elapsed_s)
                    time.sleep(_TICK_S)
        finally:
            injector.stop()
            stop.set()
        tell("letting the clients end")
    wrong = _ended(processes, _END_S_MAX)
    if workers[ENDED_THEMSELVES]:
        wrong.append(f"workers of share groups died {workers[ENDED_THEMSELVES]:,} times by themselves")
    if deliveries[ENDPOINT_ENDED]:
        wrong.append(f"the endpoint died {deliveries[ENDPOINT_ENDED]:,} times by itself")
    return _Attacked(violations=wrong, started_at=started_at, workers=dict(workers), deliveries=dict(deliveries))


class _Follower:
    """The reader that follows the queue workload's topics until the last delayed record has come."""

    def __init__(self, target: Target) -> None:
        self._stop = StopFile(target.folder / "stop-follower")
        self._process = _SPAWN.Process(target=run_queue_reader, args=(target, self._stop))
        self._process.start()

    def end(self) -> list[str]:
        """Ask it to end. Return what was wrong with it."""
        self._stop.set()
        return _ended([self._process], _END_S_MAX)


@contextmanager
def _running(zones: Zones, jobs: Sequence[str], pause_s: float) -> Iterator[None]:
    """Run the scheduled functions one after the other meanwhile, again and again."""
    stop = threading.Event()

    def run_in_turn() -> None:
        for job in cycle(jobs):
            if stop.wait(pause_s):
                return
            zones.run(job)

    thread = threading.Thread(target=run_in_turn)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _caught_up_s(zones: Zones) -> float | None:
    began = time.monotonic()
    while time.monotonic() - began < _CATCH_UP_S_MAX:
        if zones.all_in_sync() and not zones.missing_copies():
            return time.monotonic() - began
        time.sleep(_RECOVER_EACH_S)
    return None


def _read_everything(
    clients: Clients, injector: Injector, readers: Mapping[str, str], tell: Callable[[str], None]
) -> list[str]:
    """Read all topics once without each zone, by the reader of that name. Return what was wrong."""
    wrong: list[str] = []
    for zone, reader in readers.items():
        tell(f"reading everything without zone {zone}")
        injector.lose(zone)
        wrong += _together(*((read, clients.target, reader, _READ_S_MAX) for read in clients.readers()))
    return wrong


def _together(*calls: tuple[Any, ...]) -> list[str]:
    """Run each call, of which the last argument is its time, in a process. Return what was wrong with them."""
    processes = [_SPAWN.Process(target=entry, args=arguments) for entry, *arguments in calls]
    for process in processes:
        process.start()
    return _ended(processes, max(each[-1] for each in calls) + _END_S_MAX)


def _ended(processes: Sequence[SpawnProcess], within_s: float) -> list[str]:
    deadline = time.monotonic() + within_s
    wrong = []
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
            wrong.append(f"client {process.name} did not end within {within_s:.0f} s")
        elif process.exitcode:
            wrong.append(f"client {process.name} ended with exit code {process.exitcode}")
    return wrong


def _stopped_waiting_s(
    outage: ZoneOutage, started_at: float, appends: Sequence[tuple[float, float, bool]]
) -> float | None:
    start, end = started_at + outage.start_s, started_at + outage.end_s
    within = [(began, ended, is_ok) for began, ended, is_ok in appends if start <= began < end]
    slow_until = max((ended for began, ended, _ in within if ended - began > _SLOW_APPEND_S), default=start)
    has_quick = any(is_ok and began >= slow_until for began, ended, is_ok in within)
    return slow_until - start if has_quick else None
