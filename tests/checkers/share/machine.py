"""The functions under test, and what the explorer remembers of them.

Share states and updates get numbers. So a state of the whole model is a few small numbers, and each plan is computed
once for each share state.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from penstock_core.ids import LockId, LockNonce, Offset, TopicName
from penstock_core.share.acknowledge import Acknowledgement, AckPlan, AckResult, AckType, plan_acknowledge, plan_blind
from penstock_core.share.acquire import AcquireRequest, LogBounds, grants, plan_acquire
from penstock_core.share.bury import plan_bury
from penstock_core.share.draft import ShareUpdate, apply
from penstock_core.share.fair import plan_fair
from penstock_core.share.read_first import plan_read_first
from penstock_core.share.share_group import ORDER_NONE, SHARING_ANY, SHARING_FAIR, ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState
from penstock_core.share.tenants import KnownTenants, TenantBatch
from tests.checkers.breadth_first import InvariantError

RECORDS = 4
KEYS = (1, 2, 1, 2)
TENANTS = KnownTenants([TenantBatch.of(0, (1, 1, 2, 1), 100)])  # an acquire of two passes over the second record
RECORDS_MAX = 2  # of one acquire
LOCK_MS = 1  # a lock ends with the next jump of the clock
DELIVERIES_MAX = 2
REFUSED = -1
END = LogBounds(log_start=Offset(0), next_offset=Offset(RECORDS))

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned update by its number, and what it claims: (lock id, type, mask of offsets) of each OK, and burials."""

    update: int
    claims: tuple[tuple[LockId, AckType, int], ...] = ()
    buried: int = 0


class Numbers(Generic[T]):
    """Values, each with a number."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def of(self, value: T) -> int:
        """The number of the value, a new one for a new value."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found


