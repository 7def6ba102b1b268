"""The whole model: workers, calls on their way, time, and a history that the invariants need.

A worker acquires, is told what it holds, and acknowledges. A call on its way holds the update that was planned when its
function read the item. It is applied at any later moment. The answer comes, or is lost; a copy of the call may stay
behind and be applied later.

Invariants, checked at each application:

- A finished record stays finished, and a worker that was told that it held it has accepted it, or it was buried.
- An acknowledgement takes effect only under the lock that holds the record then.
- No acquire takes a record from a lock whose time is not over, unless the clock of its function is ahead.
- A record is handed out `DELIVERIES_MAX` times at most, and buried once at most, unless it was accepted.
- By key: no record is handed out while an earlier one of its key is unfinished elsewhere, and not for the dead-letter
  topic.
- Each share state can be worked off: acquires and burials alone finish every record.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock_core.ids import LockId, LockNonce
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.draft import ShareUpdate
from penstock_core.share.share_state import Lock
from penstock_core.share.waits import tends
from tests.checkers.breadth_first import InvariantError
from tests.checkers.share.machine import (
    DELIVERIES_MAX,
    KEYS,
    RECORDS,
    REFUSED,
    Machine,
    Numbers,
    Planned,
    mask_of,
)

TRIES = 3  # of one call
DRAIN_TIME = 1_000


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much there is of everything. `faults` are lost answers, impatience, copies and deaths, together."""

    workers: int = 3
    acquires: int = 3  # of one worker
    calls: int = 4  # on their way at once
    faults: int = 3
    last_time: int = 3


class Worker(NamedTuple):
    """A worker: what it was told that it holds, and whether it waits for an answer."""

    is_alive: bool = True
    acquires: int = 0
    waits: str = ""  # "", "answer", or "retry": its answer was lost
    told: tuple[tuple[LockId, Lock], ...] = ()
    acks: tuple[Acknowledgement, ...] = ()  # in the acquire that it waits for


class Call(NamedTuple):
    """A call on its way. No worker waits for the answer of a copy."""

    kind: str  # acquire, acknowledge, bury
    worker: int
    nonce: LockNonce
    planned: Planned
    acks: tuple[Acknowledgement, ...] = ()
    tries: int = 1
    is_copy: bool = False
    is_early: bool = False  # planned by a clock that is ahead


class State(NamedTuple):
    """A state of the model. Shares, workers and calls are numbers; masks have a bit for each record."""

    share: int
    time: int
    workers: tuple[int, ...]
    calls: tuple[int, ...]
    handled: int = 0  # records that a worker has decided to accept
    buried: int = 0
    done: int = 0  # records that were finished at some time
    deliveries: tuple[int, ...] = (0,) * RECORDS
    faults: int = 0


@dataclass(frozen=True, slots=True)
class Effect:
    """What one update did to one share state: masks."""

    granted: int
    finished: int


