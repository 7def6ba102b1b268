"""The calls by which operators manage quotas. Every call is one request, unless its docs say more."""

from collections.abc import Mapping
from typing import Any

from penstock.answers import value_of
from penstock.api.calls import all_pages
from penstock.arguments import check, check_mapping, check_text
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.quota_model import Quota

_LIMITS_EXAMPLE = "{'produce_bytes_per_s': 10_000_000}"


def list_quotas() -> Calls[list[Quota]]:
    """All quotas, sorted by subject and name. One request per page."""
    return [_quota(each) for each in (yield from all_pages("/v1/quotas", "quotas"))]


def set_quota(subject: str, name: str, limits: Mapping[str, int]) -> Calls[Quota]:
    """Set all limits of one quota."""
    _check(subject, name)
    check_mapping("limits", limits, _LIMITS_EXAMPLE)
    body = {"subject": subject, "name": name, "limits": dict(limits)}
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