class Machine:
    """The shipped functions for one ordering, or "fair" sharing. `mutate` changes each planned update, for mutants."""

    def __init__(self, ordering: str, mutate: Callable[[ShareUpdate], ShareUpdate] | None = None) -> None:
        self.config = ShareGroupConfig(
            ordering=ordering if ordering != SHARING_FAIR else ORDER_NONE,
            sharing=SHARING_FAIR if ordering == SHARING_FAIR else SHARING_ANY,
            dead_letter_topic=TopicName("dead"),
            deliveries_max=DELIVERIES_MAX,
            retry_backoff_ms_min=0,
            retry_backoff_ms_max=0,
            in_flight_max=RECORDS,
        )
        self.is_by_key = ordering == "key"
        self._mutate = mutate
        self.states: list[ShareState] = []
        self.finished: list[int] = []  # of each share state, a mask of offsets
        self._state_numbers: dict[Hashable, int] = {}
        self._updates: list[ShareUpdate] = []
        self._update_numbers: dict[str, int] = {}
        self._applied: dict[tuple[int, int], int] = {}
        self._plans: dict[Hashable, Planned | None] = {}
        self.start = self.state_number(ShareState(position=Offset(0)))

    def state_number(self, state: ShareState) -> int:
        """The number of the share state. Raises InvariantError for one that breaks an invariant of states."""
        key = (
            state.position,
            state.open,
            *sorted(state.locks.items()),
            *sorted((a, b) for a, b in state.waits.items()),
        )
        found = self._state_numbers.get(str(key))
        if found is None:
            check_structure(state)
            found = self._state_numbers[str(key)] = len(self.states)
            self.states.append(state)
            unfinished = mask_of(offset for records in state.entries() for offset in records.offsets())
            self.finished.append(((1 << state.position) - 1) & ~unfinished)
        return found

    def acquire(self, share: int, nonce: LockNonce, now: int, acks: tuple[Acknowledgement, ...]) -> Planned | None:
        """The plan of an acquire on that state; None if it changes nothing."""
        key = ("acquire", share, nonce, now, acks)
        if key not in self._plans:
            state = self.states[share]
            request = AcquireRequest(nonce=nonce, records_max=RECORDS_MAX, lock_ms=LOCK_MS, now_ms=now)
            if self.is_by_key:
                plan = plan_read_first(state, self.config, END, request, KEYS[state.position :], acks)
            elif self.config.is_fair:
                plan = plan_fair(state, self.config, END, request, TENANTS, acks)
            else:
                plan = plan_acquire(state, self.config, END, request, acks)
            self._plans[key] = self._planned(plan.update, acks, [(a.index, a.ranges, a.result) for a in plan.answers])
        return self._plans[key]

    def acknowledge(self, share: int, ack: Acknowledgement, now: int) -> Planned | None:
        """The plan of an acknowledgement on that state; None if it changes nothing."""
        key = ("acknowledge", share, ack, now)
        if key not in self._plans:
            plan = plan_acknowledge(self.states[share], self.config, [ack], now)
            self._plans[key] = self._of_acks(plan, ack)
        return self._plans[key]

    def blind(self, ack: Acknowledgement, now: int) -> Planned | None:
        """The plan of an acknowledgement without a look at the state."""
        key = ("blind", ack, now)
        if key not in self._plans:
            plan = plan_blind(self.config, [ack], now)
            assert plan is not None
            self._plans[key] = self._of_acks(plan, ack)
        return self._plans[key]

    def bury(self, share: int, now: int) -> Planned | None:
        """The plan of a burial of one record; None if none is due."""
        key = ("bury", share, now)
        if key not in self._plans:
            plan = plan_bury(self.states[share], self.config, now, records_max=1)
            buried = mask_of(offset for burial in plan.burials for offset in burial.records.offsets())
            planned = self._planned(plan.update, (), ())
            self._plans[key] = None if planned is None else replace(planned, buried=buried)
        return self._plans[key]

    def applied(self, share: int, update: int) -> int:
        """The number of the state after the update, or REFUSED."""
        found = self._applied.get((share, update))
        if found is None:
            after = apply(self.states[share], self._updates[update])
            found = REFUSED if after is None else self.state_number(after)
            self._applied[share, update] = found
        return found

    def locks(self, share: int, nonce: LockNonce) -> tuple[tuple[LockId, Lock], ...]:
        """The locks that an acquire with this nonce finds in the state."""
        return tuple((grant.lock_id, grant.lock) for grant in grants(self.states[share], nonce))

    def _of_acks(self, plan: AckPlan, ack: Acknowledgement) -> Planned | None:
        return self._planned(plan.update, (ack,), [(a.index, a.ranges, a.result) for a in plan.answers])

    def _planned(
        self,
        update: ShareUpdate | None,
        acks: Sequence[Acknowledgement],
        answers: Sequence[tuple[int, Sequence[tuple[int, int]], AckResult]],
    ) -> Planned | None:
        if update is None:
            return None
        update = update if self._mutate is None else self._mutate(update)
        number = self._update_numbers.setdefault(repr(update), len(self._updates))
        if number == len(self._updates):
            self._updates.append(update)
        claims = tuple(
            (acks[index].lock_id, acks[index].type, mask_of(offset for a, b in ranges for offset in range(a, b)))
            for index, ranges, result in answers
            if result is AckResult.OK
        )
        return Planned(number, claims)


def mask_of(offsets: object) -> int:
    """One bit for each offset."""
    mask = 0
    for offset in offsets:  # type: ignore[attr-defined]  # any iterable of ints
        mask |= 1 << offset
    return mask


def check_structure(state: ShareState) -> None:
    """Raises InvariantError unless the invariants of a share state hold."""
    offsets = [offset for records in state.entries() for offset in records.offsets()]
    if len(offsets) != len({*offsets}):
        raise InvariantError("a record is in two entries")
    if len(offsets) != state.open:
        raise InvariantError(f"{len(offsets)} records are in entries, and open is {state.open}")
    if any(offset >= state.position for offset in offsets) or state.position > RECORDS:
        raise InvariantError("the position is wrong")
