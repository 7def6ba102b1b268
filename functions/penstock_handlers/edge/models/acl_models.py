"""The requests and answers about access rules, from which the OpenAPI document is made.

The requests and answers about quotas, from which the OpenAPI document is made.
"""

from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from penstock_core.acls.rule import Rule
from penstock_core.limits import ACL_CHANGES_MAX, PRINCIPAL_LENGTH_MAX
from penstock_core.quotas.quota import DEFAULT
from penstock_handlers.edge.models.request_models import JsonRequest


class AclRuleJson(JsonRequest):
    """An access rule. `operation` may be `all`. A `*` ends the beginning of names; alone it stands for everything."""

    principal: str
    operation: str
    resource: str
    permission: Literal["allow", "deny"] = "allow"


class ChangeAcls(JsonRequest):
    """Rules to add and rules to remove, 1 to 100 of them together."""

    add: list[AclRuleJson] = Field(default_factory=list, max_length=ACL_CHANGES_MAX)
    remove: list[AclRuleJson] = Field(default_factory=list, max_length=ACL_CHANGES_MAX)


class CheckAcl(JsonRequest):
    """A right on one resource, and the principal that may have it; null is the caller."""

    principal: str | None = None
    operation: str
    resource: str


class AclRule(TypedDict):
    """An access rule. A session of a role counts as its role, without a path."""

    principal: str
    operation: str
    resource: str
    permission: str


class AclList(TypedDict):
    """One page of access rules; the next starts behind `next_after`."""

    acls: list[AclRule]
    next_after: str | None


class AclChanges(TypedDict):
    """The rules that the call has added and removed. Rules that were there before, or were not, are missing."""

    added: list[AclRule]
    removed: list[AclRule]


class AclDecision(TypedDict):
    """The decision about a right, and its cause: a rule, the stage's default, or its super principals."""

    principal: str
    operation: str
    resource: str
    is_allowed: bool
    reason: str


def rule_answer(rule: Rule) -> AclRule:
    """The rule as an answer shows it."""
    parts = rule.to_json()
    return {
        "principal": parts["principal"],
        "operation": parts["operation"],
        "resource": parts["resource"],
        "permission": parts["permission"],
    }


class PutQuota(JsonRequest):
    """The limits of one principal or topic, or of all whose names match a pattern that ends in `*`.

    Each that matches has these limits for itself; with `shared` all of them have them together. The name `*` stands for
    all that no other quota is about.
    """

    subject: Literal["principal", "topic"]
    name: str = Field(default=DEFAULT, max_length=PRINCIPAL_LENGTH_MAX)
    limits: dict[str, int | None]
    shared: bool = False


class QuotaAnswer(TypedDict):
    """The limits of one principal or topic, or of a pattern. There is no bound for a limit that is missing."""

    subject: str
    name: str
    limits: dict[str, int]
    shared: bool


class QuotaList(TypedDict):
    """Quotas by subject and name, and the `after` of the next page, null behind the last."""

    quotas: list[QuotaAnswer]
    next_after: str | None
