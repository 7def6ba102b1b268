"""A real run of a workload: the SDK's producers and readers on a stepped clock, against the handlers on moto.

The parts that decide are those that ship: `Accumulator`, `Membership`, `FetchBuffer`, `ShareWaiting`. This module
is their driver: it carries their requests, and lets an answer come `ANSWER_MS` later. Each call to storage is
captured and metered. So
the run holds `penstock cost` (sdk/penstock/cost), which plays the same workload without a service.
"""

import heapq
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import Any, TypeVar

from bench.bill.deployment import (
    ACCESS_LOG_BYTES,
    FUNCTION_MS_PER_MIB,
    BilledDeployment,
    BilledProfile,
    BillError,
    billed_deployment,
    billed_profile,
)
from bench.bill.metered_calls import Lines, MeteredWakeUps
from penstock import Admin, prices
from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.fetch_call import fetch
from penstock.consumer.settings import ConsumerSettings
from penstock.cost.counted import counted
from penstock.cost.estimate import monthly
from penstock.cost.readers import COMMIT_S
from penstock.cost.workload import ANSWER_MS, IN_FLIGHT, SECONDS_PER_MONTH, Workload
from penstock.group.group_calls import beat, commit_leased
from penstock.group.membership import Membership
from penstock.http.client import Client
from penstock.http.named_transport import LAMBDA
from penstock.http.steps import drive
from penstock.model import TopicPartition
from penstock.producer.batching.accumulator import Accumulator, Entry
from penstock.producer.batching.producer_batch import TopicQueues
from penstock.producer.produce_call import ProduceResults, produce
from penstock.producer.settings import ProducerSettings
from penstock.share.waiting import ShareWaiting
from penstock.wake_ups.events import WakeUp, parse
from penstock.wake_ups.watch import Watch
from penstock_cdk.settings import FUNCTION_SIZES
from penstock_core.groups.group import parse_subscription
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX, KIB, MIB, YOUNG_GROUP_MS
from penstock_core.log.inline import BOUNDS_OF_PROFILES
from penstock_core.records import frame

SEED = 1
WAKE_UP_MS = 10  # of a wake-up on its way, assumed
_RECORDS_MAX = 500  # of a poll
_SHARE_RECORDS_MAX = 100  # of an acquire, whose handlers take no time
_METRICS_S = 60  # a function logs its metrics once in it: a shorter run has them once, too
_STEP_MS = 1.0  # between two looks of a client that has something to do at once

Answer = TypeVar("Answer")
Step = Callable[[float], float | None]

TEAM = Workload(records_per_s=50, topics=3, members=10, producers=5, hours=10, retention_days=7)
"""A small team: 3 topics, 5 producers, 10 members in 3 groups, 50 records of 1 KiB a second for 10 hours a day."""
TEAM_AT_1_S = replace(TEAM, linger_ms=1_000, fetch_interval_ms=1_000)
RUNS = {
    "a small team": (replace(TEAM, has_items=False), 8, 4),
    "its small requests as items": (TEAM, 6, 3),
    "it waits for 1 s": (TEAM_AT_1_S, 20, 10),
    "it waits for 1 s, with keys": (replace(TEAM_AT_1_S, has_keys=True), 20, 10),
    "a record a second, two groups": (Workload(records_per_s=1, groups=2, members=4, has_items=False), 90, 20),
    "four share workers": (
        Workload(records_per_s=3, groups=0, share_workers=4, producers=2, has_items=False),
        120,
        10,
    ),
}
"""The workloads that are run: each for so many seconds, after so many others."""
WITHIN = 0.1
KNOWN_TO_MISS = {"four share workers": 0.25}  # the estimate has too few of their wake-ups and acquires


