"""The properties of the construct, and how they change the settings of a stage."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict

from aws_cdk import Duration, RemovalPolicy, Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from penstock_cdk.principals import principal_name
from penstock_cdk.settings import AclDefault, Canary, Metrics, StageSettings, check_name
from penstock_cdk.storage_profile import Profile
from penstock_cdk.walls import Jwt, reserved_concurrency

_READABLE_LENGTH_MAX = 32
_HASH_LENGTH = 6


class Properties(TypedDict, total=False):
    """The properties of a Penstock. Each property has the default of `StageSettings`, or that of `settings`.

    `name` begins every physical name and is the dimension of the metrics; by default it is made of the stack's name,
    the construct's id and a hash. `storage_profile` decides about zones (storage_profile.py); by default it is that of
    the stack's region. Never change name or profile of a Penstock that holds data.

    Appends of up to `inline_bytes_max` bytes become items of the log table (docs/adr/0064), with None, the default,
    those that cost less so.

    `log_retention` is for the logs of functions and jobs, and `audit_log_retention` for the access log of the API.
    `topic_retention` is for the topics that you declare without `retention_ms`.
    `removal_policy` says what happens to tables and buckets that CloudFormation removes: RETAIN or DESTROY. By default
    they stay. `alarms` makes the alarms, which cost $0.10 a month each, and `alarm_topic` is the SNS topic that they
    tell. `metrics` is `off`, `topics` or `all`, or a `Metrics` with the numbers of series and a dashboard
    (docs/performance/costs.md has the prices). With `canary`, a new version of a function takes some percent of the
    requests first; the default is none. `account_concurrency` reserves instances of an account that has so many
    (docs/how-to/deploy.md). `emr_release` is that of the application for Spark jobs; with None there is no application,
    and the jobs run on Glue only. `tags` are on every resource.
    `acl_default` is `allow` or `deny`, for what no access rule is about; the default is `deny`. Grants write rules.
    `super_principals` are roles, users or ARNs that may do everything, such as make rules (docs/how-to/acls.md).
    `jwt` adds an API for callers with tokens (docs/how-to/jwt.md).
    `direct` lets clients invoke the functions by Lambda's API, too (docs/how-to/transports.md).
    `kms_key` is a key of yours that encrypts tables, buckets, queues and logs (docs/how-to/encrypt.md).
    """

    name: str
    storage_profile: Profile
    inline_bytes_max: int | None
    log_retention: logs.RetentionDays
    audit_log_retention: logs.RetentionDays
    topic_retention: Duration
    removal_policy: RemovalPolicy
    alarms: bool
    alarm_topic: sns.ITopic
    metrics: Literal["off", "topics", "all"] | Metrics
    canary: Canary | None
    account_concurrency: int
    emr_release: str | None
    tags: Mapping[str, str]
    super_principals: Sequence[iam.IGrantable | str]
    acl_default: AclDefault
    jwt: Jwt | None
    direct: bool
    kms_key: kms.IKey


def settings_of_properties(scope: Construct, settings: StageSettings | None, properties: Properties) -> StageSettings:
    """Returns the settings of the Penstock `scope`: those of `settings`, or the defaults, changed by the properties.

    The region is that of the stack, where the stack knows it. Raises ValueError for a wrong name, for a profile or a
    release of EMR that the region cannot have, and if there is neither a region nor a profile. Raises TypeError for an
    unknown property.
    """
    for unknown in properties.keys() - _CHANGES.keys():
        raise TypeError(f"Penstock has no property {unknown!r}: give one of {', '.join(_CHANGES)}")
    changed = settings or StageSettings(name=default_name(scope))
    region = Stack.of(scope).region
    if not Token.is_unresolved(region):
        changed = replace(changed, region=region)
    given: Mapping[str, Any] = {**properties}
    for name, change in _CHANGES.items():  # the account goes before what excludes reserves
        if name in given:
            changed = change(changed, given[name])
    check_name(changed.name)
    changed.check_region()
    return changed


def default_name(scope: Construct) -> str:
    """Returns a name that no other construct of the account and region has: `<stack>-<ids>-<hash>`."""
    stack = Stack.of(scope)
    while stack.nested_stack_parent is not None:
        stack = stack.nested_stack_parent
    place = f"{stack.stack_name}/{scope.node.path}"
    ids = scope.node.path.removeprefix(stack.node.path).removesuffix("/Default")
    readable = re.sub(r"[^a-z0-9]+", "-", f"{stack.stack_name}{ids}".lower())[:_READABLE_LENGTH_MAX].strip("-")
    return f"{readable}-{hashlib.sha256(place.encode()).hexdigest()[:_HASH_LENGTH]}"


def _account(settings: StageSettings, account: int) -> StageSettings:
    return replace(settings, account_concurrency=account, reserved_concurrency=reserved_concurrency(account))


_CHANGES: Mapping[str, Callable[[StageSettings, Any], StageSettings]] = {
    "name": lambda settings, name: replace(settings, name=name),
    "storage_profile": lambda settings, profile: replace(settings, storage_profile=profile),
    "inline_bytes_max": lambda settings, bytes_max: replace(settings, inline_bytes_max=bytes_max),
    "log_retention": lambda settings, days: replace(settings, log_retention=days.name),
    "audit_log_retention": lambda settings, days: replace(settings, audit_log_retention=days.name),
    "topic_retention": lambda settings, time: replace(settings, topic_retention_ms=round(time.to_milliseconds())),
    "removal_policy": lambda settings, policy: replace(settings, keeps_data_on_delete=policy != RemovalPolicy.DESTROY),
    "alarms": lambda settings, has_alarms: replace(settings, has_alarms=has_alarms),
    "alarm_topic": lambda settings, topic: replace(settings, alarm_topic_arn=topic.topic_arn),
    "metrics": lambda settings, metrics: replace(
        settings, metrics=metrics if isinstance(metrics, Metrics) else Metrics(of=metrics)
    ),
    "canary": lambda settings, canary: replace(settings, canary=canary),
    "account_concurrency": _account,
    "emr_release": lambda settings, release: replace(settings, emr_release=release),
    "tags": lambda settings, tags: replace(settings, tags=tags),
    "super_principals": lambda settings, given: replace(settings, super_principals=tuple(map(principal_name, given))),
    "acl_default": lambda settings, default: replace(settings, acl_default=default),
    "jwt": lambda settings, jwt: replace(settings, jwt=jwt),
    "direct": lambda settings, is_on: replace(settings, direct=is_on),
    "kms_key": lambda settings, key: replace(settings, kms_key=key.key_arn),
}