class Model:
    """Steps from state to state."""

    def __init__(
        self,
        ordering: str = "none",
        bounds: Bounds = Bounds(),
        mutate: Callable[[ShareUpdate], ShareUpdate] | None = None,
    ) -> None:
        self.machine = Machine(ordering, mutate)
        self._bounds = bounds
        self._workers: Numbers[Worker] = Numbers()
        self._calls: Numbers[Call] = Numbers()
        self._drained: set[int] = set()
        self._nonces: dict[tuple[int, int], LockNonce] = {}
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}  # one object for equal ones, to save memory

    def size(self) -> str:
        """How many share states the machine knows."""
        return f"{len(self.machine.states):,} share states"

    def start(self) -> State:
        """The first state."""
        idle = self._workers.of(Worker())
        return State(
            share=self.machine.start,
            time=0,
            workers=(idle,) * self._bounds.workers,
            calls=(),
            faults=self._bounds.faults,
        )

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Each step from the state, with its name. Raises InvariantError at the step that breaks an invariant."""
        workers = [self._workers.values[number] for number in state.workers]
        for index, worker in enumerate(workers):
            if worker.is_alive:
                yield from self._worker_steps(state, index, worker, workers)
        if len(state.calls) < self._bounds.calls:
            planned = self.machine.bury(state.share, state.time)
            if planned is not None:
                yield "bury", self._sent(state, Call("bury", 0, LockNonce(""), planned))
        for place, number in enumerate(state.calls):
            if place == 0 or state.calls[place - 1] != number:
                yield from self._deliveries(state, place, self._calls.values[number])
        if state.time < self._bounds.last_time:
            yield "time passes", state._replace(time=state.time + 1)

    def _worker_steps(
        self, state: State, index: int, worker: Worker, workers: list[Worker]
    ) -> Iterator[tuple[str, State]]:
        if len(state.calls) < self._bounds.calls:
            is_next = index == 0 or workers[index - 1].acquires > 0  # workers are alike: they begin in order
            if not worker.waits and worker.acquires < self._bounds.acquires and is_next:
                yield from self._acquires(state, index, worker)
            elif worker.waits == "retry":
                yield f"w{index} repeats its acquire", self._acquire(state, index, worker)
            if worker.told:
                yield from self._acknowledgements(state, index, worker)
        if state.faults and (worker.told or worker.waits):
            yield f"w{index} dies", self._with(state, index, Worker(is_alive=False))._replace(faults=state.faults - 1)

    def _acquires(self, state: State, index: int, worker: Worker) -> Iterator[tuple[str, State]]:
        begun = worker._replace(acquires=worker.acquires + 1)
        yield f"w{index} acquires", self._acquire(state, index, begun)
        if state.faults:
            fault = state._replace(faults=state.faults - 1)
            yield f"w{index} acquires by a fast clock", self._acquire(fault, index, begun, ahead=1)
        if worker.told:
            (lock_id, lock), *rest = worker.told
            ack = Acknowledgement(lock_id=lock_id, type=AckType.ACCEPT, offsets=lock.held.ranges)
            handled = state._replace(handled=state.handled | mask_of(lock.held.offsets()))
            begun = begun._replace(told=tuple(rest), acks=(ack,))
            yield f"w{index} accepts {lock.held.ranges} and acquires", self._acquire(handled, index, begun)

    def _acquire(self, state: State, index: int, worker: Worker, ahead: int = 0) -> State:
        """The worker's acquire is planned on the state as it is now, or finds that there is nothing to change."""
        nonce = self._nonce(index, worker.acquires)
        planned = self.machine.acquire(state.share, nonce, state.time + ahead, worker.acks)
        if planned is None:
            told = worker.told + self.machine.locks(state.share, nonce)
            return self._with(state, index, worker._replace(waits="", told=told, acks=()))
        waiting = self._with(state, index, worker._replace(waits="answer"))
        return self._sent(waiting, Call("acquire", index, nonce, planned, worker.acks, is_early=ahead > 0))

    def _nonce(self, index: int, number: int) -> LockNonce:
        """A nonce whose acquire tends while there are fresh records: every second one of each worker does."""
        if (index, number) not in self._nonces:
            names = (LockNonce(f"w{index}-{number:02}-{each:02}") for each in range(100))
            self._nonces[index, number] = next(name for name in names if tends(name, 0) == bool((index + number) % 2))
        return self._nonces[index, number]

    def _acknowledgements(self, state: State, index: int, worker: Worker) -> Iterator[tuple[str, State]]:
        """The worker acknowledges the first lock that it was told of, by what its lock id tells."""
        (lock_id, lock), *rest = worker.told
        held = lock.held
        wanted = [(AckType.ACCEPT, held), (AckType.RELEASE, held), (AckType.REJECT, held.first(1))]
        if held.count > 1:
            wanted.append((AckType.ACCEPT, held.first(1)))
        if state.time >= lock.until_ms:
            wanted.append((AckType.RENEW, held))
        for kind, records in wanted:
            ack = Acknowledgement(lock_id=lock_id, type=kind, offsets=records.ranges, lock_ms=1, handed_out=lock)
            left = held.minus(records.ranges)
            if kind is AckType.RENEW:
                told = (*rest, (lock_id, Lock(lock.base, state.time + 1, lock.deliveries, lock.records)))
            elif left.ranges:
                told = (*rest, (lock_id, Lock(lock.base, lock.until_ms, lock.deliveries, left.shifted(-lock.base))))
            else:
                told = tuple(rest)
            planned = self.machine.blind(ack, state.time)
            assert planned is not None
            after = self._with(state, index, worker._replace(told=told))
            if kind is AckType.ACCEPT:
                after = after._replace(handled=after.handled | mask_of(records.offsets()))
            call = Call("acknowledge", index, LockNonce(""), planned, (ack,))
            yield f"w{index} sends {kind.value} {records.ranges} under {lock_id}", self._sent(after, call)

    def _deliveries(self, state: State, place: int, call: Call) -> Iterator[tuple[str, State]]:
        name = f"{'a copy of ' if call.is_copy else ''}{call.kind} {_name(call)} is applied"
        taken = state._replace(calls=self._one(state.calls[:place] + state.calls[place + 1 :]))
        if call.kind == "acquire" and not call.is_copy and state.faults:
            worker = self._workers.values[taken.workers[call.worker]]
            if worker.is_alive:
                alone = self._with(taken, call.worker, worker._replace(waits="retry"))._replace(faults=state.faults - 1)
                yield f"{call.nonce} takes too long for its worker", self._sent(alone, call._replace(is_copy=True))
        after_share = self.machine.applied(state.share, call.planned.update)
        if after_share == REFUSED:
            refused = f"{name}: refused"
            yield refused, self._planned_again(taken, call)
            return
        after = self._after(taken, call, after_share)
        yield name, self._answered(after, call)
        if call.is_copy or not state.faults:
            return
        fault = after._replace(faults=after.faults - 1)
        yield f"{name}, a copy stays behind", self._sent(self._answered(fault, call), call._replace(is_copy=True))
        if call.kind == "acquire":
            worker = self._workers.values[fault.workers[call.worker]]
            if worker.is_alive:
                yield f"{name}, the answer is lost", self._with(fault, call.worker, worker._replace(waits="retry"))

    def _planned_again(self, state: State, call: Call) -> State:
        """After a refusal the function plans on the state that refused it."""
        if call.is_copy or call.kind == "bury":
            return state
        if call.kind == "acquire":
            worker = self._workers.values[state.workers[call.worker]]
            if not worker.is_alive:
                return state
            if call.tries == TRIES:
                return self._with(state, call.worker, worker._replace(waits="", acks=()))
            planned = self.machine.acquire(state.share, call.nonce, state.time, call.acks)
            if planned is None:
                return self._answered(state, call)
        else:
            planned = self.machine.acknowledge(state.share, call.acks[0], state.time)
            if planned is None or call.tries == TRIES:
                return state
        return self._sent(state, call._replace(planned=planned, tries=call.tries + 1))

    def _answered(self, state: State, call: Call) -> State:
        """The worker of an acquire learns what it holds."""
        if call.kind != "acquire" or call.is_copy:
            return state
        worker = self._workers.values[state.workers[call.worker]]
        if not worker.is_alive:
            return state
        told = worker.told + self.machine.locks(state.share, call.nonce)
        return self._with(state, call.worker, worker._replace(waits="", told=told, acks=()))

    def _after(self, state: State, call: Call, after: int) -> State:
        """The state after an application, with its history. Raises InvariantError."""
        before_state, after_state = self.machine.states[state.share], self.machine.states[after]
        finished = self.machine.finished[after]
        if state.done & ~finished:
            raise InvariantError("a finished record came back")
        for lock_id, kind, mask in call.planned.claims:
            lock = before_state.locks.get(lock_id)
            if lock is None or mask & ~mask_of(lock.held.offsets()):
                raise InvariantError(f"{kind.value} took effect without the lock")
        if call.planned.buried & (state.buried | state.done):
            raise InvariantError("a record was buried that was finished")
        if finished & ~(state.handled | state.buried | call.planned.buried):
            raise InvariantError("a record is finished that no worker accepted")
        granted = 0
        for lock_id, lock in after_state.locks.items():
            if (
                lock_id.startswith(f"{call.nonce}.")
                and call.kind == "acquire"
                and before_state.locks.get(lock_id) != lock
            ):
                granted |= mask_of(lock.held.offsets())
        deliveries = state.deliveries
        if granted:
            self._check_grant(state, call, after, granted)
            deliveries = self._one(tuple(count + (granted >> offset & 1) for offset, count in enumerate(deliveries)))
            if max(deliveries) > DELIVERIES_MAX:
                raise InvariantError(f"a record was handed out {max(deliveries)} times")
        self._check_drain(after)
        return state._replace(
            share=after, done=finished, buried=state.buried | call.planned.buried, deliveries=deliveries
        )

    def _check_grant(self, state: State, call: Call, after: int, granted: int) -> None:
        for lock_id, lock in self.machine.states[state.share].locks.items():
            is_live = not call.is_early and lock.until_ms > state.time and not lock_id.startswith(f"{call.nonce}.")
            if is_live and granted & mask_of(lock.held.offsets()):
                raise InvariantError("two workers hold a record's lock")
        if self.machine.is_by_key:
            state_after = self.machine.states[after]
            dead = mask_of(o for wait in state_after.waits.values() if wait.is_terminal for o in wait.records.offsets())
            unfinished = ~self.machine.finished[after] & ((1 << state_after.position) - 1) & ~granted & ~dead
            for offset in range(RECORDS):
                earlier = mask_of(other for other in range(offset) if KEYS[other] == KEYS[offset])
                if granted >> offset & 1 and unfinished & earlier:
                    raise InvariantError("a record was handed out before an earlier one of its key was finished")

    def _check_drain(self, share: int) -> None:
        """Raises InvariantError unless one worker alone can finish every record from here."""
        if share in self._drained:
            return
        self._drained.add(share)
        for turn in range(8 * RECORDS):
            while (planned := self.machine.bury(share, DRAIN_TIME + turn)) is not None:
                share = self.machine.applied(share, planned.update)
            nonce = LockNonce(f"drain{turn:03}")
            acquired = self.machine.acquire(share, nonce, DRAIN_TIME + turn, ())
            if acquired is not None:
                share = self.machine.applied(share, acquired.update)
            for lock_id, lock in self.machine.locks(share, nonce):
                ack = Acknowledgement(lock_id=lock_id, type=AckType.ACCEPT, offsets=lock.held.ranges)
                accepted = self.machine.acknowledge(share, ack, DRAIN_TIME + turn)
                assert accepted is not None
                share = self.machine.applied(share, accepted.update)
            if self.machine.finished[share] == (1 << RECORDS) - 1:
                return
        raise InvariantError("a record never comes back")

    def _with(self, state: State, index: int, worker: Worker) -> State:
        number = self._workers.of(worker)
        return state._replace(workers=self._one((*state.workers[:index], number, *state.workers[index + 1 :])))

    def _sent(self, state: State, call: Call) -> State:
        return state._replace(calls=self._one(tuple(sorted((*state.calls, self._calls.of(call))))))

    def _one(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        return self._tuples.setdefault(numbers, numbers)


def _name(call: Call) -> str:
    if call.kind == "acquire":
        return call.nonce
    if call.kind == "bury":
        return f"{call.planned.buried:04b}"
    return f"{call.acks[0].type.value} of {call.acks[0].lock_id}"
