"""The jump of restored tables, made by the service of this process with the caller's AWS credentials (docs/adr/0078).

`penstock restore` calls it. The stage's functions take no part: they may still use the harmed tables.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from penstock.errors import NotConfiguredError
from penstock.transports.embedded_storage import find_embedded_stage
from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import BATCH_GET_KEYS_MAX
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_core.outcomes import Outcome, outcome_of
from penstock_service.adapters.aws import Storage, aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.records.jump_heads import PartitionJump as PartitionJump
from penstock_service.records.jump_heads import Restore, jump_heads
from penstock_service.retention.keep_items import keep_restored


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTables:
    """The tables of a restore. Those without a name are the stage's.

    `topics_table` and `log_table` are the restored ones, `harmed_log_table` is the one that was harmed.
    `is_harmed_lost`: there is no such table any more.
    """

    topics_table: str | None = None
    log_table: str | None = None
    harmed_log_table: str | None = None
    is_harmed_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicJump:
    """The jumps of a topic's partitions, or the error that stopped it: call again to go on."""

    topic: str
    outcome: Outcome[Sequence[PartitionJump]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLook:
    """The newest records of the partitions of a restored topic.

    `readable` of them can be read, `failed` cannot: `error` tells why of one. The others have no record.
    """

    topic: str
    partitions: int
    readable: int
    failed: int
    error: PenstockError | None = None


OpenRestore = tuple[Instance, Restore]


def open_restore(
    tables: RestoredTables, region: str | None, *, is_dry_run: bool, stage: Storage | None = None
) -> OpenRestore:
    """The service on the restored tables, and the restore. One DescribeTable, and the stage's look-up without `stage`.

    Raises NotConfiguredError if the stage or the restored table cannot be found, or the harmed table is the restored
    one.
    """
    stage = stage or find_embedded_stage(region).storage
    storage = replace(
        stage,
        topics_table=tables.topics_table or stage.topics_table,
        log_table=tables.log_table or stage.log_table,
    )
    harmed_table = tables.harmed_log_table or stage.log_table
    if not tables.is_harmed_lost and harmed_table == storage.log_table:
        raise NotConfiguredError(
            f"{harmed_table} is both the restored and the harmed log table: name the restored tables by --topics-table "
            "and --log-table, or, if the stage stands on them already, the harmed one by --harmed-log-table"
        )
    harmed = None
    if not tables.is_harmed_lost:
        harmed = _instance(replace(storage, log_table=harmed_table)).stores.log
    return _instance(storage), Restore(restore_id=_restore_id(storage), harmed=harmed, is_dry_run=is_dry_run)


def jump_topics(instance: Instance, restore: Restore, tell: Callable[[str], None]) -> Iterator[TopicJump]:
    """Lets the partitions of all topics go on behind their jumps, topic by topic.

    Before that it keeps the small appends of the topic that would expire too early: turn the table's expiry on after
    this. Costs what `keep_restored` and `jump_heads` cost.

    `tell` gets a line for each topic that is begun. A topic that fails does not stop the others.
    """
    topics = instance.stores.topics.list()
    for number, topic in enumerate(topics, 1):
        tell(f"{number} of {len(topics)}: {topic.name}")
        yield TopicJump(topic=topic.name, outcome=outcome_of(lambda each: _jump(instance, each, restore), topic))


def look_at_topics(instance: Instance) -> Iterator[TopicLook]:
    """Reads the newest record below the jump of each partition. One read for 100 heads, and one fetch for each."""

    def read(entry: FetchEntry) -> PenstockError | None:
        [found] = fetch(instance, [entry], max_bytes=1, min_bytes=1, wait_ms=0)
        return found if isinstance(found, PenstockError) else None

    for topic in instance.stores.topics.list():
        keys = [PartitionKey(topic.topic_id, number) for number in topic.all_heads()]
        newest = [
            FetchEntry(topic=topic.name, partition=key.partition, offset=start - 1, max_bytes=1)
            for first in range(0, len(keys), BATCH_GET_KEYS_MAX)
            for key, head in instance.stores.log.heads(keys[first : first + BATCH_GET_KEYS_MAX]).items()
            if (start := _jump_start(head)) > head.log_start_offset
        ]
        errors = [error for error in map(read, newest) if error is not None]
        yield TopicLook(
            topic=topic.name,
            partitions=topic.partitions,
            readable=len(newest) - len(errors),
            failed=len(errors),
            error=errors[0] if errors else None,
        )


def _jump_start(head: Head) -> int:
    """The offset behind the last record before the last jump, which may consist of several pieces."""
    start = head.jumps[-1].start if head.jumps else head.next_offset
    for piece in reversed(head.jumps[:-1]):
        start = piece.start if piece.end == start else start
    return start


def _jump(instance: Instance, topic: Topic, restore: Restore) -> Sequence[PartitionJump]:
    if not restore.is_dry_run:
        keep_restored(instance, topic)  # first: a head that has jumped tells that nothing is left to do
    return [*jump_heads(instance, topic, restore)]


def _instance(storage: Storage) -> Instance:
    return aws_instance(storage, StorageCalls())


def _restore_id(storage: Storage) -> str:
    """The restored log table, and when it was made: a repeat finds what was done, and another restore does not."""
    try:
        client: Any = boto3.client(
            "dynamodb",
            region_name=storage.region,
            endpoint_url=storage.endpoint_url,
            aws_access_key_id=storage.access_key,
            aws_secret_access_key=storage.secret_key,
        )
        table: Mapping[str, Any] = client.describe_table(TableName=storage.log_table)["Table"]
    except (BotoCoreError, ClientError) as error:
        raise NotConfiguredError(f"the log table {storage.log_table} could not be described: {error}") from error
    return f"{table['TableArn']} {table['CreationDateTime'].timestamp():.3f}"
