"""The resources that a deployment would remove or make anew, by both templates.

A change set would tell the same, but a template of this size must be uploaded for one. A resource is made anew if a
property changes that CloudFormation sets only when it makes it. DescribeType tells these properties of each type.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from penstock.deployed.aws import Aws, aws_code
from penstock_core.errors import ErrorCode, PenstockError

# A release has new versions of functions each time, and old ones stay.
_LEFT_OUT = ("AWS::Lambda::Version", "AWS::CDK::Metadata")
_WITH_RECORDS = (
    "AWS::DynamoDB::Table",
    "AWS::DynamoDB::GlobalTable",
    "AWS::S3::Bucket",
    "AWS::S3Express::DirectoryBucket",
)
_POINTER = "/properties/"


class ResourceFate(StrEnum):
    """The effect of a deployment on a resource."""

    REMOVED = "removed"
    REPLACED = "made anew"
    UNKNOWN = "changed, and CloudFormation does not tell whether it is made anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """A resource that a deployment removes or makes anew. `why` names the properties."""

    logical_id: str
    type: str
    fate: ResourceFate
    why: str = ""

    @property
    def has_records(self) -> bool:
        """The stage would lose the records in it, or would no longer see them."""
        return self.type in _WITH_RECORDS

    def text(self) -> str:
        """The change, for people."""
        return f"{self.type} {self.logical_id} is {self.fate}{f' ({self.why})' if self.why else ''}"


def resource_changes(aws: Aws, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[ResourceChange]:
    """The changes from the deployed template to the new one. One DescribeType for each type that changes.

    A property that refers to a resource of another id counts as changed, so it finds too many rather than too few.
    """
    create_only = cache(lambda name: _create_only(aws, name))
    before, after = old.get("Resources", {}), new.get("Resources", {})
    for logical_id, resource in before.items():
        kind = resource["Type"]
        if kind in _LEFT_OUT:
            continue
        if logical_id not in after:
            yield ResourceChange(logical_id=logical_id, type=kind, fate=ResourceFate.REMOVED)
        elif after[logical_id]["Type"] != kind:
            yield ResourceChange(logical_id=logical_id, type=kind, fate=ResourceFate.REPLACED, why="another type")
        elif after[logical_id].get("Properties") != resource.get("Properties"):
            ours, theirs = resource.get("Properties", {}), after[logical_id].get("Properties", {})
            once = create_only(kind)
            changed = [path for path in once or () if _value(ours, path) != _value(theirs, path)]
            if once is None:
                yield ResourceChange(logical_id=logical_id, type=kind, fate=ResourceFate.UNKNOWN)
            elif changed:
                why = ", ".join(changed)
                yield ResourceChange(logical_id=logical_id, type=kind, fate=ResourceFate.REPLACED, why=why)


def _create_only(aws: Aws, kind: str) -> tuple[str, ...] | None:
    """The paths of the properties that are set once, None if the caller may not ask or AWS does not know the type.

    A type of the app itself (Custom::…) has a service token. Raises what else AWS refuses: botocore has tried a
    throttled call again by then.
    """
    if kind.startswith("Custom::") or kind == "AWS::CloudFormation::CustomResource":
        return ("ServiceToken",)
    try:
        told = aws.call("cloudformation", "describe_type", kind, Type="RESOURCE", TypeName=kind)
    except PenstockError as error:
        if error.code is ErrorCode.ACCESS_DENIED or aws_code(error) == "TypeNotFoundException":
            return None
        raise
    schema: dict[str, Any] = json.loads(told["Schema"])
    return tuple(path.removeprefix(_POINTER) for path in schema.get("createOnlyProperties", ()))


def _value(properties: Any, path: str) -> Any:
    value = properties
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
