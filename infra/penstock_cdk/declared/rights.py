"""Rights on topics and share groups: statements that name them in the routes' paths, if IAM sees them.

IAM sees the path of a request and not its body. POST /v1/produce and POST /v1/fetch carry topics in their bodies, and
GET /v1/metadata names one in its query. A grantee of one topic may call these three for every topic. `json_only` leaves
out the first two. docs/how-to/cdk.md has the table.

The access rules that grants write: a custom resource for each rule, so that two grants may share one. An app may also
declare rules and quotas of principals outside of it.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from aws_cdk import RemovalPolicy, Stack, Token
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.declared.provision import Provision
from penstock_cdk.principals import principal_name
from penstock_cdk.service.api import Api
from penstock_cdk.service.direct import ALL_FUNCTIONS, DirectCalls
from penstock_cdk.service.wake_ups import WakeUps
from penstock_cdk.wildcards import acknowledge_wildcard
from penstock_core.acls.rule import ALLOW, parse_rule
from penstock_core.errors import PenstockError
from penstock_core.ids import AUDIT_TOPIC, parse_group_name
from penstock_core.quotas.quota import parse_quota
from penstock_core.routes import ADMIN, CONSUME, PRODUCE, ROUTES, Route

_JSON = ("metadata", "topics")
_ID_LENGTH = 12
_ANY_ROLE = "arn:aws:iam::111122223333:role/any"


def _routes(policy: str, *nouns: str) -> tuple[Route, ...]:
    """The routes of the policy below `/v1/<noun>`."""
    return tuple(route for route in ROUTES if policy in route.policies and route.segments[2] in nouns)


class AccessRules:
    """Writes rules. `room` answers the scope of the resources, and what makes them."""

    def __init__(self, room: Callable[[], tuple[Construct, Provision]]) -> None:
        self._room = room

    def allow(self, grantee: iam.IGrantable | str, operation: str, *resources: str, permission: str = ALLOW) -> None:
        """Allows the operation on these resources, or denies it. A rule goes with the resource that has made it.

        Raises ValueError for a rule that the service would refuse.
        """
        scope, provision = self._room()
        principal = principal_name(grantee)
        for resource in resources:
            _check(partial(parse_rule, _known(principal), operation, resource, permission))
            denies = {} if permission == ALLOW else {"permission": permission}
            place = f"{_place_of(grantee, principal)} {operation} {resource}{''.join(denies.values())}"
            construct_id = _id_of(place)
            if scope.node.try_find_child(construct_id) is None:
                rule = {"principal": principal, "operation": operation, "resource": resource, **denies}
                properties = {"Rules": Stack.of(scope).to_json_string([rule])}
                provision.resource(Construct(scope, construct_id), "Acls", properties, RemovalPolicy.DESTROY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Sets quotas. `room` is as that of the rules."""

    room: Callable[[], tuple[Construct, Provision]]

    def put(self, subject: str, of: iam.IGrantable | str, limits: Mapping[str, int], *, is_shared: bool) -> None:
        """Sets the quota of a principal, a topic, or a pattern of names. It goes with the resource that has made it.

        Raises ValueError for a quota that the service would refuse, and for a second one of the name.
        """
        scope, provision = self.room()
        name = principal_name(of)
        _check(partial(parse_quota, subject, _known(name), limits, is_shared=is_shared))
        if not limits:
            raise ValueError(f"the quota of {subject} {name} has no limit: give one, such as produce_bytes_per_s")
        construct_id = _id_of(f"{subject} {_place_of(of, name)}")
        if scope.node.try_find_child(construct_id) is not None:
            raise ValueError(f"{subject} {name} has a quota in this app already: give it all limits at once")
        properties = {
            "Subject": subject,
            "Name": name,
            "Limits": Stack.of(scope).to_json_string(dict(limits)),
            "Shared": "true" if is_shared else "false",
        }
        provision.resource(Construct(scope, construct_id), "Quota", properties, RemovalPolicy.DESTROY)


def _check(parse: Callable[[], object]) -> None:
    try:
        parse()
    except PenstockError as error:
        raise ValueError(error.message) from error


def _known(name: str) -> str:
    """The name, or where the template knows it only when it is deployed another one that is right."""
    return _ANY_ROLE if Token.is_unresolved(name) else name


def _id_of(place: str) -> str:
    return hashlib.sha256(place.encode()).hexdigest()[:_ID_LENGTH]


