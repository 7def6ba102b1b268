"""Defects put into the group protocol on purpose, each of which the workload `groups` must find."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from penstock_broker import acquire_leases as acquire_module
from penstock_broker import heartbeat as heartbeat_module
from penstock_broker import rebalance as rebalance_module
from penstock_broker.adapters import memory_groups
from penstock_core.errors import PenstockError
from penstock_core.group import Member
from penstock_core.ids import GroupName
from penstock_core.lease import ATTEMPTS, Attempt, Holder, Lease, refusal
from penstock_core.sessions import refuse_heartbeat, touched
from tests.simulation.mutants import Mutant


def _lease_is_taken_whatever_its_epoch() -> AbstractContextManager[Any]:
    def unmoved(store: Any, group: GroupName, seen: Lease) -> Lease:
        stored: Lease | None = store._leases.get(group, {}).get(seen.partition)
        return stored or Lease(topic=seen.topic, partition=seen.partition)

    return patch.object(memory_groups.MemoryGroupStore, "_unmoved", unmoved)


def _lease_is_taken_from(holder: Holder) -> AbstractContextManager[Any]:
    return patch.object(acquire_module, "ATTEMPTS", {**ATTEMPTS, holder: Attempt.TAKE})


def _commit_counts_for_anybody() -> AbstractContextManager[Any]:
    def counts(lease: Any, key: Any, offset: Any, tenure: Any, *, may_go_back: bool) -> PenstockError | None:
        return refusal(lease and replace(lease, owner=None), key, offset, None, may_go_back=may_go_back)

    return patch.object(memory_groups, "refusal", counts)


def _commit_goes_back() -> AbstractContextManager[Any]:
    def goes_back(*arguments: Any, **_: Any) -> PenstockError | None:
        return refusal(*arguments, may_go_back=True)

    return patch.object(memory_groups, "refusal", goes_back)


def _everybody_is_settled() -> AbstractContextManager[Any]:
    original = heartbeat_module.Report
    return patch.object(heartbeat_module, "Report", lambda epoch, is_settled: original(epoch=epoch, is_settled=True))


def _nobody_is_settled() -> AbstractContextManager[Any]:
    original = heartbeat_module._touch
    return patch.object(heartbeat_module, "_touch", lambda *arguments: original(*arguments[:-1], None))


def _sessions_never_end() -> AbstractContextManager[Any]:
    def members(broker: Any, group: GroupName) -> Sequence[Member]:
        found: Sequence[Member] = broker.memberships.members(group)
        return found

    return patch.object(rebalance_module, "_end_sessions", members)


@contextmanager
def _any_session_is_the_members() -> Iterator[None]:
    def goes_on(stored: Member | None, *arguments: Any) -> Member:
        group, name, member_id, sequence, session, *rest = arguments
        return touched(stored, group, name, member_id, sequence, stored.session if stored else session, *rest)

    def refuse(*arguments: Any) -> None:
        refuse_heartbeat(*arguments[:-1], None)

    with patch.object(memory_groups, "touched", goes_on), patch.object(heartbeat_module, "refuse_heartbeat", refuse):
        yield


def _lease_epochs_begin_anew() -> AbstractContextManager[Any]:
    return patch.object(acquire_module, "next_epoch", lambda seen, _: seen.epoch + 1)


GROUP_MUTANTS = [
    Mutant(name, "groups", patched)
    for name, patched in {
        "lease is taken whatever its epoch": _lease_is_taken_whatever_its_epoch,
        "lease is taken from an unsettled owner": partial(_lease_is_taken_from, Holder.UNSETTLED),
        "lease is taken from an owner that is ahead": partial(_lease_is_taken_from, Holder.AHEAD),
        "commit counts for anybody": _commit_counts_for_anybody,
        "commit goes back": _commit_goes_back,
        "everybody is settled": _everybody_is_settled,
        "nobody is settled": _nobody_is_settled,
        "sessions never end": _sessions_never_end,
        "any session is the member's": _any_session_is_the_members,
        "lease epochs begin anew": _lease_epochs_begin_anew,
    }.items()
]
