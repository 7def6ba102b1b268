"""Quotas for operators: list, set, delete. All instances go by a change within `quota_cache.TTL_MS`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.quotas.quota import Quota, parse_quota
from penstock_service.instance.instance import Instance


def list_quotas(instance: Instance, limit: int, after: str) -> tuple[Sequence[Quota], str | None]:
    """At most `limit` quotas behind the place `after`, and the place of the last if there are more. One query."""
    behind = [quota for quota in instance.stores.quotas.list() if place_of(quota) > after]
    page = behind[:limit]
    return page, place_of(page[-1]) if len(behind) > limit else None


def place_of(quota: Quota) -> str:
    """The quota's place in the list."""
    return f"{quota.subject}#{quota.name}"


def put_quota(
    instance: Instance,
    subject: str,
    name: str,
    limits: Mapping[str, Any],
    *,
    is_shared: bool = False,
    declared_by: str = "",
    over: str = "",
) -> Quota:
    """Stores a quota in place of the one of that subject and name. One query and one put.

    `declared_by` is the resource of a template that sets it. With `over`, it takes the place of those alone whose
    `declared_by` begins so, and raises INVALID_REQUEST for another one. Raises INVALID_CONFIG, INVALID_NAME and
    TOO_MANY_QUOTAS.
    """
    quota = replace(parse_quota(subject, name, limits, is_shared=is_shared), declared_by=declared_by)
    if not quota.to_json():
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"limits={shown(dict(limits))}: give at least one limit, or delete the quota"
        )
    if not instance.stores.quotas.put(quota, over):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{subject} {shown(quota.name)} has a quota that this stack has not set: delete it first, by "
            f"`penstock quotas delete {subject} {shown(quota.name)}`, or leave it out of the template",
        )
    instance.quota_cache.forget()
    return quota


def delete_quota(instance: Instance, subject: str, name: str) -> None:
    """Removes a quota. One delete. Raises INVALID_CONFIG, INVALID_NAME, and UNKNOWN_QUOTA if there is none."""
    quota = parse_quota(subject, name, {})
    if not instance.stores.quotas.delete(quota.subject, quota.name):
        raise PenstockError(
            ErrorCode.UNKNOWN_QUOTA, f"{subject} {shown(name)} has no quota of its own: list the quotas to see which do"
        )
    instance.quota_cache.forget()


def delete_declared_quota(instance: Instance, subject: str, name: str, declared_by: str) -> bool:
    """Removes a quota that this resource of a template has set last. False if somebody else has. One delete."""
    quota = parse_quota(subject, name, {})
    done = instance.stores.quotas.delete(quota.subject, quota.name, declared_by)
    instance.quota_cache.forget()
    return done
