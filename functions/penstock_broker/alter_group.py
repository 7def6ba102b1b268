"""Change a group's settings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock_broker.broker import Broker
from penstock_broker.rebalance import create_group, rebalance
from penstock_core.group import GroupState, alter_group_config
from penstock_core.ids import parse_group_name


def alter_group(broker: Broker, group_name: str, changes: Mapping[str, Any]) -> GroupState:
    """The group with the changed settings; made if there is none yet. None sets a setting back to its default.

    A member hears of another interval with its next answer. Another assignor makes a new target at once. One read
    and one conditional put, or a rebalance. Raises INVALID_NAME, INVALID_CONFIG, CONCURRENT_UPDATE.
    """
    group = parse_group_name(group_name)
    state = broker.memberships.get_group(group)
    if state is None:
        return create_group(broker, group, {name: value for name, value in changes.items() if value is not None})
    config = alter_group_config(state.config, changes)
    if config == state.config:
        return state
    new = replace(state, version=state.version + 1, config=config)
    broker.memberships.change_group(state, new)
    if config.assignor != state.config.assignor and state.epoch:
        new, _ = rebalance(broker, group, is_forced=True)
    return new
