"""Compaction of many small requests on the running stack: consumers read the same records with fewer storage calls."""

import json
from dataclasses import replace

import pytest

from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.http.transport import HttpTransport
from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.ref import Tier
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.aws import Storage, aws_instance, parse_zones
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import MovableClock, SystemClock
from penstock_service.compaction.compact import compact
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from tests.end_to_end.conftest import Stack
from tests.end_to_end.raw_requests import append, read_all
from tests.end_to_end.stack_storage import StackStorage
from tests.support.service import another_instance
from tests.support.tasks import start

REQUESTS = 8 * TAIL_ROLL_REFS + 5
AT_ONCE = CompactionSettings(age_ms_min=0)


def instance_of(stack: Stack, storage: StackStorage) -> Instance:
    """Returns the service on the stack's tables and buckets, without its API, as a job uses it."""
    outputs = storage.outputs
    places = Storage(
        topics_table=outputs["TopicsTable"],
        log_table=outputs["LogTable"],
        groups_table=outputs["GroupsTable"],
        repair_queue_url=outputs["RepairQueueUrl"],
        zones=parse_zones(outputs["ZoneBuckets"]),
        archive=outputs["ArchiveBucket"],
        region=stack.region,
        endpoint_url=stack.endpoint_url,
        access_key="test",
        secret_key="test",
    )
    return aws_instance(places, StorageCalls())


def consume(transport: HttpTransport, topic: str, count: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    with Consumer(transport=transport, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count:
            found += [(record.offset, record.value) for record in consumer.poll(timeout_ms=1_000)]
    return found


@pytest.mark.minutes
def test_compacted_topic_reads_as_before_with_fewer_storage_calls(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin, topic: str
) -> None:
    for number in range(REQUESTS):
        append(transport, topic, b"%d" % number * 50, acks=Acks.ALL.value)
    wanted = consume(transport, topic, REQUESTS)
    assert [offset for offset, _ in wanted] == list(range(REQUESTS))
    instance = instance_of(stack, storage)
    done = compact(instance, topic, 0, AT_ONCE)
    assert (done.runs, done.refs_before, done.refs_after, done.failures) == (1, 8 * TAIL_ROLL_REFS, 1, 0), done
    assert [ref.tier for ref in storage.refs(topic)] == [Tier.ARCHIVE] + [Tier.ZONAL] * 5
    assert consume(transport, topic, REQUESTS) == wanted
    assert read_all(transport, topic) == wanted


def test_compacted_keys_are_read_by_a_consumer_at_their_offsets(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin
) -> None:
    admin.create_topic("latest", config={"cleanup_policy": "compact"})
    with Producer(transport=transport, linger_ms=0) as producer:
        for number in range(3 * TAIL_ROLL_REFS):
            producer.send("latest", b"%d" % number, key=b"k%d" % (number % 4)).result()
    instance = instance_of(stack, storage)
    done = compact(instance, "latest", 0, replace(AT_ONCE, dirty_share_min=0.0))
    assert (done.runs, done.failures) == (1, 0), done
    last = 3 * TAIL_ROLL_REFS - 4
    assert consume(transport, "latest", 4) == [(last + number, b"%d" % (last + number)) for number in range(4)]


def test_task_of_the_stage_keeps_the_latest_of_three_values_of_each_key(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin
) -> None:
    admin.create_topic("newest", config={"cleanup_policy": "compact"})
    two_hours_ago = MovableClock(SystemClock().now_ms() - 2 * 3_600_000)
    earlier = another_instance(instance_of(stack, storage), clock=two_hours_ago)
    for number in range(3 * TAIL_ROLL_REFS):
        record = NewRecord(two_hours_ago.now_ms(), b"k%d" % (number % TAIL_ROLL_REFS), b"%d" % number)
        [done] = produce(earlier, [ProduceEntry(topic="newest", partition=0, data=encode([record]))], Acks.ALL)
        assert not isinstance(done, PenstockError), done
    run = json.loads(start(stack.root_client("lambda"), "clean")["Payload"].read())
    assert (run["partitions_cleaned"], run["cleaning_failed"], run["cleaning_bytes_left"]) == (1, 0, 0), run
    first = 2 * TAIL_ROLL_REFS
    wanted = [(offset, b"%d" % offset) for offset in range(first, first + TAIL_ROLL_REFS)]
    assert consume(transport, "newest", TAIL_ROLL_REFS) == wanted
