"""A topic is mirrored, while producers write and partitions grow, and operators promote the mirror or begin it anew.

Both stages are one here: the mirror has a prefix. So pushes, answers and deliveries meet all faults of the storage.
Pushes are doubled and come minutes late, answers are lost. G14 is broken by a mirrored log that is no prefix of its
source's, by a push that a promoted log takes, or by a mirror that is not whole in the end. A group of the source
commits meanwhile: what the mirror knows of it never goes back, and is its last commit in the end.
"""

from collections.abc import Callable
from functools import partial

from greenlet import getcurrent

from penstock_core.errors import PenstockError
from penstock_core.ids import GroupName, Partition, PartitionKey, TopicName
from penstock_core.limits import MIRROR_LANES, MIRROR_REST_PARTITIONS
from penstock_core.log.topic import MoveState, Topic
from penstock_core.mirror.push import LogEnd, MirrorPush, PlannedPromotion, PushAnswer
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.targets.target import StageTarget
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.instance.instance import Instance
from penstock_service.mirror.append_push import append_push
from penstock_service.mirror.move_topic import MovedTopic, move_topic, reopen_topic
from penstock_service.mirror.promote_topic import promote_topic, resync_topic
from penstock_service.push.admin.pause_subscription import resume_subscription
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.timers.promote_due import promote_due
from tests.simulation.clients.admin import SimulatedAdmin
from tests.simulation.clients.producer import ProducerChoices, start_producers
from tests.simulation.engine.scheduler import Task
from tests.simulation.oracle.mirrors import MirrorOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.push_service import PushService, PushTroubles
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.mirrored_timers import MirroredTimers

SOURCE, _PREFIX, MIRROR = TopicName("mirrored"), "m.", "dr"
MIRRORED = TopicName(f"{_PREFIX}{SOURCE}")
_GROUP = "billing"
_DOUBLED_TELLINGS = 0.5  # there are few
_DELAYED_RATE = 0.6  # of runs with delayed records
_TRIES_MAX = 100
_FOREVER_MS = 1e9
_TELLINGS_OF_ALL = 3
_LASTS_MS = (20_000.0, 60_000.0)
_RUNS_ON = {"mode": "ordered", "start": "earliest", "backoff_ms_min": 100, "backoff_ms_max": 5_000}


