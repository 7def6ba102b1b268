"""The powers of every role in a template, and the only roles that may hold each.

A power is a verb on a place, such as `delete` on the log table. It has the same form on every stage, whether the zones
are ordinary buckets or directory buckets. `HOLDERS` names the roles that may hold each power. A permission that is no
power of this table is forbidden to every role.

A function of several handlers or tasks may hold what one of them holds. `HOLDERS` names those, not the function.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock_core.storage import keys
from tests.infra.conftest import Resources
from tests.infra.templates import as_list, name_of, policies_of_roles

FUNCTIONS = frozenset((
    "Produce", "RecordsProduce", "Transactions", "Fetch", "RecordsFetch", "Topics", "Groups", "GroupAdmin", "Share",
    "ShareAdmin", "Subscriptions", "Schedules", "Quotas", "Zones", "Acls", "Redrive", "Mirrors",
    "RecoverZones", "Replicate", "Scrub", "Retention", "Sweep", "Tier", "Clean", "Promote", "Dispatch",
    "Deliver", "LookAtSubscriptions", "Measure", "Audit",
))  # fmt: skip
_LOOK = "LookAtSubscriptions"
_OF_NO_REQUEST = frozenset((
    "RecoverZones", "Replicate", "Scrub", "Retention", "Sweep", "Tier", "Clean", "Promote", "Dispatch", "Deliver",
    _LOOK, "Measure", "Audit",
))  # fmt: skip
_PARTS = {
    "Admin": (
        "Topics",
        "GroupAdmin",
        "ShareAdmin",
        "Subscriptions",
        "Schedules",
        "Quotas",
        "Zones",
        "Acls",
        "Redrive",
        "Mirrors",
    ),
    "Produce": ("Produce", "RecordsProduce"),
    "Fetch": ("Fetch", "RecordsFetch"),
    "Upkeep": ("RecoverZones", "Measure", "Audit", "LookAtSubscriptions", "Retention"),
    "Hourly": ("Scrub", "Tier", "Clean"),
}
JOBS = frozenset(("AnalyzeJob", "ArchiveJob", "CompactJob", "ReplayJob", "SweepJob"))
_ALL = FUNCTIONS | JOBS
# Deliver moves dead letters, and copies records to other topics.
_PRODUCERS = frozenset(
    (
        "Produce",
        "RecordsProduce",
        "Transactions",
        "Share",
        "Redrive",
        "Deliver",
        "ReplayJob",
        "Audit",
        "Promote",
        "Mirrors",
    )
)
_SPENDERS = frozenset((  # of quotas
    "Produce", "RecordsProduce", "Transactions", "Fetch", "RecordsFetch", "Share",
))  # fmt: skip
_CLAIMERS = frozenset(("Topics", "ShareAdmin", "Subscriptions", "Transactions", "Groups", "GroupAdmin"))
_SHARERS = frozenset(("Share", "ShareAdmin", "Subscriptions", "Deliver", "Transactions", _LOOK))
_CHANGERS = frozenset((
    "Topics", "GroupAdmin", "ShareAdmin", "Subscriptions", "Schedules", "Quotas", "Zones", "Acls", "Redrive", "Mirrors",
))  # fmt: skip
_SCHEDULERS = frozenset(("Produce", "RecordsProduce", "Transactions"))  # of delayed records
_KEEPERS_OF_TIMERS = _SCHEDULERS | {"Mirrors"}  # it keeps copies of those that wait at the source
_CONSUMERS = frozenset(("Fetch", "RecordsFetch", "Share", "Redrive", "Deliver"))
_REPAIRERS = frozenset(("RecoverZones", "Replicate", "Scrub", "SweepJob"))
_SWEEPERS = frozenset(("Sweep", "SweepJob"))
_SCHEDULER = frozenset(("JobSchedulesRole",))
_PROVISION = frozenset(("Provision",))  # it makes what a template declares
_EMPTIER = frozenset(("EmptyingRole",))  # it deletes the data of a stage that keeps none, with its stack

_TOPICS, _LOG, _GROUPS = "TablesTopics", "TablesLog", "TablesGroups"
_SHARES = f"{keys.SHARE_PREFIX}*"
_INLINE = f"{keys.INLINE_PREFIX}*"
_NOTES = f"{keys.SUBSCRIPTIONS_OF}*"
_WORDS = {
    (keys.SHARE_GROUPS, _SHARES): ".shares",
    (f"{keys.BUCKET}#*",): ".buckets",
    (f"{keys.CLAIMS}#*",): ".claims",
    (_INLINE,): ".inline",
    (_NOTES,): ".subscriptions",
    (keys.SUBSCRIPTIONS,): ".subscriptions",
    (keys.SUBSCRIPTIONS, _NOTES, keys.ORPHANED_STATES, f"{keys.PUSH_PREFIX}*"): ".subscriptions",
    (keys.SCHEDULES,): ".schedules",
    (keys.GROUPS,): ".names",  # the register of groups, which has their names
}
_STREAM, _REPAIRS = "TablesLog.StreamArn", "RepairQueuesRepairs"
_TIMERS = "TimersSeconds"
_READERS_OF_SEGMENTS = _CONSUMERS | JOBS | {"Topics", "GroupAdmin", "ShareAdmin", "Scrub", "Tier", "Clean"}

_WITHOUT_LISTS = frozenset(
    (
        "Promote",
        "Dispatch",
        "Share",
        "ShareAdmin",
        "Redrive",
        "Subscriptions",
        "Schedules",
        "Quotas",
        "Zones",
        "Acls",
        _LOOK,
    )
)
HOLDERS: Mapping[tuple[str, str], frozenset[str]] = {
    ("read", _TOPICS): _PROVISION | _ALL - {"Dispatch"},
    ("scan", _TOPICS): _PROVISION | _ALL - _CONSUMERS - _SCHEDULERS - _WITHOUT_LISTS,
    ("write", f"{_TOPICS}.names"): _PROVISION | {"Topics", "Mirrors", "Audit"},  # Audit makes the topic of the trail
    ("write", f"{_TOPICS}.partitions"): frozenset(  # they end changes
        ("Retention", "Produce", "RecordsProduce", "Transactions", "Share", "Redrive", "Deliver", "Promote")
    ),
    ("delete", f"{_TOPICS}.names"): _PROVISION | {"Topics", "Mirrors", "Audit"},
    ("read", f"{_TOPICS}{keys.AUDIT}"): frozenset(("Audit",)),
    ("write", f"{_TOPICS}{keys.AUDIT}"): _PROVISION | _CHANGERS,
    ("delete", f"{_TOPICS}{keys.AUDIT}"): _PROVISION | _CHANGERS | {"Audit"},
    ("write", f"{_TOPICS}{keys.ZONES}"): _PRODUCERS | {"Zones", "RecoverZones"},
    ("write", f"{_TOPICS}{keys.ACLS}"): _PROVISION | {"Acls"},  # grants write rules
    # A function that makes topics notes the age of the index there.
    ("write", f"{_TOPICS}{keys.CURSORS}"): _PROVISION
    | _SWEEPERS
    | {"Retention", "Scrub", "Tier", "Clean", _LOOK, "Measure", "Topics", "Mirrors", "Audit"},
    ("delete", f"{_TOPICS}{keys.CURSORS}"): _SWEEPERS | {"Retention", "Scrub", "Tier", "Clean", _LOOK, "Measure"},
    ("write", f"{_TOPICS}{keys.DELETED}"): _PROVISION | {"Retention", "Topics", "Mirrors", "Audit"},
    ("delete", f"{_TOPICS}{keys.DELETED}"): _PROVISION | {"Retention", "Topics", "Mirrors", "Audit"},
    ("read", _LOG): _PROVISION | _ALL - {"Zones", "Acls", "Dispatch"},
    ("write", _LOG): _PROVISION
    | _PRODUCERS
    | _REPAIRERS
    | {*("Topics", "Retention", "CompactJob", "Tier", "Clean", "Schedules")},
    ("write", f"{_LOG}.waiter"): frozenset(("Fetch",)),
    # A reader has a new place, and retention is told.
    ("write", f"{_LOG}.readers"): _PROVISION | {"Groups", "GroupAdmin", "ShareAdmin", "Subscriptions"},
    ("publish", "wake-ups"): _PRODUCERS | {"ShareAdmin"},
    ("delete", f"{_LOG}.inline"): _SWEEPERS,  # small segments
    ("delete", _LOG): _PROVISION | {"Topics", "Mirrors", "Retention", "CompactJob", "Tier", "Promote"},
    ("read", f"{_GROUPS}.names"): frozenset(
        ("Transactions", "Groups", "GroupAdmin", "Retention", "AnalyzeJob", "Measure", "Deliver")
    ),
    ("write", f"{_GROUPS}.names"): frozenset(("Transactions", "Groups", "GroupAdmin", "Retention")),
    # Transactions takes a lease from a member that is gone, and removes the member.
    ("delete", f"{_GROUPS}.names"): frozenset(("Transactions", "Groups", "GroupAdmin", "Retention")),
    ("read", f"{_GROUPS}.shares"): _PROVISION | _SHARERS | {"Retention", "Measure"},
    ("write", f"{_GROUPS}.shares"): _PROVISION | _SHARERS | {"Retention"},
    ("delete", f"{_GROUPS}.shares"): _PROVISION | {"Share", "ShareAdmin", "Subscriptions", "Retention", _LOOK},
    ("read", f"{_GROUPS}{keys.QUOTAS}"): _SPENDERS | _CLAIMERS | {"Quotas"} | _PROVISION,
    ("read", f"{_GROUPS}.claims"): _CLAIMERS,
    **{(verb, f"{_GROUPS}.claims"): _CLAIMERS | {"Retention"} for verb in ("write", "delete")},
    ("write", f"{_GROUPS}{keys.QUOTAS}"): _PROVISION | {"Quotas"},  # a template may declare quotas
    ("delete", f"{_GROUPS}{keys.QUOTAS}"): _PROVISION | {"Quotas"},
    ("write", f"{_GROUPS}.buckets"): _SPENDERS,
    ("read", f"{_GROUPS}.subscriptions"): _PROVISION
    | {*("Dispatch", "Subscriptions", "Mirrors", "Deliver", "Measure", "Retention", _LOOK)},
    ("read", f"{_GROUPS}.schedules"): _PROVISION | {"Schedules", "Promote", "Retention"},
    ("write", f"{_GROUPS}.schedules"): _PROVISION | {"Schedules", "Promote"},
    ("delete", f"{_GROUPS}.schedules"): _PROVISION | {"Schedules"},
    ("count", f"{_GROUPS}.subscriptions"): frozenset(("Retention",)),
    ("write", f"{_GROUPS}.subscriptions"): _PROVISION | {"Subscriptions", "Deliver"},
    ("delete", f"{_GROUPS}.subscriptions"): _PROVISION | {"Subscriptions", _LOOK},
    # Produce reads the first append of what may be its repeat.
    ("read", "zones"): _READERS_OF_SEGMENTS | _REPAIRERS | {"Produce"},
    ("list", "zones"): _EMPTIER | _READERS_OF_SEGMENTS | _REPAIRERS | _SWEEPERS | {"Produce"},
    ("write", "zones"): _PRODUCERS | _REPAIRERS,
    ("delete", "zones"): _SWEEPERS | _EMPTIER,
    # A session with a directory bucket reads, or it reads, writes and deletes.
    ("open to change", "zones"): _PRODUCERS | _REPAIRERS | _SWEEPERS,
    ("read", "archive"): _READERS_OF_SEGMENTS | {"Sweep", "Produce"},
    ("list", "archive"): _READERS_OF_SEGMENTS | _SWEEPERS | _EMPTIER | {"Produce"},
    ("write", "archive"): _KEEPERS_OF_TIMERS | {"CompactJob", "Tier", "Clean", "Sweep"},
    ("delete", "archive"): _SWEEPERS | _EMPTIER,
    ("list", "results"): _EMPTIER,
    ("delete", "results"): _EMPTIER,
    ("log", "EmptyingLogs"): _EMPTIER,
    ("ask for", "AWS::StackId"): _EMPTIER | _PROVISION,
    **{(verb, "lake"): frozenset(("ArchiveJob", "ReplayJob")) for verb in ("read", "list", "write", "delete")},
    **{(verb, "reports"): frozenset(("AnalyzeJob",)) for verb in ("read", "list", "write", "delete")},
    ("read", "assets"): JOBS,
    ("read", "catalog"): frozenset(("ArchiveJob", "ReplayJob")),
    ("write", "catalog"): frozenset(("ArchiveJob",)),
    ("delete", "catalog"): _EMPTIER,
    ("send to", _REPAIRS): _CONSUMERS
    | {"Produce", "Topics", "GroupAdmin", "ShareAdmin", "Scrub", "Replicate", "SweepJob", "Tier", "Clean"},
    ("take from", _REPAIRS): frozenset(("Replicate",)),
    ("take from", _STREAM): frozenset(("Replicate", "Dispatch")),
    ("send to", "PushDeliveries"): _PROVISION | {"Dispatch", "Subscriptions", "Deliver", _LOOK},
    ("take from", "PushDeliveries"): frozenset(("Deliver",)),
    ("send to", "PushDead"): frozenset(("Replicate", "Dispatch")),
    ("send to", _TIMERS): _PROVISION | _KEEPERS_OF_TIMERS | {"Promote", "Schedules"},
    ("take from", _TIMERS): frozenset(("Promote",)),
    ("switch on", "promote's rule"): _PROVISION | _KEEPERS_OF_TIMERS | {"Retention", "Schedules"},
    ("switch on", "promote's pollers"): frozenset(("Promote",)),
    ("start", "promote"): _PROVISION | _KEEPERS_OF_TIMERS | {"Schedules"},
    ("switch on", "deliver's pollers"): _PROVISION | {"Subscriptions", "Retention", _LOOK},
    ("switch on", "the look's rule"): _PROVISION | {"Subscriptions", "Retention", _LOOK},
    ("find", "every poller"): _PROVISION | {"Promote", "Subscriptions", "Retention", _LOOK},
    ("assume", "the role of targets"): _PROVISION | {"Subscriptions", "Deliver"},
    ("find", "every stream"): frozenset(("Replicate", "Dispatch")),
    ("trace", "every request"): FUNCTIONS - _OF_NO_REQUEST,
    ("find", "every log group"): JOBS,
    ("log", "jobs"): JOBS,
    **{("log", function): frozenset((function,)) for function in FUNCTIONS | _PARTS.keys() | _PROVISION},
    ("start", "JobsSparkApplication"): _SCHEDULER,
    ("pass to EMR", "roles of jobs"): _SCHEDULER,
}

_NOBODY: frozenset[str] = frozenset()
_VERBS = {
    **dict.fromkeys(("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"), "read"),
    "dynamodb:ConditionCheckItem": "read",
    "dynamodb:Scan": "scan",
    **dict.fromkeys(("dynamodb:PutItem", "dynamodb:UpdateItem"), "write"),
    **dict.fromkeys(("dynamodb:DeleteItem", "dynamodb:BatchWriteItem"), "delete"),
    **dict.fromkeys(("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"), "take from"),
    "s3:GetObject": "read",
    "s3:ListBucket": "list",
    **dict.fromkeys(("s3:PutObject", "s3:AbortMultipartUpload"), "write"),
    "s3:DeleteObject": "delete",
    "sqs:SendMessage": "send to",
    **dict.fromkeys(("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"), "take from"),
    "sqs:ChangeMessageVisibility": "take from",
    **dict.fromkeys(("logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"), "log"),
    **dict.fromkeys(("glue:GetDatabase", "glue:GetTable", "glue:GetTables"), "read"),
    **dict.fromkeys(("glue:CreateDatabase", "glue:CreateTable", "glue:UpdateTable"), "write"),
    "glue:DeleteDatabase": "delete",
    "emr-serverless:StartJobRun": "start",
    "appsync:EventPublish": "publish",
    "events:EnableRule": "switch on",
    "lambda:InvokeFunction": "start",
    "lambda:UpdateEventSourceMapping": "switch on",
    "cloudformation:DescribeStacks": "ask for",
    "sts:AssumeRole": "assume",
}
# AWS lets no policy name a resource of these.
_UNSCOPED = {
    "dynamodb:ListStreams": ("find", "every stream"),
    "lambda:ListEventSourceMappings": ("find", "every poller"),
    "xray:PutTraceSegments": ("trace", "every request"),
    "xray:PutTelemetryRecords": ("trace", "every request"),
    "logs:DescribeLogGroups": ("find", "every log group"),
}
_PLACES = (
    (r"<ZonesZone[ABC]>(/\*)?", "zones"),
    (r"<ArchiveBucket>(/\*|/\?\?/\*)?", "archive"),
    (r"<JobsResultsBucket>(/\*)?", "results"),
    (r"<(EmptyingLogs|AWS::StackId)>", r"\1"),
    (r"<JobsResultsBucket>/(lake|reports)/\*", r"\1"),
    (r"<(Tables\w+(\.StreamArn)?|RepairQueues\w+|JobsSparkApplication)>", r"\1"),
    (r"<(TimersSeconds|PushDeliveries|PushDead)>", r"\1"),
    (r"arn:<AWS::Partition>:events:[^*]+:rule/(?:default/)?[\w-]+-promote", "promote's rule"),
    (r"arn:<AWS::Partition>:events:[^*]+:rule/(?:default/)?[\w-]+-look-at-subscriptions", "the look's rule"),
    (r"arn:<AWS::Partition>:lambda:[^*]+:function:[\w-]+-promote(:live)?", "promote"),
    (r"arn:<AWS::Partition>:iam::<AWS::AccountId>:role/[\w-]+-targets-[^*]+", "the role of targets"),
    (r"<Functions(\w+)Logs>", r"\1"),
    (r"<WakeUpsNamespace\.ChannelNamespaceArn>", "wake-ups"),
    (r"<Jobs(Glue(Output|Error))?Logs>|<JobsGlue(Output|Error)>", "jobs"),
    (r"arn:<AWS::Partition>:s3:::cdk-\w+-assets-\$\{AWS::AccountId\}-[^/*]+/[^/*]+", "assets"),
    (r"arn:<AWS::Partition>:glue:[^*]+:(catalog|database/\w+|(table|userDefinedFunction)/\w+/\*)", "catalog"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One action on one resource that a policy allows a role, and on which condition."""

    holder: str
    action: str
    resource: str
    condition: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.holder} may {self.action} on {self.resource}"

    def power(self) -> tuple[str, str] | None:
        """Its verb and place, None if no role at all may have this permission."""
        if self.resource == "*":
            return _UNSCOPED.get(self.action)
        if self.action == "iam:PassRole":
            is_for_emr = self.condition == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
            is_of_job = re.fullmatch(r"<Jobs\w+MayRole>", self.resource)
            return ("pass to EMR", "roles of jobs") if is_for_emr and is_of_job else None
        if self.action == "s3express:CreateSession":
            is_read_only = self.condition == {"StringEquals": {"s3express:SessionMode": "ReadOnly"}}
            return "read" if is_read_only else "open to change", self._place()
        if self.action not in _VERBS:
            return None
        if self.action == "dynamodb:Query" and self.condition.get("StringEquals") == {"dynamodb:Select": "COUNT"}:
            return "count", self._place()
        return _VERBS[self.action], self._place()

    def _place(self) -> str:
        """The resource, narrowed by the condition to some items of a table or one folder of a bucket."""
        if told := _items_of(self.condition):
            return f"{self._named_place()}{told}"
        match self.condition:
            case {"ArnLike": {"lambda:FunctionArn": [function, _]}} if self.resource.endswith(
                ":event-source-mapping:*"
            ):
                return f"{name_of(function).rpartition('-')[2]}'s pollers"
            case {"StringLike": {"s3:prefix": [str(below), str(folder)]}} if below == f"{folder}/*":
                return folder if self.resource == "<JobsResultsBucket>" else self.resource
        return self._named_place()

    def _named_place(self) -> str:
        for pattern, place in _PLACES:
            if found := re.fullmatch(pattern, self.resource):
                return found.expand(place)
        return self.resource


