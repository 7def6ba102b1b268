"""A share consumer and the functions that serve it: the SDK's appetite, and the service's plans."""

import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from bench.share_model.world import API_MS, GET_MS, READ_MS, ModelItem, Process, World
from penstock.share.appetite import Appetite
from penstock_core.ids import LockNonce, Offset
from penstock_core.limits import (
    SHARE_ACQUIRE_ATTEMPTS_MAX,
    SHARE_KEY_ATTEMPTS_MAX,
    SHARE_LOOKS_FIRST,
    SHARE_ROOM_RETRY_MS,
    SHARE_WINDOW_RECORDS,
)
from penstock_core.share.acknowledge import Acknowledgement, AckType, plan_acknowledge, plan_blind
from penstock_core.share.acquire import AcquirePlan, AcquireRequest, Grant, LogBounds, grants, plan_acquire
from penstock_core.share.read_first import plan_read_first
from penstock_core.share.record_set import Ranges, normalized
from penstock_core.share.share_codec import client_lock_id, parse_client_lock_id
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import ShareState
from penstock_service.share.acquire.look import in_turn

LOG = LogBounds(log_start=Offset(0), next_offset=Offset(10**12))  # there are always fresh records
_KEY_STEP = 2_654_435_761  # spreads the records over the keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """The habits of all workers. `linger_ms` is the time that an accept of a finished lock waits for an acquire."""

    config: ShareGroupConfig
    work_ms: float
    records_max: int
    linger_ms: float
    part_linger_ms: float
    failing_share: float = 0.0
    keys: int = 1_000


@dataclass(slots=True)
class _Batch:
    """Records under one lock that a worker has. `grant` is the lock as the client knows it."""

    partition: int
    grant: Grant
    left: deque[int]
    accepted: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)

    def take(self, generation: int = 0) -> list[Acknowledgement]:
        """The acknowledgements of what is done."""
        _, _, known = parse_client_lock_id(client_lock_id(self.grant.lock_id, self.grant.lock, generation))
        done = ((AckType.ACCEPT, self.accepted), (AckType.RELEASE, self.released))
        self.accepted, self.released = [], []
        return [
            Acknowledgement(lock_id=self.grant.lock_id, type=kind, offsets=_ranges(offsets), handed_out=known)
            for kind, offsets in done
            if offsets
        ]