class MirrorRun:
    """What one run does to the mirror, beyond its pushes."""

    def __init__(self, simulation: Simulation) -> None:
        random = simulation.scheduler.random
        self.simulation = simulation
        self.doubled_rate = random.choice([0.0, 0.1, 0.3])
        self.late_ms = random.choice([100.0, 5_000.0, 120_000.0])
        self.lost_rate = random.choice([0.0, 0.05, 0.2])
        self.slow_ms = random.choice([0.0, 0.0, 8_000.0])
        self.has_promoted = False
        self.own = 0
        self.timers: MirroredTimers | None = None
        self.has_lost_a_resume = False
        self.appending: dict[object, None] = {}  # the instances that append a push

    def answer(self, _target: StageTarget, push: MirrorPush) -> PushAnswer | Failed:
        """Let the stage append the push, as an instance of its own does. The request or its answer may be lost."""
        simulation, random = self.simulation, self.simulation.scheduler.random
        if simulation.faults.is_calm or not isinstance(getcurrent(), Task):
            return self._appended(simulation.undisturbed(), push)
        doubled_rate = _DOUBLED_TELLINGS if push.offsets is not None or push.timers is not None else self.doubled_rate
        if random.random() < doubled_rate and simulation.faults.strikes("doubled push"):
            delay_ms = random.uniform(0.0, self.late_ms)
            simulation.scheduler.spawn("late push", lambda: self._call(push), delay_ms=delay_ms)
        if random.random() < self.lost_rate and simulation.faults.strikes("lost push"):
            return Failed(failure=Failure.AWAY, error="simulated: the push was lost")
        if self.slow_ms:  # the pusher's lock may end meanwhile
            simulation.scheduler.pause(random.uniform(0.0, self.slow_ms))
        answer = self._call(push)
        if random.random() < self.lost_rate and simulation.faults.strikes("lost answer of a push"):
            return Failed(failure=Failure.AWAY, error="simulated: the answer was lost")
        return answer

    def _call(self, push: MirrorPush) -> PushAnswer | Failed:
        try:
            answer = self.simulation.call(self._append(push), is_read=False, is_judged=False)
        except PenstockError as error:
            self.simulation.count(f"mirror {error.code.name}")
            return Failed(failure=Failure.AWAY, error=str(error))
        expect(not answer.diverged, f"nothing was restored, and {answer.diverged}")
        if push.offsets is not None:
            self.simulation.count("offsets kept" if answer.is_offsets_kept else "offsets not kept")
            return answer
        if push.timers is not None:
            self.simulation.count("timers told")
            return answer
        if answer.next_offset < push.base_offset:
            self.simulation.count("mirror goes back")
        elif answer.next_offset != push.next_offset:
            self.simulation.count("mirror is ahead")
        return answer

    def _append(self, push: MirrorPush) -> Callable[[Instance], PushAnswer]:
        def append(instance: Instance) -> PushAnswer:
            owner = self.simulation.scheduler.current.owner
            self.appending[owner] = None
            try:
                return append_push(instance, push)
            finally:
                self.appending.pop(owner, None)

        return append

    def _appended(self, instance: Instance, push: MirrorPush) -> PushAnswer | Failed:
        try:
            return append_push(instance, push)
        except PenstockError as error:
            return Failed(failure=Failure.AWAY, error=str(error))

    def promote(self, lasts_ms: float) -> None:
        """The source counts as lost at some time. Producers write to the mirror from then on."""
        random, scheduler = self.simulation.scheduler.random, self.simulation.scheduler
        scheduler.pause(random.uniform(0.3, 1.0) * lasts_ms)
        for _ in range(_TRIES_MAX):
            try:
                self.simulation.call(lambda it: promote_topic(it, MIRRORED), is_read=False, is_judged=False)
                self.has_promoted = True
                break
            except PenstockError as error:
                scheduler.note("not promoted", error)
                scheduler.pause(random.uniform(50.0, 500.0))
        for _ in range(20):
            self._append_own()
            scheduler.pause(random.uniform(10.0, 300.0))

    def _append_own(self) -> None:
        self.own += 1
        data = encode([NewRecord(1, None, f"own{self.own}".encode())])
        entry = ProduceEntry(topic=MIRRORED, partition=self.simulation.scheduler.random.choice([0, 1]), data=data)
        self.simulation.attempt(
            "no append of its own", lambda it: produce(it, [entry], Acks.QUORUM).all_ok(), is_judged=False
        )

    def knock(self, lasts_ms: float) -> None:
        """A producer that does not know of the mirror writes to it all the time."""
        for _ in range(15):
            self.simulation.scheduler.pause(self.simulation.scheduler.random.uniform(0.0, lasts_ms / 8))
            self._append_own()

    def resync(self, lasts_ms: float) -> None:
        """An operator begins the mirror anew, in mid-push, and forgets to resume the source now and then."""
        random, scheduler = self.simulation.scheduler.random, self.simulation.scheduler
        for _ in range(random.choice([1, 2])):
            scheduler.pause(random.uniform(0.1, 1.0) * lasts_ms)
            topic = self.simulation.stores.topics.get(MIRRORED)
            try:
                self.simulation.call(lambda it: resync_topic(it, MIRRORED), is_read=False, is_judged=False)
                if topic is not None:
                    self.simulation.oracle.deleted_at_ms[topic.topic_id] = scheduler.now_ms
                self.simulation.count("mirror resync")
                if random.random() < 0.5:
                    self.simulation.call(lambda it: resume_subscription(it, MIRROR), is_read=False, is_judged=False)
            except PenstockError as error:
                scheduler.note("no resync", error)

    def commit(self, lasts_ms: float) -> None:
        """A reader of the source commits without a member, at all places up to the ends, and never goes back."""
        random, scheduler = self.simulation.scheduler.random, self.simulation.scheduler
        places: dict[int, int] = {}
        while scheduler.now_ms < lasts_ms * 1.2 and not self.simulation.faults.is_calm:
            scheduler.pause(random.uniform(0.0, lasts_ms / 10))
            topic = self.simulation.stores.topics.get(SOURCE)
            assert topic is not None
            number = random.choice(topic.all_partitions())
            end = self.simulation.oracle.log.ends.get(PartitionKey(topic.topic_id, number), 0)
            places[number] = random.randint(places.get(number, 0), end)
            entry = CommitEntry(topic=SOURCE, partition=number, offset=places[number])
            commit = partial(commit_offsets, group_name=_GROUP, entries=[entry])
            self.simulation.attempt("not committed", commit, is_judged=False)
            self.simulation.count("source committed")


