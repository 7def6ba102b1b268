"""The outputs of a CloudFormation stack, by which commands and jobs find a Penstock.

The stack of `app.py` has `ApiUrl`. In a stack of your own, the ids of the construct come before it: `QueueApiUrl`. You
name that one as `Shop/Queue`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock_core.acls.tokens import DEFAULT_VARIABLE, SUPER_VARIABLE
from penstock_core.log.inline import VARIABLE as INLINE_VARIABLE

# The variable of functions and jobs that names a part of the storage, or decides about rights without rules -> the
# output that has its value.
STORAGE_OUTPUTS: Mapping[str, str] = {
    "PENSTOCK_TOPICS_TABLE": "TopicsTable",
    "PENSTOCK_LOG_TABLE": "LogTable",
    "PENSTOCK_GROUPS_TABLE": "GroupsTable",
    "PENSTOCK_ZONES": "ZoneBuckets",
    "PENSTOCK_ARCHIVE": "ArchiveBucket",
    INLINE_VARIABLE: "InlineBytesMax",
    "PENSTOCK_REPAIR_QUEUE_URL": "RepairQueueUrl",
    "PENSTOCK_WAKE_UPS": "WakeUpHosts",
    "PENSTOCK_TIMERS": "TimerPlaces",
    "PENSTOCK_RESULTS": "ResultsBucket",
    "PENSTOCK_CATALOG": "Catalog",
    DEFAULT_VARIABLE: "AclDefault",
    SUPER_VARIABLE: "SuperPrincipals",
}

FUNCTIONS_VARIABLE = "PENSTOCK_FUNCTIONS"
FUNCTIONS_OUTPUT = "FunctionsArn"  # of a stage that takes direct calls


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


def storage_variables(outputs: Mapping[str, str]) -> dict[str, str]:
    """The variables that name the storage of a stack with these outputs. A stage lacks some of them."""
    return {variable: outputs[output] for variable, output in STORAGE_OUTPUTS.items() if output in outputs}