_LINES = {
    "LAMBDA_REQUESTS": "lambda",
    "LAMBDA_GB_SECONDS": "lambda",
    "WRITE_UNITS": "dynamodb",
    "READ_UNITS": "dynamodb",
    "S3_PUTS": "puts",
    "EXPRESS_PUTS": "puts",
    "S3_GETS": "gets",
    "EXPRESS_GETS": "gets",
    "EXPRESS_UPLOADED_BYTES": "bytes",
    "EXPRESS_RETRIEVED_BYTES": "bytes",
    "LOGGED_BYTES": "logs",
    "APPSYNC_OPERATIONS": "wake-ups",
}
"""The line of a run's bill, by the name of the price. A run has no connections, and moves nothing to the archive."""


def run(profile: BilledProfile, workload: Workload, *, seconds: float, warm_up_s: float) -> tuple[float, Lines]:
    """The records a second that chance brought, and the dollars of a month by line, as by the transport `lambda`.

    It counts for so many seconds, after a warm-up. Producers and warm-up begin once the groups are no longer young.
    """
    bounds = str(BOUNDS_OF_PROFILES[profile.name]) if workload.has_items else "0"
    with billed_deployment(profile, inline_bytes_max=bounds) as deployment:
        stage = Stage(deployment)
        _start(stage, workload)
        began_ms = YOUNG_GROUP_MS + warm_up_s * 1_000
        stage.run_until(began_ms)
        stage.forget()
        stage.run_until(began_ms + seconds * 1_000)
        month = Lines()
        month.add({name: usd * SECONDS_PER_MONTH / seconds for name, usd in stage.lines().items()})
        month["logs"] *= min(1.0, seconds / _METRICS_S)
        return stage.records / seconds, month


def run_of(name: str) -> tuple[float, dict[str, float]]:
    """The run of one of `RUNS`."""
    workload, seconds, warm_up_s = RUNS[name]
    records_per_s, month = run(billed_profile("express3"), workload, seconds=seconds, warm_up_s=warm_up_s)
    print(f"{name}: ${month.total():,.2f}", file=sys.stderr, flush=True)
    return records_per_s, dict(month)


def estimated(profile: str, workload: Workload, records_per_s: float) -> Lines:
    """The same lines of `penstock cost`, for a month in which so many records come all the time."""
    always = replace(workload, hours=24.0, days=7.0, records_per_s=records_per_s)
    lines = Lines()
    for part, counts in monthly(counted(profile, LAMBDA), always).items():
        if part != "move to the archive":
            for name, count_ in counts.items():
                if name in _LINES:
                    lines[_LINES[name]] += getattr(prices, name).of(count_)
    return lines


def _start(stage: "Stage", workload: Workload) -> None:
    topics = [f"topic-{number}" for number in range(workload.topics)]
    with Admin(transport=stage.deployment) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=workload.partitions)
            if workload.share_workers:
                admin.create_share_group(f"workers-{topic}", [topic])
    for number in range(workload.producers):
        stage.add(Producing(stage, workload, topics, number).step, YOUNG_GROUP_MS)
    groups = [(topic, f"group-{number}-{topic}") for number in range(workload.groups) for topic in topics]
    for number in range(workload.all_members):
        stage.add(Member(stage, workload, *groups[number % len(groups)], number).step)
    for number in range(workload.share_workers):
        stage.add(Worker(stage, workload, f"workers-{topics[number % len(topics)]}").step)


