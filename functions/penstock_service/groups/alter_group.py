"""Change a group's settings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock_core.groups.group import GroupState, alter_group_config
from penstock_core.ids import parse_group_name
from penstock_service.groups.rebalance import create_group, rebalance
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow


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
        new, _ = rebalance(instance, group, is_forced=True)
    return new
