"""Members of one group join, leave, crash, restart, and wake after their session has ended.

An operator may delete the group meanwhile. A member fetches nothing, for it knows the content of each partition. It
records in the history what it is given and what it commits, with its process's name as metadata. So at each commit's
effect the ledger knows the process that it counts for.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName, PartitionKey
from penstock_core.limits import GROUP_CHECK_MS_MAX
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.delete_group import delete_group
from penstock_service.groups.heartbeat import HeartbeatAnswer, HeartbeatRequest, heartbeat, leave
from penstock_service.instance.instance import Instance
from tests.history import format as history
from tests.simulation.clients.group_process import RECORDS, TOPIC, GroupProcess, fill, value_at
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

GROUP = GroupName("sharing")
_END = {ErrorCode.UNKNOWN_MEMBER, ErrorCode.MEMBER_FENCED}
_PASSING = {ErrorCode.STALE_HEARTBEAT, ErrorCode.CONCURRENT_UPDATE, ErrorCode.THROTTLED, ErrorCode.STORAGE_UNAVAILABLE}


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.topic(TOPIC, partitions=random.choice([1, 3, 6]))
    fill(simulation)
    session_ms = random.choice([2_000, 6_000])
    ledger = _Ledger(simulation, session_ms=session_ms)
    simulation.storage.observers.append(ledger.observe)
    simulation.final_checks.append(ledger.check_end)
    static_rate, waves = random.choice([(0.3, 1), (0.3, 2), (1.0, 3)])
    for number in range(random.choice([2, 3, 4])):
        instance_id = f"s{number}" if random.random() < static_rate else None
        ledger.start(instance_id, delay_ms=random.uniform(0.0, 3_000.0))
    for wave in range(1, waves):
        ledger.start_again(delay_ms=wave * random.uniform(4.0, 12.0) * session_ms)
    if waves > 1:
        simulation.work("operator", ledger.delete_now_and_then)


class _Ledger:
    """The processes of the group, and the leases and commits that the service granted and confirmed to them."""

    def __init__(self, simulation: Simulation, session_ms: int) -> None:
        self._simulation = simulation
        self._session_ms = session_ms
        self._config = {"session_timeout_ms": session_ms, "heartbeat_interval_ms": session_ms // 4}
        self._processes: list[GroupProcess] = []
        self._granted: dict[tuple[PartitionKey, int], str] = {}
        self._committers: dict[tuple[PartitionKey, int], str] = {}
        self._committed: dict[PartitionKey, tuple[int, int]] = {}  # lease epoch, offset
        self._confirmed: dict[PartitionKey, int] = {}
        self._deletions = 0  # deletions of the group that have begun to remove leases

    def start(self, instance_id: str | None, delay_ms: float = 0.0) -> None:
        """Start a new process, which lives for some sessions."""
        process = GroupProcess(f"m{len(self._processes)}", instance_id)
        self._processes.append(process)
        lives_ms = self._simulation.scheduler.random.uniform(1.0, 6.0) * self._session_ms
        self._simulation.work(process.member_id, lambda: self._run(process, lives_ms), delay_ms=delay_ms)

    def start_again(self, delay_ms: float) -> None:
        """Start new processes in the place of the first ones. Static members keep their instance ids."""
        for process in self._processes[:2]:
            self.start(process.instance_id, delay_ms=delay_ms)

    def delete_now_and_then(self) -> None:
        """Try to delete the group now and then, as an operator does. It works only while the group is empty."""
        random = self._simulation.scheduler.random
        for _ in range(random.choice([20, 40])):
            self._simulation.scheduler.pause(random.uniform(0.1, 0.6) * self._session_ms)
            recorder = self._simulation.recorder
            resets = [history.Reset((TOPIC, partition), None) for partition in range(self._simulation.topics[TOPIC])]
            deletion = recorder.invoke("operator", history.Function.RESET, resets, group=GROUP)
            try:
                self._simulation.call(lambda instance: delete_group(instance, GROUP), is_read=False)
            except PenstockError as error:
                was_refused = error.code in (ErrorCode.GROUP_NOT_EMPTY, ErrorCode.UNKNOWN_GROUP)
                may_be = was_refused or error.code in _PASSING | {ErrorCode.INTERNAL}
                expect(may_be, f"a deletion of the group was answered with {error}")
                (recorder.fail if was_refused else recorder.maybe)(deletion)
            else:
                recorder.ok(deletion)
                self._simulation.count("group deleted")

    def _run(self, process: GroupProcess, lives_ms: float) -> None:
        scheduler, random = self._simulation.scheduler, self._simulation.scheduler.random
        ends_at_ms = scheduler.now_ms + lives_ms
        while scheduler.now_ms < ends_at_ms and not process.is_gone:
            if random.random() < 0.03:
                pause_ms = random.uniform(0.5, 2.0) * self._session_ms
                if random.random() < 0.5:
                    late = partial(self._join_late, process.late_join)
                    scheduler.spawn(f"{process.member_id} late", late, delay_ms=random.random() * pause_ms)
                scheduler.pause(pause_ms)
                self._simulation.count("member paused")
                self._commit(process)  # a zombie commits before it has heard anything
            after_ms = self._beat(process, heartbeat)
            if random.random() < 0.5:
                self._commit(process)
            scheduler.pause(max(1.0, after_ms * random.uniform(0.5, 1.0)))
        self._end(process)

    def _join_late(self, join: HeartbeatRequest | None) -> None:
        if join is not None:
            try:
                self._simulation.call(lambda instance: heartbeat(instance, GROUP, join), is_read=False)
            except PenstockError:
                return  # no process waits for its answer
            self._simulation.count("joined late")

    def _end(self, process: GroupProcess) -> None:
        """Let the process stay, leave, crash, or crash and be replaced. At most two members take its place."""
        random = self._simulation.scheduler.random
        if process.is_gone:
            return
        fate = random.choice(["stays", "leaves", "crashes", "restarts", "is doubled"])
        self._simulation.count(f"member {fate}")
        if fate == "leaves":
            self._commit(process)
            process.held.clear()
            self._beat(process, leave)
        process.is_gone = fate in ("leaves", "crashes", "restarts")
        if fate in ("restarts", "is doubled") and len(self._processes) < 12:
            self.start(process.instance_id)
        if fate == "is doubled":
            self._run(process, self._session_ms)

    def _beat(self, process: GroupProcess, call: Callable[[Instance, str, HeartbeatRequest], HeartbeatAnswer]) -> float:
        beat = process.next_beat(self._config)
        confirmed, deletions = dict(self._confirmed), self._deletions
        began_ms = self._simulation.scheduler.now_ms
        try:
            answer = self._simulation.call(lambda instance: call(instance, GROUP, beat), is_read=False)
        except PenstockError as error:
            expect(error.code in _END | _PASSING | {ErrorCode.INTERNAL}, f"a heartbeat was answered with {error}")
            if error.code in _END:
                process.forget()
                process.is_gone = error.code is ErrorCode.MEMBER_FENCED
            return 200.0
        for lease in answer.granted:
            key, who = lease.partition, process.member_id
            first = self._granted.setdefault((key, lease.epoch), who)
            expect(first == who, f"{key} was granted under epoch {lease.epoch} to {first} and to {who}")
            expect(
                (lease.offset or 0) >= confirmed.get(key, 0) or deletions != self._deletions,
                f"{key} was granted at {lease.offset}, and {confirmed.get(key)} had been committed",
            )
        process.apply(answer)
        if answer.granted:
            self._tell_assignment(process, {lease.partition for lease in answer.granted})
        for key, taken_ms in process.taken_ms.items():
            expect(
                taken_ms >= began_ms,
                f"{process.member_id} was told to go on, and {key} was taken at {taken_ms} when it was no member",
            )
        return answer.heartbeat_after_ms

    def _tell_assignment(self, process: GroupProcess, granted: set[PartitionKey]) -> None:
        kept = tuple((TOPIC, int(key.partition)) for key in sorted(process.held.keys() - granted))
        started = tuple(((TOPIC, int(key.partition)), process.held[key][1]) for key in sorted(granted))
        assign = history.Assign(kept, started)
        self._simulation.recorder.done(process.member_id, history.Function.ASSIGN, [assign], group=GROUP)

    def _read(self, process: GroupProcess, key: PartitionKey) -> int:
        """Give the member some more records, and return its position after them."""
        read_to = process.held[key][2]
        end = max(read_to, min(RECORDS, read_to + self._simulation.scheduler.random.randint(0, 3)))
        process.held[key][2] = end
        records = tuple((offset, value_at(int(key.partition), offset)) for offset in range(read_to, end))
        poll = history.Poll((TOPIC, int(key.partition)), records)
        self._simulation.recorder.done(process.member_id, history.Function.POLL, [poll], group=GROUP)
        return end

    def _commit(self, process: GroupProcess) -> None:
        random, recorder = self._simulation.scheduler.random, self._simulation.recorder
        for key, (epoch, position, _) in [*process.held.items()]:
            if key not in process.held:
                continue  # another heartbeat of a doubled process has dropped it meanwhile
            offset = random.randint(position, self._read(process, key))
            commit = history.Commit((TOPIC, int(key.partition)), offset, epoch)
            operation = recorder.invoke(process.member_id, history.Function.COMMIT, [commit], group=GROUP)
            entry = CommitEntry(
                topic=TOPIC, partition=key.partition, offset=offset, metadata=process.member_id, lease_epoch=epoch
            )
            deletions = self._deletions
            try:
                [error] = self._simulation.call(
                    lambda instance, entry=entry: commit_offsets(  # type: ignore[misc]
                        instance, GROUP, [entry], process.member_id, process.instance_id
                    ),
                    is_read=False,
                )
            except PenstockError as lost:
                error = lost
            if error is None:
                recorder.ok(operation)
            else:
                (recorder.maybe if error.maybe_applied else recorder.fail)(operation)
            if error is None:
                if deletions == self._deletions:
                    self._confirmed[key] = max(offset, self._confirmed.get(key, 0))
                if key in process.held:
                    process.held[key][1] = offset
            elif error.code is ErrorCode.LEASE_FENCED:
                process.drop(key)
                process.is_complete = False
            elif error.code is ErrorCode.OFFSET_BEHIND:  # a commit that was given up has landed
                process.held[key][1] = error.facts["committed_offset"]
            else:
                expect(error.maybe_applied or error.code in _PASSING, f"a commit was answered with {error}")

    def observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        """Check each effect: one process per lease epoch commits, and epochs and offsets rise.

        No member loses a partition that it holds while its session goes on.
        """
        if label != "groups" or isinstance(outcome, PenstockError) or arguments[0] != GROUP:
            return
        if method == "commit":
            _, committed, token, *_ = arguments
            key, now = committed.partition, (token.epoch, committed.offset)
            before = self._committed.get(key, (0, 0))
            expect(before[0] <= now[0] and before[1] <= now[1], f"the commit of {key} went from {before} to {now}")
            self._committed[key] = now
            who = self._committers.setdefault((key, token.epoch), committed.metadata)
            expect(
                who == committed.metadata, f"{who} and {committed.metadata} committed {key} under epoch {token.epoch}"
            )
        elif method == "take_lease":
            _, lease, owner, _ = arguments
            self._simulation.count("lease taken")
            for process in self._processes:
                if process.name != lease.owner or process.name == owner or process.is_gone:
                    continue  # it lost the partition earlier, while it was no member, and may not know yet
                if lease.partition in process.held:
                    member = self._simulation.stores.memberships.find_members(GROUP, [process.name]).get(process.name)
                    is_member = member is not None and (member.member_id, member.session) == (
                        process.member_id,
                        process.session,
                    )
                    expect(not is_member, f"{owner} took {lease.partition}, which {process.member_id} holds")
                    process.taken_ms.setdefault(lease.partition, self._simulation.scheduler.now_ms)
        elif method == "delete_lease" and outcome:
            self._deletions += 1
            self._committed.pop(arguments[1].partition, None)
            self._confirmed.pop(arguments[1].partition, None)

    def check_end(self) -> None:
        """After faults and dead members are over, check that the members left own all partitions, each its own."""
        clock = _FreeClock(self._simulation)
        instance = replace(self._simulation.bare, clock=clock)
        left = [process for process in self._processes if not process.is_gone]
        owners: dict[str, GroupProcess] = {}
        for process in left:
            owners[process.name] = process  # the newest process of an instance id
        left = [*owners.values()]
        for process in left:
            process.forget()
            process.apply(heartbeat(instance, GROUP, process.next_beat(self._config)))
        clock.time_ms += GROUP_CHECK_MS_MAX + self._session_ms
        for process in left:
            try:
                heartbeat(instance, GROUP, process.next_beat(self._config))
            except PenstockError as error:
                expect(error.code is ErrorCode.UNKNOWN_MEMBER, f"a calm heartbeat was answered with {error}")
            process.forget()
        is_settled = not left
        for _ in range(60):
            if is_settled:
                break
            answers = [heartbeat(instance, GROUP, process.next_beat(self._config)) for process in left]
            for process, each in zip(left, answers, strict=True):
                process.apply(each)
            is_settled = all(each.is_complete for each in answers) and len({each.epoch for each in answers}) == 1
        expect(is_settled, f"the group does not settle: {[(each.name, len(each.held)) for each in left]}")
        held = sorted(key.partition for process in left for key in process.held)
        expect(held == [*range(self._simulation.topics[TOPIC])] or not left, f"partitions {held} are held in the end")
        stored = {lease.partition: lease for lease in self._simulation.stores.groups.leases(GROUP)}
        for process in left:
            for key, (epoch, *_) in process.held.items():
                lease = stored[key]
                expect((lease.owner, lease.epoch) == (process.name, epoch), f"{lease} is not {process.name}'s")
        for key, offset in self._confirmed.items():
            expect((stored[key].offset or 0) >= offset, f"{key} has {stored[key].offset}, {offset} was confirmed")


class _FreeClock:
    """A clock that a caller moves."""

    def __init__(self, simulation: Simulation) -> None:
        self.time_ms = EPOCH_MS + simulation.scheduler.now_ms + 1_000.0

    def now_ms(self) -> int:
        return int(self.time_ms)

    def monotonic_ms(self) -> float:
        return self.time_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.time_ms += duration_ms
