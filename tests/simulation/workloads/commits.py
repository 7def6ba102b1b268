"""Committers commit and read back, each for its own group. Each answer must agree with the commits."""

from penstock_core.errors import Category, PenstockError
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets, committed_offsets
from tests.history import format as history
from tests.simulation.engine.claims import CommitClaim
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation


def install(simulation: Simulation) -> None:
    for number in range(simulation.scheduler.random.choice([1, 2])):
        _Committer(simulation, f"g{number}").start()


class _Committer:
    def __init__(self, simulation: Simulation, group: str) -> None:
        self._simulation = simulation
        self._group = group

    def start(self) -> None:
        self._simulation.work(self._group, self._run)

    def _run(self) -> None:
        random = self._simulation.scheduler.random
        for offset in range(random.choice([5, 15])):
            self._simulation.scheduler.pause(random.uniform(1.0, 200.0))
            topic = random.choice(list(self._simulation.topics))
            if random.random() < 0.3:
                self._read_back(topic)
            else:
                self._commit(topic, random.choice([0, 1]), offset)

    def _commit(self, topic: str, partition: int, offset: int) -> None:
        began_ms = self._simulation.scheduler.now_ms
        is_confirmed = False
        recorder = self._simulation.recorder
        commit = history.Commit((topic, partition), offset)
        operation = recorder.invoke(self._group, history.Function.COMMIT, [commit], group=self._group)
        try:
            [result] = self._simulation.call(
                lambda instance: commit_offsets(
                    instance, self._group, [CommitEntry(topic=topic, partition=partition, offset=offset)]
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
        claim = CommitClaim(offset, began_ms, self._simulation.scheduler.now_ms, is_confirmed)
        self._simulation.claims.commits.setdefault((self._group, topic, partition), []).append(claim)

    def _read_back(self, topic: str) -> None:
        if topic in self._simulation.claims.topic_changes:
            return  # the verdict judges it at the end, when no operator changes the topic
        recorder = self._simulation.recorder
        operation = recorder.invoke(self._group, history.Function.COMMITTED, group=self._group)
        try:
            found = self._simulation.call(
                lambda instance: committed_offsets(instance, self._group, topic), is_read=True
            )
        except PenstockError as error:
            expect(error.code.category in (Category.UNAVAILABLE, Category.THROTTLED, Category.NOT_FOUND), str(error))
            recorder.fail(operation)
            return
        stored = {int(committed.partition.partition): int(committed.offset) for committed in found}
        committed = [history.Committed((topic, partition), stored.get(partition)) for partition in (0, 1)]
        recorder.ok(operation, committed)
        for partition in (0, 1):
            where = (self._group, topic, partition)
            allowed = self._simulation.claims.allowed_commits(where, self._simulation.faults.late_ms + 60_000.0)
            if allowed is not None:
                expect(stored.get(partition) in allowed, f"{where}: {stored} committed, allowed are {allowed}")
