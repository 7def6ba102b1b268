"""Readers join, commit, go back and are made, while retention removes what all of them have passed.

A run has a few rounds. Each begins with records, which age. Then retention runs, and at the same time each reader does
something. So the two meet at every call. At each effect that raises a log start, each reader whose place was answered
must have passed what goes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock_core.errors import PenstockError
from penstock_core.groups.group import parse_subscription
from penstock_core.groups.lease import Lease, SeenCommit
from penstock_core.ids import GroupName, LockNonce, Partition, PartitionKey, SubscriptionName
from penstock_core.limits import ACKNOWLEDGED_MS_MIN, FETCH_BYTES_MAX, UNLIMITED
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.delete_group import delete_group
from penstock_service.groups.heartbeat import HeartbeatAnswer, HeartbeatRequest, heartbeat
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.pause_subscription import delete_subscription
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from penstock_service.push.look import look
from penstock_service.retention.retain import retain
from penstock_service.share.acknowledge import acknowledge
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import ShareResetTo, reset_share_group
from penstock_service.topics.alter_topic import alter_topic
from tests.service.share.sharing import entries_of
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import GRACE_MS, Simulation

T = TypeVar("T")
TOPIC = "drained"
_MINUTE_MS = 60_000.0
_ROUND_MS = ACKNOWLEDGED_MS_MIN + 6 * _MINUTE_MS
_LATE_MS = 60_000.0  # a call without an answer may take effect until then
_BUDGET_MS = 20_000.0
_TARGET = {"lambda": "arn:aws:lambda:eu-west-1:123456789012:function:pack"}


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    partitions = random.choice([1, 1, 2])
    simulation.last_for_days()
    simulation.faults.sluggish = random.choice(["list_subscriptions", "raise_passed", simulation.faults.sluggish])
    simulation.topic(TOPIC, partitions, retention="acknowledged", retention_ms=UNLIMITED)
    [topic] = [each for each in simulation.stores.topics.list() if each.name == TOPIC]
    keys = [PartitionKey(topic.topic_id, Partition(number)) for number in range(partitions)]
    kinds: list[type[_Reader]] = [_Committer, _Member, _Workers, _Subscribed]
    readers = [kind(simulation, f"{kind.__name__[1:].lower()}{number}", keys) for kind in kinds for number in (0, 1)]
    readers = random.sample(readers, random.choice([1, 1, 2, 3]))
    quick = _Committer(simulation, "quick", keys)
    rounds = random.choice([2, 3, 4])

    def observe(label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if (label, method) == ("log", "raise_passed") and not isinstance(outcome, PenstockError) and outcome[0]:
            key, offset, _ = arguments
            for reader in (quick, *readers):
                place = reader.place(key)
                expect(
                    place is None or offset <= place,
                    f"log start of {key} was raised to {offset}, and {reader.name} is at {place}",
                )

    simulation.storage.observers.append(observe)
    for number in range(rounds):
        at_ms = number * _ROUND_MS
        simulation.work(f"burst{number}", partial(_burst, simulation, number), delay_ms=at_ms)
        meets_ms = at_ms + ACKNOWLEDGED_MS_MIN + 2 * _MINUTE_MS
        simulation.work(f"quick{number}", quick.finish, delay_ms=meets_ms - _MINUTE_MS)
        for each in range(random.choice([1, 1, 2])):
            run = partial(simulation.attempt, "not retained", _retain)
            simulation.work(f"retention{number} {each}", run, delay_ms=meets_ms + random.uniform(0.0, 200.0))
        for reader in readers:
            if random.random() < 0.5:
                simulation.work(f"{reader.name} early", reader.act, delay_ms=meets_ms - 30_000.0)
            spread_ms = random.choice([100.0, 200.0, 400.0, 2_000.0])
            simulation.work(reader.name, reader.act, delay_ms=meets_ms + random.uniform(0.0, spread_ms))
        if random.random() < 0.3:
            change = partial(_switch, simulation)
            simulation.work(f"operator{number}", change, delay_ms=meets_ms - random.uniform(300.0, 1_500.0))
        if random.random() < 0.3:
            late_ms = meets_ms - random.uniform(2.0, 40.0) * _MINUTE_MS
            simulation.work(f"late burst{number}", partial(_burst, simulation, rounds + number), delay_ms=late_ms)
    simulation.final_checks.append(partial(_drain, simulation, keys, [quick, *readers]))


def _retain(instance: Instance) -> object:
    return retain(instance, budget_ms=_BUDGET_MS, grace_ms=GRACE_MS)


def _switch(simulation: Simulation) -> None:
    """Off and on again: some instances remember the topic as it was in between."""
    for value in ("time", "acknowledged"):
        change = partial(alter_topic, name=TOPIC, partitions=None, config={"retention": value})
        while simulation.attempt("not altered", change) is None:
            simulation.scheduler.pause(200.0)
        look = partial(simulation.attempt, "not read", lambda instance: instance.topic_cache.get(TOPIC))
        for number in range(4):
            simulation.scheduler.spawn(f"look{number}", look)
        simulation.scheduler.pause(100.0)


def _burst(simulation: Simulation, number: int) -> None:
    SimulatedProducer(
        simulation,
        f"burst {number}",
        TOPIC,
        records=simulation.scheduler.random.choice([4, 8]),
        acks=simulation.acks_allowed[0],
        pace_ms=20.0,
        max_in_flight=1,
        is_batching=False,
    ).start()


def _drain(simulation: Simulation, keys: Sequence[PartitionKey], readers: Sequence["_Reader"]) -> None:
    """Once faults are over, and all readers have passed everything, nothing is left that is old."""
    instance = simulation.undisturbed()
    alter_topic(instance, TOPIC, None, {"retention": "acknowledged"})
    for reader in readers:
        reader.end(instance)
    simulation.jump(2 * ACKNOWLEDGED_MS_MIN)
    look(simulation.undisturbed(), budget_ms=1e9)  # it removes the share groups of subscriptions that were not made
    done = retain(simulation.undisturbed(), budget_ms=1e9, grace_ms=GRACE_MS)
    expect(done.is_finished and not done.failures, f"retention has left something: {done}")
    for key, head in simulation.stores.log.heads(keys).items():
        expect(head.log_start_offset == head.next_offset, f"{key} keeps what all have passed: {head}")


class _Reader:
    """A reader of one kind. Its place counts from an answer on, until it asks to go back."""

    def __init__(self, simulation: Simulation, name: str, keys: Sequence[PartitionKey]) -> None:
        self.simulation = simulation
        self.random = simulation.scheduler.random
        self.name = name
        self.keys = keys
        self.begins: dict[PartitionKey, int] = {}  # where the log began when its place was answered
        self.vague_until_ms = 0.0

    def act(self) -> None:
        """Does something once or twice."""
        for _ in range(self.random.choice([1, 1, 2])):
            self.do()
            self.simulation.scheduler.pause(self.random.uniform(0.0, 300.0))

    def do(self) -> None:
        raise NotImplementedError

    def end(self, instance: Instance) -> None:
        """Passes everything, or ends the reader."""
        raise NotImplementedError

    def place(self, key: PartitionKey) -> int | None:
        """The place that retention must respect now; None if there is none, or if it is not known."""
        if key not in self.begins:
            return None
        return self.stored(key, self.begins[key])

    def stored(self, key: PartitionKey, begin: int) -> int:
        """The place that the tables have; without one, the log start of then."""
        raise NotImplementedError

    def answered(self, keys: Sequence[PartitionKey] | None = None) -> None:
        """The place counts from now on."""
        if self.simulation.scheduler.now_ms < self.vague_until_ms:
            return  # an older call may still come, and take the place back without a word
        heads = self.simulation.stores.log.heads([*self.keys])
        for key in self.keys if keys is None else keys:
            self.begins.setdefault(key, heads[key].log_start_offset)

    def try_back(self, what: str, run: Callable[[Instance], T]) -> T | None:
        """A call that may take the place back. While it is under way, the place is not known."""
        self.begins = {}
        done = self.simulation.attempt(what, run)
        if done is not None:
            self.simulation.count(f"{type(self).__name__[1:]} back")
        else:
            self.vague_until_ms = self.simulation.scheduler.now_ms + _LATE_MS
        return done

    def somewhere(self, key: PartitionKey) -> int:
        head = self.simulation.stores.log.heads([key])[key]
        return self.random.randint(head.log_start_offset, head.next_offset)

    def end_of(self, key: PartitionKey) -> int:
        return self.simulation.stores.log.heads([key])[key].next_offset

    def lease(self, key: PartitionKey) -> Lease | None:
        return self.simulation.stores.groups.find_leases(GroupName(self.name), [key]).get(key)


class _Committer(_Reader):
    """A client that commits without a member. It is no reader in partitions where it has not committed."""

    def do(self) -> None:
        key = self.random.choice(self.keys)
        kind = self.random.random()
        if kind < 0.6:
            self._commit(key, self.somewhere(key))
        elif kind < 0.9:
            to = ResetTo(offsets={int(key.partition): self.somewhere(key)})
            done = self.try_back("not reset", lambda instance: reset_offsets(instance, self.name, TOPIC, to))
            if done is not None and not isinstance(done[0][1], PenstockError):
                self.answered([key])
        else:
            self.try_back("not deleted", lambda instance: delete_group(instance, self.name))

    def finish(self) -> None:
        """Commits the ends of all partitions."""
        for key in self.keys:
            self._commit(key, self.end_of(key))

    def end(self, instance: Instance) -> None:
        for key in self.keys:
            entry = CommitEntry(topic=TOPIC, partition=key.partition, offset=self.end_of(key))
            assert commit_offsets(instance, self.name, [entry]) == (None,)

    def stored(self, key: PartitionKey, begin: int) -> int:
        lease = self.lease(key)
        return begin if lease is None or lease.offset is None else lease.offset

    def _commit(self, key: PartitionKey, offset: int) -> None:
        entry = CommitEntry(topic=TOPIC, partition=key.partition, offset=offset)
        done = self.simulation.attempt("not committed", lambda instance: commit_offsets(instance, self.name, [entry]))
        if done == (None,):
            self.answered([key])


class _Member(_Reader):
    """The only member of a group: it joins, commits, goes back, and joins anew when it has heard nothing."""

    def __init__(self, simulation: Simulation, name: str, keys: Sequence[PartitionKey]) -> None:
        super().__init__(simulation, name, keys)
        self._held: dict[PartitionKey, Lease] = {}
        self._sequence = 0
        self._session = 0

    def do(self) -> None:
        if not self._held or self.random.random() < 0.3:
            self._join()
            return
        key, lease = self.random.choice([*self._held.items()])
        stored = self.lease(key)
        back_from = None
        offset = self.somewhere(key) if self.random.random() < 0.5 else self.end_of(key)
        if stored is not None and stored.offset is not None and offset < stored.offset:
            back_from = SeenCommit(offset=stored.offset, committed_at_ms=stored.committed_at_ms)
        entry = CommitEntry(
            topic=TOPIC, partition=key.partition, offset=offset, lease_epoch=lease.epoch, back_from=back_from
        )
        commit = partial(commit_offsets, group_name=self.name, entries=[entry], member_id="m")
        if back_from is None:
            self.simulation.attempt("not committed", commit)
        elif self.try_back("not committed", commit) == (None,):
            self.answered([key])

    def end(self, instance: Instance) -> None:
        if self._held or self._sequence:
            to = ResetTo(offsets={int(key.partition): self.end_of(key) for key in self.keys})
            reset_offsets(instance, self.name, TOPIC, to, is_forced=True)

    def stored(self, key: PartitionKey, begin: int) -> int:
        lease = self.lease(key)
        return begin if lease is None or lease.offset is None else lease.offset

    def _join(self) -> None:
        """A new session. It is granted again what it holds."""
        self._held = {}
        answer = self._beat(0, frozenset())
        for _ in range(5):
            if answer is None:
                return
            self._session = answer.session
            self._held |= {lease.partition: lease for lease in answer.granted}
            self.answered([lease.partition for lease in answer.granted])
            if answer.is_complete:
                return
            self.simulation.scheduler.pause(100.0)
            answer = self._beat(answer.epoch, frozenset(self._held))

    def _beat(self, epoch: int, owned: frozenset[PartitionKey]) -> HeartbeatAnswer | None:
        self._sequence += 2
        beat = HeartbeatRequest(
            member_id="m",
            sequence=self._sequence,
            epoch=epoch,
            session=0 if epoch == 0 else self._session,
            subscription=parse_subscription([TOPIC], []) if epoch == 0 else None,
            owned=None if epoch == 0 else owned,
        )
        return self.simulation.attempt("no heartbeat", lambda instance: heartbeat(instance, self.name, beat))


class _Workers(_Reader):
    """A share group: it is made, handed records, and reset."""

    def do(self) -> None:
        kind = self.random.random()
        if not self.begins or kind < 0.3:
            if self.simulation.attempt("no share group", self._put) is not None:
                self.answered()
        elif kind < 0.7:
            self._work()
        else:
            key = self.random.choice(self.keys)
            to, numbers = ShareResetTo(offset=self.somewhere(key)), [int(key.partition)]
            run = partial(reset_share_group, name=self.name, topic_name=TOPIC, to=to, partitions=numbers)
            done = self.try_back("not reset", run)
            if done is not None and not isinstance(done[0][1], PenstockError):
                self.answered([key])

    def end(self, instance: Instance) -> None:
        if self._group() is not None:
            for key in self.keys:
                to = ShareResetTo(offset=self.end_of(key))
                reset_share_group(instance, self.name, TOPIC, to, [int(key.partition)])

    def stored(self, key: PartitionKey, begin: int) -> int:
        group = self._group()
        assert group is not None
        share_key = ShareKey(group.share_group_id, key.topic_id, key.partition)
        state = self.simulation.stores.share.find_states([share_key]).get(share_key)
        return begin if state is None else state.start_offset

    def _group(self) -> ShareGroup | None:
        return self.simulation.stores.share.get_group(GroupName(self.name))

    def _put(self, instance: Instance) -> object:
        return put_share_group(instance, self.name, [TOPIC], {})

    def _work(self) -> None:
        nonce = LockNonce(f"n{self.random.getrandbits(60):016x}")
        wish = AcquireWish(nonce=nonce, records_max=4, bytes_max=FETCH_BYTES_MAX)
        taken = self.simulation.attempt("not acquired", lambda instance: acquire(instance, self.name, wish))
        if taken is not None and (entries := entries_of(taken)):
            self.simulation.attempt("not accepted", lambda instance: acknowledge(instance, self.name, entries))


class _Subscribed(_Reader):
    """A subscription whose deliveries do not run: it holds what it begins with, until it goes."""

    def do(self) -> None:
        if self.begins and self.random.random() < 0.5:
            self.try_back("not deleted", lambda instance: delete_subscription(instance, self.name))
            return
        mode = "parallel" if self.name.endswith("1") else "ordered"
        settings = {"mode": mode, "start": "earliest"}
        wish = SubscriptionWish(topics=[TOPIC], target=_TARGET, settings=settings)
        put = partial(put_subscription, name=self.name, wish=wish)
        # If the creation ends with its share group made, the look each five minutes removes that: nothing was created.
        if self.simulation.attempt("no subscription", put, is_judged=False) is not None:
            self.answered()

    def end(self, instance: Instance) -> None:
        if self.simulation.stores.push.get_subscription(SubscriptionName(self.name)) is not None:
            delete_subscription(instance, self.name)
        self.begins = {}

    def stored(self, key: PartitionKey, begin: int) -> int:
        return begin
