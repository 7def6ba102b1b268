"""Delete the offsets of groups without members, by each group's `offsets_retention_ms`.

An offset goes when its group has been without members, and the offset without a commit, for that long. If the last
members of a group crashed, no heartbeat checks the group any more. This job does: from then on the group is empty.

Where readers empty a topic (`retention=acknowledged`), an offset stays for the topic's `retention_ms` longer, and the
group holds its records for so long.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.groups.group import GroupConfig, GroupState
from penstock_core.groups.lease import Lease
from penstock_core.ids import GroupName
from penstock_core.limits import GROUP_LIST_MAX, UNLIMITED
from penstock_service.groups.delete_group import remove_group, unlist_group
from penstock_service.groups.rebalance import check_group
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.ports.groups import MembershipStore

_JOB = "offsets"


@dataclass(slots=True, kw_only=True)
class OffsetExpiry:
    """The counts of one run. `is_finished` is False if its time was up before it had seen every group."""

    groups: int = 0
    offsets_expired: int = 0
    groups_removed: int = 0
    failures: int = 0
    is_finished: bool = True


def expire_offsets(instance: Instance, *, budget_ms: float) -> OffsetExpiry:
    """One run over all groups, from the place where the last run stopped, for `budget_ms` at most.

    A read for each group. A query and deletes for each group that has been empty for long or never had members. An
    error of a group counts as a failure, and the next run tries the group again.
    """
    ends_ms = instance.clock.monotonic_ms() + budget_ms
    done = OffsetExpiry()
    after = instance.stores.cursors.get(_JOB)
    for group in _groups(instance.stores.memberships, after or ""):
        if instance.clock.monotonic_ms() >= ends_ms:
            instance.stores.cursors.put(_JOB, after or "")
            done.is_finished = False
            return done
        done.groups += 1
        try:
            _expire_group(instance, group, done)
        except PenstockError:
            done.failures += 1
        after = group
    if after is not None:
        instance.stores.cursors.clear(_JOB)
    return done


def _groups(memberships: MembershipStore, after: str) -> Iterator[GroupName]:
    while page := memberships.registered(after, GROUP_LIST_MAX):
        yield from page
        after = page[-1]


def _expire_group(instance: Instance, group: GroupName, done: OffsetExpiry) -> None:
    window, now_ms = UpdateWindow.open(instance.clock), instance.clock.now_ms()
    state = instance.stores.memberships.get_group(group)
    if state is not None and state.document is None and now_ms >= state.next_check_ms:
        state = check_group(instance, state)
    kept_ms = (state.config if state else GroupConfig()).offsets_retention_ms
    if kept_ms == UNLIMITED or not _may_be_over(state, now_ms - kept_ms):
        return
    leases = instance.stores.groups.leases(group)
    over = [lease for lease in leases if _last_used_ms(state, lease) < now_ms - kept_ms]
    over = [lease for lease in over if not _holds_records(instance, state, lease, now_ms - kept_ms)]
    window.check()  # the group may keep its offsets longer by now
    results = instance.executor.map(lambda lease: instance.stores.groups.delete_lease(group, lease), over)
    removed = sum(results.ok)
    done.offsets_expired += removed
    done.failures += len(results.errors)
    if removed == len(leases):
        remove_group(instance.stores.memberships, instance.executor, group, state)
        unlist_group(instance, group)
        done.groups_removed += 1


def _may_be_over(state: GroupState | None, before_ms: int) -> bool:
    """A group without an item never had members."""
    return state is None or (state.empty_since_ms is not None and state.empty_since_ms < before_ms)


def _holds_records(instance: Instance, state: GroupState | None, lease: Lease, before_ms: int) -> bool:
    topic = instance.topic_cache.find(lease.topic)
    if topic is None or topic.topic_id != lease.partition.topic_id or not topic.config.is_acknowledged:
        return False
    kept_ms = topic.config.retention_ms
    return kept_ms == UNLIMITED or _last_used_ms(state, lease) >= before_ms - kept_ms


def _last_used_ms(state: GroupState | None, lease: Lease) -> int:
    empty_since_ms = (state and state.empty_since_ms) or 0
    return max(lease.committed_at_ms, empty_since_ms)
