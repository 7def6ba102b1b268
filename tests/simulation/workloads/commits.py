"""Committers of one group each, which commit, read back, and are told the truth about it."""

from penstock_broker.commit_offsets import CommitEntry, commit_offsets
from penstock_broker.committed_offsets import committed_offsets
from penstock_core.errors import Category, PenstockError
from tests.history import format as history
from tests.simulation.claims import CommitClaim
from tests.simulation.violation import expect
from tests.simulation.world import World


def install(world: World) -> None:
    for number in range(world.scheduler.random.choice([1, 2])):
        _Committer(world, f"g{number}").start()


class _Committer:
    def __init__(self, world: World, group: str) -> None:
        self._world = world
        self._group = group

    def start(self) -> None:
        self._world.work(self._group, self._run)

    def _run(self) -> None:
        random = self._world.scheduler.random
        for offset in range(random.choice([5, 15])):
            self._world.scheduler.pause(random.uniform(1.0, 200.0))
            topic = random.choice(list(self._world.topics))
            if random.random() < 0.3:
                self._read_back(topic)
            else:
                self._commit(topic, random.choice([0, 1]), offset)

    def _commit(self, topic: str, partition: int, offset: int) -> None:
        began_ms = self._world.scheduler.now_ms
        is_confirmed = False
        recorder = self._world.story.recorder
        commit = history.Commit((topic, partition), offset)
        operation = recorder.invoke(self._group, history.Function.COMMIT, [commit], group=self._group)
        try:
            [result] = self._world.call(
                lambda broker: commit_offsets(
                    broker, self._group, [CommitEntry(topic=topic, partition=partition, offset=offset)]
                ),
                is_read=False,
            )
        except PenstockError as error:
            result = error
        if result is not None and not result.maybe_applied:
            recorder.fail(operation)
            return
        is_confirmed = result is None
        (recorder.ok if is_confirmed else recorder.maybe)(operation)
        claim = CommitClaim(offset, began_ms, self._world.scheduler.now_ms, is_confirmed)
        self._world.claims.commits.setdefault((self._group, topic, partition), []).append(claim)

    def _read_back(self, topic: str) -> None:
        if topic in self._world.claims.topic_changes:
            return  # judged at the end only, when nobody changes it any more
        recorder = self._world.story.recorder
        operation = recorder.invoke(self._group, history.Function.COMMITTED, group=self._group)
        try:
            found = self._world.call(lambda broker: committed_offsets(broker, self._group, topic), is_read=True)
        except PenstockError as error:
            expect(error.code.category in (Category.UNAVAILABLE, Category.THROTTLED, Category.NOT_FOUND), str(error))
            recorder.fail(operation)
            return
        stored = {int(committed.partition.partition): int(committed.offset) for committed in found}
        told = [history.Committed((topic, partition), stored.get(partition)) for partition in (0, 1)]
        recorder.ok(operation, told)
        for partition in (0, 1):
            where = (self._group, topic, partition)
            allowed = self._world.claims.allowed_commits(where, self._world.faults.late_ms + 60_000.0)
            if allowed is not None:
                expect(stored.get(partition) in allowed, f"{where}: {stored} committed, told were {allowed}")  # type: ignore[arg-type]