class Stage:
    """The deployment, the time, and the steps that clients take next."""

    def __init__(self, deployment: BilledDeployment) -> None:
        self.deployment = deployment
        self.client = Client(deployment)
        self.chance = Random(SEED)
        self.watches: list[tuple[Watch, Callable[[WakeUp], None], Step]] = []
        self._began_ms = deployment.clock.passed_ms
        self._steps: list[tuple[float, int, Step]] = []
        self._numbers = count()
        self._delivered = 0
        self.now_ms = 0.0
        self.records = 0
        wake_ups = deployment.instance.stores.wake_ups
        assert isinstance(wake_ups, MeteredWakeUps)
        self._heard = wake_ups.heard

    def add(self, step: Step, at_ms: float | None = None) -> None:
        """Lets a client take its step at that time: it returns the time of its next one, None for none."""
        at = self.chance.random() * 1_000 if at_ms is None else at_ms
        heapq.heappush(self._steps, (at, next(self._numbers), step))

    def run_until(self, end_ms: float) -> None:
        """Lets the time pass."""
        while self._steps and self._steps[0][0] < end_ms:
            now_ms, _, step = heapq.heappop(self._steps)
            self.now_ms = now_ms
            again_ms = step(now_ms)
            if again_ms is not None:
                self.add(step, max(again_ms, now_ms + _STEP_MS))

    def carry(self, now_ms: float, call: Callable[[], Answer]) -> Answer:
        """Returns the service's answer to a request that is sent now. Meanwhile, the time of others stands still."""
        clock = self.deployment.clock
        clock.passed_ms = self._began_ms + now_ms
        answer = call()
        clock.passed_ms = self._began_ms + now_ms
        heard, self._heard[:] = [*self._heard], []
        for message in heard:
            event = json.dumps({"type": "data", "id": "1", "event": message.event})
            _, _, topic_id, leaf = message.channel.split("/")
            for watch, woken, step in self.watches:
                if {(topic_id, leaf), (topic_id, "*")} & watch.leaves:
                    self._delivered += 1
                    for each in parse(event):
                        if isinstance(each, WakeUp):
                            self.add(_once(woken, each, step), now_ms + WAKE_UP_MS)
        return answer

    def moved(self, function: str, answer_bytes: int) -> None:
        """Adds the time of a function for the bytes that it answers with."""
        gb_s = FUNCTION_SIZES[function].memory_mb / KIB * FUNCTION_MS_PER_MIB * answer_bytes / MIB / 1_000
        self.deployment.bill.lines["lambda"] += prices.LAMBDA_GB_SECONDS.of(gb_s)

    def forget(self) -> None:
        """Begins a new bill."""
        self.deployment.take()
        self._delivered = self.records = 0

    def lines(self) -> Lines:
        """The bill, without what the transport `lambda` does not pass."""
        bill = self.deployment.take()
        lines = Lines()
        lines.add({name: usd for name, usd in bill.lines.items() if name not in ("api", "wake-ups")})
        lines["logs"] -= prices.LOGGED_BYTES.of(ACCESS_LOG_BYTES * bill.requests)
        published = bill.calls["appsync.Publish"]
        lines["wake-ups"] = prices.APPSYNC_OPERATIONS.of(published + self._delivered)
        return lines


def _once(woken: Callable[[WakeUp], None], wake_up: WakeUp, step: Step) -> Step:
    def take(now_ms: float) -> None:
        woken(wake_up)
        step(now_ms)

    return take


class Producing:
    """A producer and its application, whose records come by chance."""

    def __init__(self, stage: Stage, workload: Workload, topics: Sequence[str], number: int) -> None:
        settings = ProducerSettings(linger_ms=int(workload.linger_ms), compression_type="none")
        self._stage, self._workload = stage, workload
        self._accumulator = Accumulator(settings.accumulator(), stage.chance.randrange)
        self._topics = [TopicQueues(topic) for topic in topics]
        for each in self._topics:
            each.update(workload.partitions, settings.batch_bytes, BATCH_BYTES_DEFAULT_MAX)
        self._gap_ms = 1_000 * workload.producers / workload.records_per_s
        self._record_ms = YOUNG_GROUP_MS + stage.chance.expovariate(1 / self._gap_ms)
        self._in_flight = 0
        self._value = bytes([number % 256]) * workload.record_bytes

    def step(self, now_ms: float) -> float:
        chance = self._stage.chance
        while self._record_ms <= now_ms:
            partition = chance.randrange(self._workload.partitions) if self._workload.has_keys else None
            at = int(self._record_ms)
            topic = chance.choice(self._topics)
            if self._accumulator.append(topic, partition, None, self._value, (), at, at) is None:
                raise BillError("a producer's memory is full")
            self._stage.records += 1
            self._record_ms += chance.expovariate(1 / self._gap_ms)
        while self._in_flight < IN_FLIGHT and (entries := self._accumulator.drain(int(now_ms))):
            self._in_flight += 1
            results = self._stage.carry(now_ms, partial(self._produce, entries))
            self._stage.add(partial(self._complete, entries, results), now_ms + ANSWER_MS)
        return min(self._record_ms, float(self._accumulator.wake_at_ms))

    def _complete(self, entries: Sequence[Entry], results: ProduceResults, now_ms: float) -> None:
        self._in_flight -= 1
        failed = [each for each in results if not isinstance(each, int)]
        if failed:
            raise BillError(f"a produce request failed: {failed}")
        self._accumulator.complete(entries, results, int(now_ms), self._stage.chance.random())
        self._stage.add(self.look, now_ms)

    def _produce(self, entries: Sequence[Entry]) -> ProduceResults:
        return drive(produce(entries, "quorum"), self._stage.client.try_once)

    def look(self, now_ms: float) -> None:
        """A step out of turn."""
        self.step(now_ms)


