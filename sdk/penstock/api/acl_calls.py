"""The calls by which operators manage access rules. Every call is one request, unless its docs say more."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from penstock.api.calls import all_pages
from penstock.arguments import check, check_mapping, check_text, checked_name
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.model.access import AccessChange, AccessDecision, AccessRule, Quota
from penstock.model.fields import value_of
from penstock_core.acls.rule import parse_rule
from penstock_core.limits import ACL_CHANGES_MAX

_PATH = "/v1/acls"
_LIMITS_EXAMPLE = "{'produce_bytes_per_s': 10_000_000}"


def list_acls(principal: str | None, resource: str | None) -> Calls[list[AccessRule]]:
    """All rules by resource, or those with these very texts. One request per page."""
    query = {name: value for name, value in (("principal", principal), ("resource", resource)) if value is not None}
    return [value_of(AccessRule, each) for each in (yield from all_pages(_PATH, "acls", query))]


def change_acls(add: Iterable[AccessRule], remove: Iterable[AccessRule]) -> Calls[AccessChange]:
    """Add some rules and remove others, all or none. Raises InvalidError for a bad rule before it sends anything."""
    added, removed = [*map(_checked, add)], [*map(_checked, remove)]
    check(
        1 <= len(added) + len(removed) <= ACL_CHANGES_MAX,
        f"{len(added) + len(removed)} rules in one change: give 1 to {ACL_CHANGES_MAX}",
    )
    answer = yield json_request("POST", _PATH, body={"add": added, "remove": removed}, is_repeatable=True)
    return AccessChange(added=_rules(answer["added"]), removed=_rules(answer["removed"]))


def check_acl(operation: str, resource: str, principal: str | None) -> Calls[AccessDecision]:
    """The decision of the rules, for a principal, or for the caller (None)."""
    body = {"operation": operation, "resource": resource, "principal": principal}
    return value_of(AccessDecision, (yield json_request("POST", f"{_PATH}/check", body=body, is_repeatable=True)))


def _checked(rule: AccessRule) -> dict[str, str]:
    check(isinstance(rule, AccessRule), f"{rule!r:.200} is no AccessRule")
    parts = asdict(rule)
    checked_name(lambda _: parse_rule(**parts).place, rule.resource)
    return parts


def _rules(answer: Iterable[Mapping[str, Any]]) -> tuple[AccessRule, ...]:
    return tuple(value_of(AccessRule, each) for each in answer)


def list_quotas() -> Calls[list[Quota]]:
    """All quotas, sorted by subject and name. One request per page."""
    return [_quota(each) for each in (yield from all_pages("/v1/quotas", "quotas"))]


def set_quota(subject: str, name: str, limits: Mapping[str, int], *, shared: bool = False) -> Calls[Quota]:
    """Set all limits of one quota. An older service takes no `shared`, so only a shared quota says so."""
    _check(subject, name)
    check_mapping("limits", limits, _LIMITS_EXAMPLE)
    body = {"subject": subject, "name": name, "limits": dict(limits), **({"shared": True} if shared else {})}
    return _quota((yield json_request("PUT", "/v1/quotas", body=body, is_repeatable=True)))


def delete_quota(subject: str, name: str) -> Calls[None]:
    """Delete one quota."""
    _check(subject, name)
    query = {"subject": subject, "name": name}
    yield json_request("DELETE", "/v1/quotas", query)


def _check(subject: str, name: str) -> None:
    check(subject in ("principal", "topic"), f"subject={subject!r:.100}: quotas are of a 'principal' or a 'topic'")
    check_text("name", name)


def _quota(answer: Mapping[str, Any]) -> Quota:
    return value_of(Quota, answer)
