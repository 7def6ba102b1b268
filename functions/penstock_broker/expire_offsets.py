"""Offsets that nobody needs any more: of groups without members, by each group's `offsets_retention_ms`.

An offset goes when its group has been without members, and the offset without a commit, for that long. A group
whose last members crashed is looked after here, as nobody's heartbeat does it: from then on it counts as empty.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_broker.delete_group import remove_group
from penstock_broker.rebalance import check_group
from penstock_core.errors import PenstockError
from penstock_core.group import GroupConfig, GroupState
from penstock_core.ids import GroupName
from penstock_core.lease import Lease
from penstock_core.limits import GROUP_LIST_MAX, UNLIMITED

_JOB = "offsets"


@dataclass(slots=True, kw_only=True)
class Expired:
    """What one run did; `is_finished` unless its time was up before it had seen every group."""

    groups: int = 0
    offsets_expired: int = 0
    groups_removed: int = 0
    failures: int = 0
    is_finished: bool = True


def expire_offsets(broker: Broker, *, budget_ms: float) -> Expired:
    """One run over all groups, from where the last one stopped. A read for each group, and a query and deletes for
    those that have been empty for long, or have no members at all. A group that fails is counted and met again by
    the next run."""
    ends_ms = broker.clock.monotonic_ms() + budget_ms
    done = Expired()
    after = broker.cursors.get(_JOB)
    for group in _groups(broker, after or ""):
        if broker.clock.monotonic_ms() >= ends_ms:
            broker.cursors.put(_JOB, after or "")
            done.is_finished = False
            return done
        done.groups += 1
        try:
            _expire_group(broker, group, done)
        except PenstockError:
            done.failures += 1
        after = group
    if after is not None:
        broker.cursors.clear(_JOB)
    return done


def _groups(broker: Broker, after: str) -> Iterator[GroupName]:
    while page := broker.memberships.registered(after, GROUP_LIST_MAX):
        yield from page
        after = page[-1]


def _expire_group(broker: Broker, group: GroupName, done: Expired) -> None:
    now_ms = broker.clock.now_ms()
    state = broker.memberships.get_group(group)
    if state is not None and now_ms >= state.next_check_ms:
        state = check_group(broker, state)
    kept_ms = (state.config if state else GroupConfig()).offsets_retention_ms
    if kept_ms == UNLIMITED or not _may_be_over(state, now_ms - kept_ms):
        return
    leases = broker.groups.leases(group)
    over = [lease for lease in leases if _last_used_ms(state, lease) < now_ms - kept_ms]
    results = broker.parallel.map(lambda lease: broker.groups.delete_lease(group, lease), over)
    removed = sum(result is True for result in results)
    done.offsets_expired += removed
    done.failures += sum(isinstance(result, PenstockError) for result in results)
    if removed == len(leases):
        remove_group(broker, group, state)
        broker.memberships.unregister(group)
        done.groups_removed += 1


def _may_be_over(state: GroupState | None, before_ms: int) -> bool:
    """A group without an item never had members."""
    return state is None or (state.empty_since_ms is not None and state.empty_since_ms < before_ms)


def _last_used_ms(state: GroupState | None, lease: Lease) -> int:
    empty_since_ms = (state and state.empty_since_ms) or 0
    return max(lease.committed_at_ms, empty_since_ms)