class Member:
    """A consumer of a group, whose application takes no time, and commits each `COMMIT_S`."""

    def __init__(self, stage: Stage, workload: Workload, topic: str, group: str, number: int) -> None:
        settings = ConsumerSettings(group_id=group, fetch_interval_ms=int(workload.fetch_interval_ms))
        member = settings.member(f"{number:032x}", f"host-{number}")
        if member is None:
            raise BillError("a consumer with a group is a member")
        self._stage, self._group, self._settings = stage, group, settings
        self._buffer = FetchBuffer(settings.fetch())
        self._membership = Membership(member, self._buffer)
        self._membership.subscribe(parse_subscription((topic,), ()), 0)
        self._membership.poll_began(0)
        self._committed: dict[TopicPartition, int] = {}
        self._commit_ms = stage.chance.random() * COMMIT_S * 1_000
        self._is_watched = False

    def step(self, now_ms: float) -> float:
        """Sends what the client would send now, and returns when it looks again, if nothing happens before."""
        stage, now = self._stage, int(now_ms)
        self._subscribe()
        heartbeat = self._membership.next_heartbeat(now)
        if heartbeat is not None:
            answer = stage.carry(now_ms, lambda: drive(beat(self._group, heartbeat), stage.client.try_once))
            stage.add(lambda at_ms: self._beaten(heartbeat, answer, at_ms), now_ms + ANSWER_MS)
        while (request := self._buffer.next_request(now)) is not None:
            fetched = stage.carry(now_ms, partial(drive, fetch(request), stage.client.try_once))
            stage.moved("fetch", len(getattr(fetched, "body", b"")))
            stage.add(partial(self._fetched, request, fetched), now_ms + ANSWER_MS)
        if now_ms >= self._commit_ms:
            self._commit(now_ms)
        return min(self._membership.wake_at_ms, self._buffer.wake_at_ms, self._commit_ms, now_ms + 60_000)

    def _look(self, now_ms: float) -> None:
        """A step out of turn, and another one when it asks for it."""
        again_ms = self.step(now_ms)
        self._stage.add(self._look_once, max(again_ms, now_ms + _STEP_MS))

    def _look_once(self, now_ms: float) -> None:
        self.step(now_ms)

    def _beaten(self, heartbeat: Any, answer: Any, now_ms: float) -> None:
        self._membership.complete(heartbeat, answer, int(now_ms), self._stage.chance.random())
        granted = self._membership.take_granted()
        lost = self._membership.take_lost(int(now_ms))
        revoked = self._membership.to_revoke()
        if revoked:
            self._membership.release(revoked, int(now_ms))
        if granted or revoked or lost:
            self._buffer.assign([*self._membership.owned])
        for partition, lease in granted.items():
            self._buffer.lease(partition, lease.topic_id, is_late=lease.is_late)
            self._buffer.seek(partition, lease.offset or 0)
        self._look(now_ms)

    def _fetched(self, request: Any, answer: Any, now_ms: float) -> None:
        self._buffer.complete(request, answer, int(now_ms), self._stage.chance.random())
        while self._buffer.take(_RECORDS_MAX):
            self._membership.handed_out(int(now_ms))
        self._look(now_ms)

    def _commit(self, now_ms: float) -> None:
        self._commit_ms = now_ms + COMMIT_S * 1_000
        owned = self._membership.owned
        moved = {
            each: (offset, owned[each])
            for each, offset in self._buffer.positions().items()
            if each in owned and offset != self._committed.get(each, owned[each].offset or 0)
        }
        if moved:
            call = commit_leased(self._group, self._membership.settings, moved)
            refused = self._stage.carry(now_ms, lambda: self._stage.client.call(call))
            if refused:
                raise BillError(f"a commit was refused: {refused}")
            self._committed |= {each: offset for each, (offset, _) in moved.items()}

    def _subscribe(self) -> None:
        """Lets the subscriptions begin at once that the client wants, and none of them twice."""
        watch = self._buffer.waiting.watch
        if watch is None or not watch.leaves:
            return
        if not self._is_watched:
            self._is_watched = True
            self._stage.watches.append((watch, self._buffer.woken, self._look_once))
        if subscribe_all(watch):
            self._buffer.look_again()