def _items_of(condition: Mapping[str, Any]) -> str | None:
    """The items of a table that a condition names: a word for them, or their `pk`. None if it names none.

    A condition for all values also holds for a request that tells none. So it counts only together with `Null`, but for
    the stage local, whose emulator tells none: `holds_where_none_is_told` tells them apart.
    """
    for_all = _for_all(condition)
    if condition.get("Null", _no_null(for_all)) != _no_null(for_all):
        return None
    match for_all:
        case {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [*like]}}:
            return _WORDS.get(tuple(like)) or "".join(like)
        case {"ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": ["*#*"]}, **more}:
            match more:
                case {"ForAllValues:StringEquals": {"dynamodb:Attributes": [*attributes]}} if (
                    "config" not in attributes
                ):
                    return ".partitions"
            return None if more else ".names"
        case {"ForAllValues:StringEquals": {"dynamodb:Attributes": [*attributes]}} if "tail" not in attributes:
            return ".readers" if "reader_changes" in attributes else ".waiter"
    return None


def _for_all(condition: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in condition.items() if name.startswith("ForAllValues:")}


def _no_null(for_all: Mapping[str, Any]) -> Mapping[str, str]:
    return dict.fromkeys([each for value in for_all.values() for each in value], "false")


def holds_where_none_is_told(condition: Mapping[str, Any]) -> bool:
    """True if a call that tells IAM no key or attribute passes a condition for all values of them."""
    for_all = _for_all(condition)
    return bool(for_all) and condition.get("Null") != _no_null(for_all)


