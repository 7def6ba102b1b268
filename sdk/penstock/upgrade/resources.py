"""The resources that a deployment would remove or make anew, by both templates.

A change set would tell the same, but a template of this size must be uploaded for one. A resource is made anew if a
property changes that CloudFormation sets only when it makes it. DescribeType tells these properties of each type.

The versions of a stage's functions: which may go, and what they take of Lambda's storage.

Never removed are the newest ones, those that an alias names, the one before each of these, to which a rollback goes,
and those with provisioned concurrency. Lambda itself refuses to remove what an alias names.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from penstock.deployed.aws import Aws, aws_code
from penstock.deployed.stack import DeployedStack
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
_LATEST = "$LATEST"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionVersion:
    """A version of a function, and the bytes of its code."""

    function: str
    version: int
    code_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageVersions:
    """All versions of a stage's functions, and those of them that may go."""

    all: Sequence[FunctionVersion]
    removable: Sequence[FunctionVersion]


def find_versions(aws: Aws, stack: DeployedStack, keep: int) -> StageVersions:
    """The versions. Three lists of each function. `keep` are the newest of each function that stay."""
    found: list[FunctionVersion] = []
    removable: list[FunctionVersion] = []
    for function in stack.functions():
        if function.handler:
            versions = sorted(_versions(aws, function.name), key=lambda each: each.version)
            found += versions
            kept = _kept(versions, {*_named(aws, function.name)}, keep)
            removable += [each for each in versions if each.version not in kept]
    return StageVersions(all=found, removable=removable)


def remove(aws: Aws, version: FunctionVersion) -> None:
    """One DeleteFunction of the version. Without a version, it would delete the function."""
    on = {"FunctionName": version.function, "Qualifier": str(int(version.version))}
    aws.find("ResourceNotFoundException", "lambda", "delete_function", f"{version.function}:{version.version}", **on)


def _kept(versions: Sequence[FunctionVersion], named: set[int], keep: int) -> set[int]:
    numbers = [each.version for each in versions]
    before = {numbers[place - 1] for place, each in enumerate(numbers) if place and each in named}
    return {*numbers[-keep:], *named, *before}


def _versions(aws: Aws, function: str) -> Iterator[FunctionVersion]:
    listed = aws.pages(
        "Versions", "lambda", "list_versions_by_function", function, cursor="NextMarker", FunctionName=function
    )
    for each in listed:
        if each["Version"] != _LATEST:
            yield FunctionVersion(function=function, version=int(each["Version"]), code_bytes=each["CodeSize"])


def _named(aws: Aws, function: str) -> Iterator[int]:
    """The versions that an alias sends requests to, or that have instances of their own."""
    on = {"FunctionName": function}
    told: list[str] = []
    for alias in aws.pages("Aliases", "lambda", "list_aliases", function, cursor="NextMarker", **on):
        told += [alias["FunctionVersion"], *alias.get("RoutingConfig", {}).get("AdditionalVersionWeights", {})]
    configs = aws.pages(
        "ProvisionedConcurrencyConfigs",
        "lambda",
        "list_provisioned_concurrency_configs",
        function,
        cursor="NextMarker",
        **on,
    )
    try:
        told += [each["FunctionArn"].rpartition(":")[2] for each in configs]
    except PenstockError as error:
        if aws_code(error) != "ProvisionedConcurrencyConfigNotFoundException":  # the emulator's way to say: none
            raise
    yield from (int(each) for each in told if each.isdigit())  # not $LATEST, and not an alias, which was named above