class Worker:
    """A share worker, whose handlers take no time: its next acquire accepts the records of the one before."""

    def __init__(self, stage: Stage, workload: Workload, group: str) -> None:
        self._stage, self._group = stage, group
        self._waiting = ShareWaiting(500, int(workload.fetch_interval_ms), is_woken=True)
        self._held: Sequence[Mapping[str, Any]] = ()
        self._is_busy = self._is_watched = False

    def step(self, now_ms: float) -> float | None:
        """Sends the acquire that the client would send now."""
        self._subscribe()
        due_ms = self._waiting.due_ms()
        if self._is_busy or due_ms > now_ms:
            return None if self._is_busy else min(due_ms, now_ms + 60_000)
        self._is_busy = True
        accepted = [
            {**{name: lock[name] for name in ("topic", "partition", "lock_id")}, "type": "accept", "offsets": None}
            for lock in self._held
        ]
        fields = {"max_records": _SHARE_RECORDS_MAX, "acknowledge": accepted, **self._waiting.ask(int(now_ms))}
        header, size = self._stage.carry(now_ms, lambda: self._acquire(fields))
        self._stage.moved("share", size)
        self._stage.add(lambda at_ms: self._answered(header, at_ms), now_ms + ANSWER_MS)
        return None

    def _acquire(self, fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
        path = f"/v1/share-groups/{self._group}/acquire"
        response = self._stage.deployment.call("POST", path, {}, {}, json.dumps(fields).encode())
        if response.status != 200:
            raise BillError(f"an acquire failed: {response.body!r}")
        return frame.decode(response.body)[0], len(response.body)

    def _answered(self, header: Mapping[str, Any], now_ms: float) -> None:
        self._is_busy, self._held = False, header["partitions"]
        self._waiting.answered(
            header, has_records=bool(self._held), now_ms=int(now_ms), chance=self._stage.chance.random()
        )
        self._stage.add(self.step, now_ms)

    def _woken(self, wake_up: WakeUp) -> None:
        self._waiting.woken(wake_up)

    def _look_once(self, now_ms: float) -> None:
        if not self._is_busy:
            self.step(now_ms)

    def _subscribe(self) -> None:
        watch = self._waiting.watch
        if watch is None or not watch.leaves:
            return
        if not self._is_watched:
            self._is_watched = True
            self._stage.watches.append((watch, self._woken, self._look_once))
        subscribe_all(watch)


def subscribe_all(watch: Watch) -> bool:
    """Lets the subscriptions of a watch begin that it has not: False if it has all."""
    new = [leaf for leaf in watch.leaves if not watch.channel_coverage(leaf)]
    for leaf in new:
        watch.subscribed(leaf)
    return bool(new)
