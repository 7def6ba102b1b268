"""The versions of a stage's functions: which may go, and what they take of Lambda's storage.

Never removed are the newest ones, those that an alias names, the one before each of these, to which a rollback goes,
and those with provisioned concurrency. Lambda itself refuses to remove what an alias names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.deployed.aws import Aws, aws_code
from penstock.deployed.stack import DeployedStack
from penstock_core.errors import PenstockError

_LATEST = "$LATEST"


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