def _place_of(grantee: iam.IGrantable | str, principal: str) -> str:
    """The path of the role or user in the app: the same in each synthesis, which a token is not."""
    if isinstance(grantee, str):
        return grantee
    found = grantee.grant_principal
    return found.node.path if isinstance(found, Construct) else principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """Grants what a principal may do with one Penstock.

    Where the stage takes direct calls (`direct`), a grant also allows to invoke functions, where it widens nothing.
    A grantee may call `produce` and `fetch` for every topic by HTTP, too. For `groups` and `share`, access rules must
    narrow it: they do so where the stage `denies` by default.
    """

    api: Api
    wake_ups: WakeUps
    rules: AccessRules
    direct: DirectCalls | None
    denies: bool

    def produce(self, grantee: iam.IGrantable, topic: str, *, json_only: bool) -> iam.Grant:
        """Allows to produce to the topic, and to list and cancel its delayed records."""
        binary = () if json_only else ("produce",)
        self.rules.allow(grantee, "write", f"topic:{topic}")
        grant = self._call(grantee, _routes(PRODUCE, *_JSON, *binary), topic=topic)
        return grant if json_only else self._with_direct(grant, grantee, PRODUCE, "produce")

    def consume(self, grantee: iam.IGrantable, topic: str, *, group: str | None, json_only: bool) -> iam.Grant:
        """Allows to read the topic, to work in the group, and to be woken by appends.

        Raises ValueError for what is no group name, such as `*`, which would be every group.
        """
        if group is not None:
            _check(partial(parse_group_name, group))
        binary = () if json_only else ("fetch", "wake-ups")
        self.rules.allow(grantee, "read", f"topic:{topic}", *([] if group is None else [f"group:{group}"]))
        grant = self._call(grantee, _routes(CONSUME, *_JSON, *binary), topic=topic)
        if group is not None:
            grant = grant.combine(self._call(grantee, _routes(CONSUME, "groups"), group=group))
        if json_only:
            return grant
        ruled = ("groups",) if self.denies and group is not None else ()
        return self._with_direct(grant, grantee, CONSUME, "fetch", *ruled).combine(self._be_woken(grantee))

    def share(self, grantee: iam.IGrantable, group: str, topics: Iterable[str]) -> iam.Grant:
        """Allows to acquire and acknowledge records of the share group, and to be woken by appends."""
        self.rules.allow(grantee, "read", f"share_group:{group}", *(f"topic:{topic}" for topic in topics))
        allowed = _routes(CONSUME, "metadata", "share-groups", "wake-ups")  # metadata tells the functions to invoke
        grant = self._call(grantee, allowed, group=group)
        if self.denies:
            grant = self._with_direct(grant, grantee, CONSUME, "share")
        return grant.combine(self._be_woken(grantee))

    def everything(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allows every route, the audit trail, and all wake-ups."""
        self.rules.allow(grantee, "all", "*")
        self.rules.allow(grantee, "read", f"topic:{AUDIT_TOPIC}")  # which no pattern gives
        resources = self.api.all_routes_arns()
        reason = "An administrator may call every route."
        grant = _granted(grantee, ["execute-api:Invoke"], resources, reason)
        return self._with_direct(grant, grantee, ADMIN, *ALL_FUNCTIONS).combine(self._be_woken(grantee))

    def _call(self, grantee: iam.IGrantable, allowed: Iterable[Route], **names: str) -> iam.Grant:
        resources = [self.api.route_arn(route, **names) for route in allowed]
        return _granted(grantee, ["execute-api:Invoke"], resources, "The rest of the path is below one that is named.")

    def _with_direct(self, grant: iam.Grant, grantee: iam.IGrantable, job: str, *functions: str) -> iam.Grant:
        """The grant, and the right to invoke the job's alias of these functions where the stage takes direct calls."""
        if self.direct is None:
            return grant
        allowed = self.direct.invoke_statement(job, functions)
        return grant.combine(
            iam.Grant.add_to_principal(
                grantee=grantee, actions=allowed.actions, resource_arns=sorted(allowed.resources)
            )
        )

    def _be_woken(self, grantee: iam.IGrantable) -> iam.Grant:
        grants = [
            iam.Grant.add_to_principal(grantee=grantee, actions=each.actions, resource_arns=each.resources)
            for each in self.wake_ups.receive_statements()
        ]
        return grants[0].combine(grants[1])


def _granted(grantee: iam.IGrantable, actions: Sequence[str], resources: Sequence[str], reason: str) -> iam.Grant:
    """Adds a statement to the principal's policy, and tells cdk-nag why a resource ends with a wildcard."""
    principal = grantee.grant_principal
    if isinstance(principal, Construct):
        for resource in (resource for resource in resources if "*" in resource):
            acknowledge_wildcard(principal, resource, reason)
    return iam.Grant.add_to_principal(grantee=grantee, actions=list(actions), resource_arns=list(resources))
