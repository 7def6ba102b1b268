"""Quotas as an operator sets them: what a principal or a topic may send and read in a second.

A quota is the default of all principals or of all topics, or it is that of one. Of a missing limit there is no bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock_core.acls.rule import parse_principal_pattern
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import parse_topic_name
from penstock_core.limits import QUOTA_RATE_MAX, QUOTAS_MAX

DEFAULT = "*"  # the name of the quota of all that have none of their own


class Subject(StrEnum):
    """The two kinds of things that have quotas."""

    PRINCIPAL = "principal"
    TOPIC = "topic"


class Rate(StrEnum):
    """The limits that are rates, in units a second."""

    PRODUCE_BYTES = "produce_bytes_per_s"
    PRODUCE_REQUESTS = "produce_requests_per_s"
    FETCH_BYTES = "fetch_bytes_per_s"
    FETCH_REQUESTS = "fetch_requests_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of one principal or topic, or the defaults."""

    subject: Subject
    name: str
    rates: Mapping[Rate, int] = field(default_factory=dict)

    @property
    def is_default(self) -> bool:
        """True for the quota of all that have none of their own."""
        return self.name == DEFAULT

    def to_json(self) -> dict[str, int]:
        """The limits as the API writes them, without those that are missing."""
        return {str(rate): value for rate, value in self.rates.items()}


def parse_quota(subject: str, name: str, limits: Mapping[str, Any]) -> Quota:
    """A quota from what a caller sent. Null stands for a limit that is taken away.

    Raises INVALID_CONFIG for an unknown subject or limit, and for a value out of its bounds. Raises INVALID_NAME for
    the name of a topic that no topic can have.
    """
    kind = _subject(subject)
    rates: dict[Rate, int] = {}
    for limit, value in limits.items():
        rate = _rate(limit)
        if value is not None:
            rates[rate] = _checked(limit, value)
    return Quota(subject=kind, name=_name(kind, name), rates=rates)


def merged(default: Quota | None, own: Quota | None, rate: Rate) -> int | None:
    """The rate that holds: the own one, else the default, else None."""
    for quota in (own, default):
        if quota is not None and rate in quota.rates:
            return quota.rates[rate]
    return None


def too_many_quotas() -> PenstockError:
    """The error for one quota too many."""
    return PenstockError(
        ErrorCode.TOO_MANY_QUOTAS,
        f"the stage has {QUOTAS_MAX} quotas, and may have no more: delete some, or let a default hold",
        limit=QUOTAS_MAX,
    )


def _subject(text: str) -> Subject:
    try:
        return Subject(text)
    except ValueError:
        known = " or ".join(map(repr, map(str, Subject)))
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"subject {shown(text)}: quotas are of a {known}") from None


def _name(kind: Subject, name: str) -> str:
    if name == DEFAULT:
        return name
    if kind is Subject.TOPIC:
        return parse_topic_name(name)
    try:
        pattern = parse_principal_pattern(name)  # a session counts as its role, and a role has no path here
    except PenstockError as error:
        raise PenstockError(ErrorCode.INVALID_NAME, error.message) from error
    if pattern.is_prefix or " " in name:
        raise PenstockError(
            ErrorCode.INVALID_NAME,
            f"principal {shown(name)}: name one, for example arn:aws:iam::111122223333:role/ledger, or * for the "
            "default of all",
        )
    return pattern.text


def _rate(text: str) -> Rate:
    try:
        return Rate(text)
    except ValueError:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"limit {shown(text)}: a quota has {', '.join(map(str, Rate))}"
        ) from None


def _checked(limit: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= QUOTA_RATE_MAX:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"{limit}={shown(value)}: must be a whole number from 1 to {QUOTA_RATE_MAX}, or null for no limit",
        )
    return value
