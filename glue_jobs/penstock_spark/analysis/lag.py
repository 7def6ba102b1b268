"""Measures the present lag of consumer groups: one row for each group and partition."""

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import Member
from penstock_core.ids import GroupName
from penstock_core.limits import GROUP_LIST_MAX
from penstock_service.groups.describe_group import GroupPartition, describe_group, list_groups
from penstock_service.index.reader import refs_of
from penstock_service.instance.instance import Instance
from penstock_spark.decode.decoding import decode, kafka_schema
from penstock_spark.decode.reading import read_slices
from penstock_spark.plan.slices import slice_of
from penstock_spark.result_store import ResultStore

LAG = "lag/"
LAG_SCHEMA = pa.schema(
    [
        ("run_at", pa.timestamp("ms", tz="UTC")),
        ("group", pa.string()),
        ("members", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("owner", pa.string()),
        ("owner_name", pa.string()),
        ("committed_offset", pa.int64()),
        ("log_start_offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("lag_records", pa.int64()),
        ("lag_ms", pa.int64()),
    ]
)
_AT_ONCE = 1_000  # partitions in one round of parallel reads; bounds the results in memory


def measure_lag(instance: Instance, now_ms: int) -> pa.Table:
    """The lag of every group in every partition for which it has committed, or which it is assigned.

    `lag_records` counts the offsets from the committed one to the high watermark, without those that retention removed.
    `lag_ms` is the age at `now_ms` of the first record among them, by its timestamp, and 0 if there is none. Both are
    None if the group has never committed. Costs one `describe_group` per group, and a query and the read of one ref for
    each partition with lag.
    """
    rows = [
        (group, members, found)
        for group in _groups(instance)
        for members, partitions in [_describe(instance, group)]
        for found in partitions
    ]
    lags: list[int | None] = []
    for at in range(0, len(rows), _AT_ONCE):
        waits = instance.executor.map(lambda row: _lag_ms(instance, row[2], now_ms), rows[at : at + _AT_ONCE])
        for wait in waits:
            if isinstance(wait, PenstockError):
                raise wait
            lags.append(wait)
    return pa.Table.from_pylist(
        [
            {
                "run_at": now_ms,
                "group": group,
                "members": members,
                "topic": found.topic,
                "partition": found.partition.partition,
                "owner": found.owner.member_id if found.owner else None,
                "owner_name": _name(found.owner) if found.owner else None,
                "committed_offset": found.lease.offset,
                "log_start_offset": found.log_start_offset,
                "high_watermark": found.high_watermark,
                "lag_records": found.lag,
                "lag_ms": lag_ms,
            }
            for (group, members, found), lag_ms in zip(rows, lags, strict=True)
        ],
        schema=LAG_SCHEMA,
    )


def _name(member: Member) -> str:
    """The member's name, as `penstock groups describe` prints it."""
    return member.client_id or member.instance_id or member.member_id


def write_lag(results: ResultStore, run: str, lags: pa.Table) -> None:
    """Add the file of a run to those of earlier runs."""
    sink = io.BytesIO()
    pq.write_table(lags, sink, compression="zstd")
    results.put(f"{LAG}run={run}.parquet", sink.getvalue())


def _groups(instance: Instance) -> Iterator[GroupName]:
    after: str | None = ""
    while after is not None:
        page, after = list_groups(instance.stores.memberships, GROUP_LIST_MAX, after)
        yield from (name for name, _ in page)


def _describe(instance: Instance, group: GroupName) -> tuple[int, Sequence[GroupPartition]]:
    try:
        found = describe_group(instance, group)
    except PenstockError as error:
        if error.code is ErrorCode.UNKNOWN_GROUP:  # it was deleted after the listing
            return 0, ()
        raise
    return len(found.members), found.partitions


def _lag_ms(instance: Instance, found: GroupPartition, now_ms: int) -> int | None:
    if not found.lag or found.lease.offset is None:
        return found.lag
    timestamp_ms = _timestamp_at(instance, found, max(found.lease.offset, found.log_start_offset))
    return 0 if timestamp_ms is None else max(0, now_ms - timestamp_ms)


def _timestamp_at(instance: Instance, found: GroupPartition, offset: int) -> int | None:
    """The timestamp of the first readable record at `offset` or behind it. None if there is none."""
    for located in refs_of(instance.stores.log, found.partition, offset):
        part = slice_of(found.topic, found.partition, offset, found.high_watermark, [located])
        if part is not None and located.ref.record_count:
            stored = read_slices(instance, [part], range_bytes=located.ref.length, fails_on_data_loss=False)
            for records in decode(stored, kafka_schema(with_headers=False), lambda _: None):
                return int(records.column("timestamp").cast(pa.int64())[0].as_py()) // 1_000
    return None