class Worker:
    """Handles one record after the other, and acquires the next ones while it still has some."""

    def __init__(self, world: World, habits: Habits) -> None:
        self._world = world
        self._habits = habits
        self._appetite = Appetite(habits.records_max)
        self._appetite.employ(1)
        self._batches: deque[_Batch] = deque()
        self._unsent: list[_Batch] = []
        self._is_acquiring = self._is_acknowledging = False
        self._due_ms = math.inf

    def work(self) -> Process:
        """Handle records for ever."""
        world, habits = self._world, self._habits
        while True:
            at_hand = sum(len(batch.left) for batch in self._batches)
            if not self._is_acquiring and at_hand <= self._appetite.low_water:
                self._is_acquiring = True
                world.start(self._acquire())
            if not at_hand:
                self._appetite.waits(int(world.now_ms))
                yield 1.0
                continue
            batch = self._batches[0]
            offset = batch.left.popleft()
            self._appetite.begins(1, int(world.now_ms))
            yield habits.work_ms
            has_failed = world.random.random() < habits.failing_share
            (batch.released if has_failed else batch.accepted).append(offset)
            world.counts["handled"] += not has_failed
            world.counts["failed"] += has_failed
            if not batch.left:
                self._batches.popleft()
            if batch not in self._unsent:
                self._unsent.append(batch)
            is_part = batch.left and not has_failed and not habits.config.is_by_key
            self._due(habits.part_linger_ms if is_part else habits.linger_ms)

    def _due(self, linger_ms: float) -> None:
        """Acknowledge after that time, if no acquire carries it before."""
        due_ms = self._world.now_ms + linger_ms
        if due_ms < self._due_ms:
            self._due_ms = due_ms
            self._world.start(self._acknowledge(), linger_ms)

    def _taken(self) -> list[tuple[_Batch, list[Acknowledgement]]]:
        done, self._unsent, self._due_ms = self._unsent, [], math.inf
        return [(batch, batch.take()) for batch in done]

    def _acknowledge(self) -> Process:
        """Acknowledge alone what no acquire has carried in time."""
        if self._is_acknowledging or self._world.now_ms < self._due_ms:
            return
        world, self._is_acknowledging = self._world, True
        taken = self._taken()
        yield world.latency(API_MS) / 2
        for number in {batch.partition for batch, _ in taken}:
            mine = [(batch, acks) for batch, acks in taken if batch.partition == number]
            world.counts["acknowledged alone"] += 1
            state = yield from self._acknowledge_partition(
                world.items[number], [each for _, acks in mine for each in acks]
            )
            self._learn([batch for batch, _ in mine], state)
        yield world.latency(API_MS) / 2
        self._is_acknowledging = False
        if self._unsent:
            world.start(self._acknowledge(), max(0.0, self._due_ms - world.now_ms))

    def _acknowledge_partition(
        self, item: ModelItem, acks: Sequence[Acknowledgement]
    ) -> Generator[float, None, ShareState]:
        world, config = self._world, self._habits.config
        plan = plan_blind(config, acks, int(world.now_ms))
        state = item.state
        if plan is None:
            yield world.latency(READ_MS)
            world.counts["reads"] += 1
            plan = plan_acknowledge(item.state, config, acks, int(world.now_ms))
        while plan.update is not None:
            after = yield from world.update(item, plan.update)
            if after is not None:
                return after
            state = item.state
            plan = plan_acknowledge(state, config, acks, int(world.now_ms))
        return state

    def _learn(self, batches: Sequence[_Batch], state: ShareState) -> None:
        """The answer tells the lock ids to go on with."""
        for batch in batches:
            lock = state.locks.get(batch.grant.lock_id)
            if lock is not None:
                batch.grant = Grant(lock_id=batch.grant.lock_id, lock=lock, generation=state.generation)

    def _acquire(self) -> Process:
        """One call: it acknowledges what is done, and takes more."""
        world, began_ms = self._world, self._world.now_ms
        wanted = self._appetite.ask(int(began_ms))
        done = self._taken()
        nonce = LockNonce(f"{world.random.randrange(16**8):08x}")
        yield world.latency(API_MS) / 2
        order = list(dict.fromkeys([batch.partition for batch, _ in done]))
        order += [each for _, each in in_turn([len(world.items)], nonce) if each not in order]
        taken = 0
        for first in range(0, len(order), SHARE_LOOKS_FIRST):
            chosen = order[first : first + SHARE_LOOKS_FIRST]
            yield max(world.latency(READ_MS), world.latency(READ_MS))
            seen = {each: world.items[each].state for each in chosen}
            for each in chosen:
                mine = [(batch, acks) for batch, acks in done if batch.partition == each]
                is_enough = taken > wanted // 2
                if mine or not is_enough:
                    found = yield from self._take(each, seen[each], nonce, 0 if is_enough else wanted - taken, mine)
                    taken += found
            if taken:
                break
        if taken:
            yield world.latency(GET_MS)
        yield world.latency(API_MS) / 2
        world.counts["acquires"] += 1
        world.counts["granted"] += taken
        self._appetite.answered(int(world.now_ms - began_ms))
        if not taken:
            world.counts["empty"] += 1
            yield SHARE_ROOM_RETRY_MS * world.random.random()
        self._is_acquiring = False

    def _take(
        self,
        number: int,
        state: ShareState,
        nonce: LockNonce,
        wanted: int,
        mine: Sequence[tuple[_Batch, list[Acknowledgement]]],
    ) -> Generator[float, None, int]:
        world, config, item = self._world, self._habits.config, self._world.items[number]
        acks = [each for _, some in mine for each in some]
        window: list[int] = []
        window_base = -1
        for _ in range(SHARE_KEY_ATTEMPTS_MAX if config.is_by_key else SHARE_ACQUIRE_ATTEMPTS_MAX):
            if config.is_by_key and not window_base <= state.position < window_base + len(window):
                window, window_base = self._window(state), state.position
                yield world.latency(GET_MS) + world.latency(READ_MS)
                state = item.state
                if state.position >= window_base + len(window) > window_base:
                    continue
            plan = self._plan(state, nonce, wanted, acks, window[state.position - window_base :])
            if plan.update is None:
                return 0
            after = yield from world.update(item, plan.update)
            if after is None:
                state = item.state  # the refusal shows it
                continue
            self._learn([batch for batch, _ in mine], after)
            found = grants(after, nonce)
            self._batches += [_Batch(number, grant, deque(grant.records.offsets())) for grant in found]
            return sum(grant.records.count for grant in found)
        if acks:
            after = yield from self._acknowledge_partition(item, acks)
            self._learn([batch for batch, _ in mine], after)
        return 0

    def _plan(
        self, state: ShareState, nonce: LockNonce, wanted: int, acks: Sequence[Acknowledgement], window: Sequence[int]
    ) -> AcquirePlan:
        config, now_ms = self._habits.config, int(self._world.now_ms)
        request = AcquireRequest(nonce=nonce, records_max=wanted, lock_ms=config.lock_ms, now_ms=now_ms)
        if config.is_by_key:
            return plan_read_first(state, config, LOG, request, window, acks)
        return plan_acquire(state, config, LOG, request, acks)

    def _window(self, state: ShareState) -> list[int]:
        """The hashes of the fresh records that an acquire by key reads."""
        room = min(self._habits.config.in_flight_max - state.open, SHARE_WINDOW_RECORDS)
        return [
            1 + offset * _KEY_STEP % 2**32 % self._habits.keys
            for offset in range(state.position, state.position + room)
        ]


def _ranges(offsets: Sequence[int]) -> Ranges:
    return normalized((offset, offset + 1) for offset in offsets)