def install(simulation: Simulation) -> None:
    install_with(simulation, _install_fate)


def _install_fate(simulation: Simulation, run: MirrorRun, lasts_ms: float) -> None:
    fate = simulation.scheduler.random.choice(["keep", "promote", "promote", "resync"])
    if fate == "promote":
        simulation.work("promoter", lambda: run.promote(lasts_ms))
    elif fate == "resync":
        simulation.work("resyncer", lambda: run.resync(lasts_ms))


def install_with(simulation: Simulation, install_fate: Callable[[Simulation, MirrorRun, float], None]) -> None:
    """A mirror, its producers and its pushes. `install_fate` adds the operators."""
    random = simulation.scheduler.random
    has_timers = random.random() < _DELAYED_RATE
    lasts_ms = random.choice(_LASTS_MS) * (1 + has_timers)
    partitions = random.choice([1, 2, 3])
    simulation.topic(SOURCE, partitions=partitions)
    simulation.oracle.log.topics_of_the_service.add(MIRRORED)
    start_producers(
        simulation,
        SOURCE,
        [f"mi{number}" for number in range(random.choice([1, 3, 5]))],
        ProducerChoices(records=[20, 60], pace_ms=[5.0, 50.0, lasts_ms / 40], acks=Acks.QUORUM),
    )
    simulation.storage.sure.add("targets")
    run, oracle = MirrorRun(simulation), MirrorOracle(simulation, SOURCE, MIRRORED)
    assert isinstance(simulation.stores.targets, MemoryTargets)
    simulation.stores.targets.stage = run.answer
    target = {"stage": {"url": "https://b.example", "prefix": _PREFIX}}
    lanes = 1 if partitions >= MIRROR_REST_PARTITIONS else MIRROR_LANES  # one that rests between two deliveries
    settings = {**_RUNS_ON, "concurrency": lanes}
    put_subscription(simulation.bare, MIRROR, SubscriptionWish(topics=[SOURCE], target=target, settings=settings))
    troubles = PushTroubles(
        has_look=random.random() < 0.3,
        doubled_rate=random.choice([0.0, 0.1]),
        frozen_rate=random.choice([0.0, 0.02]),
        takes_old_receipts=random.random() < 0.5,
    )
    service = PushService(simulation, [SOURCE], troubles)
    service.start()
    if has_timers:
        run.timers = MirroredTimers(simulation, (SOURCE, MIRRORED), oracle)
        run.timers.start(lasts_ms)
    simulation.work("mirror time", lambda: simulation.scheduler.pause(lasts_ms))
    if random.random() < 0.5:
        simulation.work("knocker", lambda: run.knock(lasts_ms))
    simulation.work("source reader", lambda: run.commit(lasts_ms))
    if random.random() < 0.4:
        simulation.work("mirror widener", lambda: _widen(simulation, lasts_ms, partitions))
    install_fate(simulation, run, lasts_ms)
    simulation.final_checks.append(lambda: _check(simulation, service, run, oracle))


def _widen(simulation: Simulation, lasts_ms: float, partitions: int) -> None:
    for more in (1, 2):
        simulation.scheduler.pause(simulation.scheduler.random.uniform(0.0, lasts_ms / 2))
        SimulatedAdmin(simulation, "mirror widener").add_partitions(SOURCE, partitions + more)
        simulation.count("mirror widened")


