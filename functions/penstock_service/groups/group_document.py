"""Read and replace the document of a group whose leader assigns: see `penstock_core.groups.group`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import GroupDocument, GroupState, alter_group_config, concurrent_update
from penstock_core.ids import parse_group_name
from penstock_core.outcomes import errors_maybe_applied
from penstock_service.groups.describe_group import live_members
from penstock_service.groups.rebalance import create_group, find_group, rebalance
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow


def read_document(instance: Instance, group_name: str) -> GroupState:
    """The group with its document, if it has one. One read. Raises INVALID_NAME, UNKNOWN_GROUP."""
    return find_group(instance.stores.memberships, parse_group_name(group_name))


def put_document(
    instance: Instance, group_name: str, seen_version: int | None, document: GroupDocument, principal: str = ""
) -> GroupState:
    """The group with this document in place of the one of `seen_version`; None makes the group, as the principal's.

    One read and one conditional write. The first document also costs a query of the members, and the writes that make a
    group. Raises CONCURRENT_UPDATE if the group is of another version, UNKNOWN_GROUP if it is gone, GROUP_NOT_EMPTY if
    it has no document but live members of the service, INVALID_NAME, and as `create_group`.
    """
    window = UpdateWindow.open(instance.clock)
    group, memberships = parse_group_name(group_name), instance.stores.memberships
    if seen_version is None:
        if memberships.get_group(group) is not None:
            raise concurrent_update(f"group {group}")
        state = create_group(instance, window, principal, group, {})
        if state.document is not None:  # another gateway has made the group at the same time
            raise concurrent_update(f"group {group}")
    else:
        state = find_group(memberships, group)
        if state.version != seen_version:
            raise concurrent_update(f"group {group}")
    with errors_maybe_applied(has_begun=seen_version is None):  # the group is made then
        if state.document is None and (alive := live_members(memberships, instance.clock, group)):
            raise PenstockError(
                ErrorCode.GROUP_NOT_EMPTY,
                f"group {group} has {len(alive)} consumers, to which the service assigns: give the workers another "
                "group",
            )
        now_ms = instance.clock.now_ms()
        new = replace(
            state,
            version=state.version + 1,
            document=document,
            changed_at_ms=now_ms,
            empty_since_ms=None if document.member_count else (state.empty_since_ms or now_ms),
        )
        memberships.change_group(state, new)
    return new


def alter_group(instance: Instance, group_name: str, changes: Mapping[str, Any], principal: str = "") -> GroupState:
    """The group with the changed settings. None sets a setting back to its default.

    It is created if it does not exist, and counts as the principal's then.

    A new interval reaches each member with its next answer. A new assignor makes a new target at once. One read and
    one conditional write, or a rebalance. Raises INVALID_NAME, INVALID_CONFIG, CONCURRENT_UPDATE, and
    as `create_group`.
    """
    window, group = UpdateWindow.open(instance.clock), parse_group_name(group_name)
    state = instance.stores.memberships.get_group(group)
    if state is None:
        given = {name: value for name, value in changes.items() if value is not None}
        return create_group(instance, window, principal, group, given)
    config = alter_group_config(state.config, changes)
    if config == state.config:
        return state
    new = replace(state, version=state.version + 1, config=config)
    instance.stores.memberships.change_group(state, new)
    if config.assignor != state.config.assignor and state.epoch:
        with errors_maybe_applied():
            new, _ = rebalance(instance, group, is_forced=True)
    return new