def permissions_of_roles(resources: Resources) -> Iterator[Permission]:
    """Every permission of every role of the template."""
    for role, statements in policies_of_roles(resources).items():
        for statement in statements:
            yield from permissions_of_statement(_holder(role), statement)


def permissions_of_statement(holder: str, statement: Mapping[str, Any]) -> Iterator[Permission]:
    """Every permission that a statement gives its holder. Fails on a statement that denies or inverts."""
    assert set(statement) <= {"Action", "Effect", "Resource", "Condition"}, f"{holder}: {statement}"
    assert statement["Effect"] == "Allow", f"{holder}: {statement}"
    for action in as_list(statement["Action"]):
        for resource in as_list(statement["Resource"]):
            condition = statement.get("Condition", {})
            yield Permission(holder=holder, action=action, resource=name_of(resource), condition=condition)


def forbidden(permissions: Iterable[Permission]) -> list[str]:
    """The permissions that their role must not have."""
    return [
        str(each) for each in permissions if not _holders(each) & HOLDERS.get(each.power() or ("", ""), frozenset())
    ]


def _holders(permission: Permission) -> set[str]:
    """The role, and the parts of its function."""
    return {permission.holder, *_PARTS.get(permission.holder, ())}


def _holder(role: str) -> str:
    """The function's name, the job's with `Job` behind it, or the role's own: `<FunctionsFetchRole>` is `Fetch`."""
    name = re.sub(r"<Functions(\w+)Role>", r"\1", role)
    return re.sub(r"<Jobs(\w+)MayRole>", r"\1Job", name).strip("<>")