def _check(simulation: Simulation, service: PushService, run: MirrorRun, oracle: MirrorOracle) -> None:
    """A mirror that lives is equal to its source in the end, and one that was promoted holds a prefix of it."""
    service.needs_look |= run.has_lost_a_resume
    end_moves(simulation, service, oracle)
    is_promoted = bool(oracle.promoted)
    if not is_promoted:  # after a resync, a record of one partition brings the others too
        data = encode([NewRecord(1, None, b"last")])
        produce(simulation.undisturbed(), [ProduceEntry(topic=SOURCE, partition=0, data=data)], Acks.QUORUM).all_ok()
        service.drain()
    topic = simulation.stores.topics.get(MIRRORED)
    source = simulation.stores.topics.get(SOURCE)
    assert source is not None
    if run.timers is not None and topic is not None and not is_promoted:
        _tell_timers(simulation, service)
        run.timers.check_whole()
    if topic is None:
        expect(is_promoted or not any(oracle_ends(simulation, source.topic_id)), "the mirror was never made")
        return
    for number in source.all_partitions():
        key = PartitionKey(topic.topic_id, Partition(number))
        oracle.check_prefix(key, PartitionKey(source.topic_id, number))
        if not is_promoted:
            log = simulation.oracle.log
            ends = log.ends.get(key, 0), log.ends.get(PartitionKey(source.topic_id, number), 0)
            expect(ends[0] == ends[1], f"{key} ends at {ends[0]} after all pushes, and its source at {ends[1]}")
    told = promote_topic(simulation.undisturbed(), MIRRORED).offsets.groups.get(GroupName(_GROUP), {})
    oracle.check_offsets(
        topic.topic_id, {number: each.offset for number, each in told.items()}, is_whole=not is_promoted
    )
    _check_open(simulation)
    if run.timers is not None:
        run.timers.check_delivered(source.topic_id, topic.topic_id)
    simulation.count("mirror checked")


def _tell_timers(simulation: Simulation, service: PushService) -> None:
    """What is overdue is delivered, and pushed. What waits then is told, by looks that find the time for that."""
    promote_due(simulation.undisturbed(), budget_ms=_FOREVER_MS)
    for _ in range(_TELLINGS_OF_ALL):
        service.drain()


def planned_of(moved: MovedTopic, mirrored: Topic) -> PlannedPromotion:
    """The promotion of what was moved, as a program asks for it."""
    return PlannedPromotion(
        number=moved.note.number,
        mirror=moved.note.mirror,
        topic_id=mirrored.topic_id,
        source=moved.source,
        ends={each.partition: LogEnd(log_id=each.log_id, next_offset=each.end_offset) for each in moved.partitions},
    )


def end_moves(simulation: Simulation, service: PushService, oracle: MirrorOracle) -> None:
    """Once faults are over: end the move that is under way, or give it up if it was refused."""
    instance = simulation.undisturbed()
    source = simulation.stores.topics.get(SOURCE)
    mirrored = simulation.stores.topics.get(MIRRORED)
    assert source is not None
    if source.is_moved and source.move is not None:
        number = source.move.number
        is_refused = mirrored is not None and mirrored.mirror is not None and mirrored.mirror.refused >= number
        if source.move.state is MoveState.REOPENING or is_refused:
            reopen_topic(instance, SOURCE, number)
        elif oracle.promoted.keys() <= oracle.planned.keys():  # nobody has counted the source as lost
            assert mirrored is not None
            if mirrored.mirror is not None:
                service.drain()
            moved = move_topic(instance, SOURCE, MIRROR)
            done = promote_topic(instance, MIRRORED, planned_of(moved, mirrored))
            expect(done.is_whole, f"{moved} is pushed, and {done}")
            simulation.count("move ended")
    for key, end in oracle.planned.items():
        log, other = simulation.oracle.log, oracle.source_key(key)
        expect(log.ends.get(other, 0) == end, f"{key} was promoted at {end}, and {other} ends at {log.ends.get(other)}")


def oracle_ends(simulation: Simulation, topic_id: str) -> list[int]:
    """Where the partitions of the topic end."""
    return [end for key, end in simulation.oracle.log.ends.items() if key.topic_id == topic_id]


def _check_open(simulation: Simulation) -> None:
    topic = simulation.stores.topics.get(MIRRORED)
    assert topic is not None
    expect(topic.mirror is None, f"{MIRRORED} was promoted, and has {topic.mirror}")
    heads = simulation.stores.log.heads([PartitionKey(topic.topic_id, each) for each in topic.all_heads()])
    expect(len(heads) == topic.head_count, f"{MIRRORED} has {len(heads)} heads of {topic.head_count}")
    for key, head in heads.items():
        is_right = not head.mirror and head.is_closed != topic.is_writable(key.partition)
        expect(is_right, f"{key} was promoted, and has {head}")
