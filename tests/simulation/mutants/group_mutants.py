"""Defects put into the group protocol on purpose, each of which the workload `groups` must find."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from penstock_core.groups.group import Member, MemberProgress
from penstock_core.groups.lease import TAKE_DECISIONS, HolderState, TakeDecision
from penstock_core.groups.sessions import refuse_heartbeat
from penstock_core.ids import GroupName
from penstock_core.storage.groups.lease_item import commit_update
from penstock_core.storage.groups.member_item import touch_update
from penstock_core.storage.item import ConditionalUpdate
from penstock_service.adapters.dynamodb import groups as dynamodb_groups
from penstock_service.adapters.dynamodb import groups as dynamodb_memberships
from penstock_service.groups import heartbeat as heartbeat_module
from penstock_service.groups import leases as acquire_module
from penstock_service.groups import rebalance as rebalance_module
from tests.simulation.mutants.mutant import Mutant, Patch, under


def _lease_is_taken_from(holder: HolderState) -> Patch:
    return patch.object(acquire_module, "TAKE_DECISIONS", {**TAKE_DECISIONS, holder: TakeDecision.TAKE})


def _commit_counts_for_any_member() -> Patch:
    def counts(*arguments: Any, **named: Any) -> ConditionalUpdate:
        return under(
            commit_update(*arguments, **named), "attribute_not_exists(committed_offset) OR committed_offset <= :offset"
        )

    return patch.object(dynamodb_groups, "commit_update", counts)


def _every_member_is_settled() -> Patch:
    return patch.object(
        heartbeat_module, "MemberProgress", lambda epoch, is_settled: MemberProgress(epoch=epoch, is_settled=True)
    )


def _no_member_is_settled() -> Patch:
    original: Callable[..., Any] = heartbeat_module._extend_session
    return patch.object(heartbeat_module, "_extend_session", lambda *arguments: original(*arguments[:-1], None))


def _sessions_never_end() -> Patch:
    def members(instance: Any, group: GroupName) -> Sequence[Member]:
        found: Sequence[Member] = instance.stores.memberships.members(group)
        return found

    return patch.object(rebalance_module, "_end_sessions", members)


@contextmanager
def _any_session_is_the_members() -> Iterator[None]:
    def goes_on(*arguments: Any) -> ConditionalUpdate:
        return under(touch_update(*arguments), "member_id = :member AND #sequence < :sequence")

    refuse_original: Callable[..., None] = refuse_heartbeat

    def refuse(*arguments: Any) -> None:
        refuse_original(*arguments[:-1], None)

    with (
        patch.object(dynamodb_memberships, "touch_update", goes_on),
        patch.object(heartbeat_module, "refuse_heartbeat", refuse),
    ):
        yield


def _lease_epochs_begin_anew() -> Patch:
    return patch.object(acquire_module, "next_lease_epoch", lambda lease, _: lease.epoch + 1)


_PATCHES: dict[str, Callable[[], Patch]] = {
    "lease is taken from an unsettled owner": partial(_lease_is_taken_from, HolderState.UNSETTLED),
    "lease is taken from an owner that is ahead": partial(_lease_is_taken_from, HolderState.AHEAD),
    "commit counts for any member": _commit_counts_for_any_member,
    "every member is settled": _every_member_is_settled,
    "no member is settled": _no_member_is_settled,
    "sessions never end": _sessions_never_end,
    "any session is the member's": _any_session_is_the_members,
    "lease epochs begin anew": _lease_epochs_begin_anew,
}

GROUP_MUTANTS = [Mutant(name, "groups", patched) for name, patched in _PATCHES.items()]
