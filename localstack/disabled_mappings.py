"""Lets a mapping that CloudFormation makes disabled say so. MiniStack says that it is enabled, and polls nothing.

The service enables the mappings of a stage at the first delayed record and at the first subscription. It looks at their
state first, and would leave such a mapping as it is. This module imports nothing of Penstock, because MiniStack's
Python runs it.
"""

from collections.abc import Callable, MutableMapping
from types import ModuleType
from typing import Any

MAPPING = "AWS::Lambda::EventSourceMapping"

Handlers = MutableMapping[str, dict[str, Callable[..., Any]]]


def tell_disabled_mappings(handlers: Handlers, functions: ModuleType | Any) -> None:
    """Changes the handler in MiniStack's table of CloudFormation types. `functions` is its module of Lambda."""
    own = handlers[MAPPING]["create"]

    def create(logical_id: str, props: dict[str, Any], stack_name: str) -> Any:
        made = own(logical_id, props, stack_name)
        mapping = functions._esms[made[0]]
        mapping["State"] = "Enabled" if mapping["Enabled"] else "Disabled"
        return made

    handlers[MAPPING] = {**handlers[MAPPING], "create": create}
