"""The outputs of a CloudFormation stack, by which commands and jobs find a Penstock.

The stack of `app.py` has `ApiUrl`. In a stack of your own, the ids of the construct stand before it: `QueueApiUrl`. You
name that one as `Shop/Queue`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class StackPlace(NamedTuple):
    """A stack, and the ids of the construct in it, which begin the names of its outputs."""

    stack: str
    prefix: str


def parse_stack_place(text: str) -> StackPlace:
    """The place that `Penstock` or `Shop/Queue` names. Slashes between ids, as the CDK writes them, are left out."""
    stack, _, ids = text.partition("/")
    return StackPlace(stack, "".join(each for each in ids if each.isalnum()))


def outputs_of(description: Mapping[str, Any], place: StackPlace) -> dict[str, str]:
    """The outputs of the place by their own names. `description` is the stack as DescribeStacks answers it."""
    return {
        output["OutputKey"].removeprefix(place.prefix): output["OutputValue"]
        for output in description.get("Outputs", ())
        if output["OutputKey"].startswith(place.prefix)
    }
