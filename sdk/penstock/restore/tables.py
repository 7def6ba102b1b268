"""The tables of a restore: the order to DynamoDB, the wait, and the settings that a restored table comes back without.

DynamoDB restores items, keys, billing mode and encryption ("RestoreTableToPointInTime"). It leaves out stream, expiry,
recovery, tags, deletion protection, warm throughput and table class. It leaves out what hangs on a table from outside,
too: scaling policies, resource policies, Kinesis streams, Contributor Insights. Stream and expiry follow the product's
declaration, because whoever harmed the table may have changed them. The others follow the harmed table. Penstock's own
tables have nothing from outside: if yours do, `left_to_you` tells.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.deployed.aws import Aws, aws_code
from penstock.prices import RESTORED_BYTES
from penstock.restore.note import TableRestore, second_text
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.storage.table_declarations import TABLES

LOG = "log"
_GONE = "ResourceNotFoundException"
_IMAGES = "NEW_AND_OLD_IMAGES"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSetting:
    """A setting that a restored table lacks: the call that gives it. `text` tells it to people."""

    table: str
    text: str
    operation: str
    arguments: Mapping[str, Any]

    def give(self, aws: Aws) -> None:
        """One call."""
        aws.call("dynamodb", self.operation, self.table, **self.arguments)


def describe(aws: Aws, table: str) -> dict[str, Any] | None:
    """The description of a table, None if there is none. One DescribeTable."""
    found = aws.find(_GONE, "dynamodb", "describe_table", table, TableName=table)
    return None if found is None else found["Table"]


def check_window(aws: Aws, tables: Mapping[str, TableRestore], to_s: int) -> None:
    """Raises INVALID_CONFIG if one of the tables cannot come back to that second, or its name is taken already.

    One DescribeContinuousBackups and one DescribeTable for each table.
    """
    to = datetime.fromtimestamp(to_s, UTC)
    for table in tables.values():
        on = {"TableName": table.harmed}
        backups = aws.call("dynamodb", "describe_continuous_backups", table.harmed, **on)[
            "ContinuousBackupsDescription"
        ]
        recovery = backups.get("PointInTimeRecoveryDescription", {})
        if recovery.get("PointInTimeRecoveryStatus") != "ENABLED":
            raise _refused(f"table {table.harmed} has no point-in-time recovery, so no restore can bring it back")
        first, last = recovery["EarliestRestorableDateTime"], recovery["LatestRestorableDateTime"]
        if not first <= to <= last:
            window = f"{second_text(-int(-first.timestamp() // 1))} to {second_text(int(last.timestamp()))}"
            raise _refused(f"table {table.harmed} cannot come back to {second_text(to_s)}: give a time from {window}")
        if describe(aws, table.restored) is not None:
            # It may have a jump of its own, which covers no offset that was given since.
            raise _refused(
                f"table {table.restored} is left of an earlier restore to this second: delete it, or restore to another"
            )


def order(aws: Aws, table: TableRestore, to_s: int) -> None:
    """Asks DynamoDB to restore the table, unless it does already. One RestoreTableToPointInTime."""
    try:
        aws.call(
            "dynamodb",
            "restore_table_to_point_in_time",
            f"{table.harmed} and {table.restored}",
            SourceTableName=table.harmed,
            TargetTableName=table.restored,
            RestoreDateTime=datetime.fromtimestamp(to_s, UTC),
        )
    except PenstockError as error:
        if aws_code(error) not in ("TableAlreadyExistsException", "TableInUseException"):
            raise


def check_source(described: Mapping[str, Any], table: TableRestore) -> None:
    """Raises INVALID_CONFIG if a table of that name is not the restored one. An emulator may not tell of what it is."""
    summary = described.get("RestoreSummary", {})
    source = summary.get("SourceTableArn")
    if source is not None and not source.endswith(f"/{table.harmed}"):
        raise _refused(f"table {table.restored} was restored from {source}, not from {table.harmed}: delete it")


def restored_usd(described: Mapping[str, Any]) -> float:
    """The price of a restore of the table, by its size of the last six hours."""
    return RESTORED_BYTES.of(described.get("TableSizeBytes", 0))


def lacking(aws: Aws, name: str, table: TableRestore, warm_writes: int | None) -> Iterator[TableSetting]:
    """The settings that the restored table `name` (topics, log or groups) lacks, in the order to give them.

    It leaves out the expiry of the log table, whose time comes later (`lacking_expiry`). `warm_writes` are the write
    units that the stage asks for its log table. Seven reads at most.
    """
    declared, on = TABLES[name], {"TableName": table.restored}
    new, old = _described(aws, table.restored), describe(aws, table.harmed) or {}

    def setting(text: str, operation: str, **arguments: Any) -> TableSetting:
        return TableSetting(table=table.restored, text=f"{name}: {text}", operation=operation, arguments=on | arguments)

    if declared.is_streamed and not new.get("StreamSpecification", {}).get("StreamEnabled"):
        stream = {"StreamEnabled": True, "StreamViewType": _IMAGES}
        yield setting("stream of new and old images", "update_table", StreamSpecification=stream)
    if name != LOG:
        yield from lacking_expiry(aws, name, table)
    if not _recovery(aws, table.restored):
        days = _recovery(aws, table.harmed).get("RecoveryPeriodInDays") if old else None
        recovery = {"PointInTimeRecoveryEnabled": True, **({} if days is None else {"RecoveryPeriodInDays": days})}
        text = "point-in-time recovery" + ("" if days is None else f" of {days} days")
        yield setting(text, "update_continuous_backups", PointInTimeRecoverySpecification=recovery)
    warm = (new.get("WarmThroughput") or {}).get("WriteUnitsPerSecond", 0)
    if name == LOG and warm_writes is not None and warm < warm_writes:
        throughput = {"WriteUnitsPerSecond": warm_writes}
        yield setting(f"{warm_writes:,} warm write units a second", "update_table", WarmThroughput=throughput)
    yield from _tags(aws, old, new, table, name)
    if old.get("DeletionProtectionEnabled") and not new.get("DeletionProtectionEnabled"):
        yield setting("deletion protection", "update_table", DeletionProtectionEnabled=True)


def lacking_expiry(aws: Aws, name: str, table: TableRestore) -> Iterator[TableSetting]:
    """The expiry of the restored table `name`, if it should have one and has none. One read.

    Give it to the log table once the jump is made: it has kept the small appends that would go too early.
    """
    attribute, on = TABLES[name].ttl_attribute, {"TableName": table.restored}
    if attribute is None:
        return
    told = aws.call("dynamodb", "describe_time_to_live", table.restored, **on)["TimeToLiveDescription"]
    if told.get("TimeToLiveStatus") not in ("ENABLED", "ENABLING"):
        arguments = on | {"TimeToLiveSpecification": {"Enabled": True, "AttributeName": attribute}}
        text = f"{name}: expiry by {attribute}"
        yield TableSetting(table=table.restored, text=text, operation="update_time_to_live", arguments=arguments)


def left_to_you(aws: Aws, table: TableRestore) -> Iterator[str]:
    """What the harmed table has from outside, and Penstock gives to no table. One call for each kind."""
    on = {"TableName": table.harmed}
    old = describe(aws, table.harmed)
    if old is None:
        return
    if old.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED") == "PROVISIONED":
        yield f"{table.harmed} is billed for provisioned capacity: give {table.restored} its scaling policies"
    if old.get("TableClassSummary", {}).get("TableClass", "STANDARD") != "STANDARD":
        yield f"{table.harmed} has the table class {old['TableClassSummary']['TableClass']}: set it on {table.restored}"
    arn = {"ResourceArn": old["TableArn"]}
    if aws.find("PolicyNotFoundException", "dynamodb", "get_resource_policy", table.harmed, **arn):
        yield f"{table.harmed} has a resource policy: put one on {table.restored}"
    insights = aws.call("dynamodb", "describe_contributor_insights", table.harmed, **on)
    if insights.get("ContributorInsightsStatus") in ("ENABLED", "ENABLING"):
        yield f"{table.harmed} has Contributor Insights: enable them on {table.restored}"
    streams = aws.call("dynamodb", "describe_kinesis_streaming_destination", table.harmed, **on)
    for each in streams.get("KinesisDataStreamDestinations", ()):
        if each.get("DestinationStatus") in ("ACTIVE", "ENABLING"):
            yield f"{table.harmed} feeds {each['StreamArn']}: enable that on {table.restored}"


def _tags(
    aws: Aws, old: Mapping[str, Any], new: Mapping[str, Any], table: TableRestore, name: str
) -> Iterator[TableSetting]:
    wanted = _tags_of(aws, table.harmed, old["TableArn"]) if old else {}
    there = _tags_of(aws, table.restored, new["TableArn"])
    missing = [{"Key": key, "Value": wanted[key]} for key in sorted(wanted) if there.get(key) != wanted[key]]
    if missing:
        yield TableSetting(
            table=table.restored,
            text=f"{name}: {len(missing)} tags",
            operation="tag_resource",
            arguments={"ResourceArn": new["TableArn"], "Tags": missing},
        )


def _tags_of(aws: Aws, table: str, arn: str) -> dict[str, str]:
    """The tags of a table. Those of AWS itself cannot be given, and tell of the stack that made the table."""
    found = aws.pages("Tags", "dynamodb", "list_tags_of_resource", table, ResourceArn=arn)
    return {each["Key"]: each["Value"] for each in found if not each["Key"].startswith("aws:")}


def _recovery(aws: Aws, table: str) -> dict[str, Any]:
    """The recovery of a table, {} if it is off."""
    found = aws.call("dynamodb", "describe_continuous_backups", table, TableName=table)["ContinuousBackupsDescription"]
    recovery: dict[str, Any] = found.get("PointInTimeRecoveryDescription", {})
    return recovery if recovery.get("PointInTimeRecoveryStatus") == "ENABLED" else {}


def _described(aws: Aws, table: str) -> dict[str, Any]:
    found = describe(aws, table)
    if found is None:
        raise _refused(f"table {table} has gone: run the same command again to restore it")
    return found


def _refused(message: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, message)
