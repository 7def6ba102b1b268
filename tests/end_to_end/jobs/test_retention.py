"""Retention and sweep on the deployed stack: what they remove, when, and what they spare, also if they are killed.

The graces are settings of the functions. Clients of the API cannot change them. Here, the owner of the account does.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Admin, Consumer
from penstock.http.transport import HttpTransport
from penstock_core.ids import SegmentId, new_segment_id
from penstock_core.limits import RETENTION_BYTES_MIN, TAIL_ROLL_REFS
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.storage.keys import DELETED, segment_key
from penstock_core.storage.page_item import parse_merge_mark, parse_page
from tests.end_to_end.fault_proxy import Faults, fault_proxy
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.stack_storage import StackStorage
from tests.support.deadlines import until
from tests.support.tasks import function_of, start

pytestmark = [pytest.mark.stack, pytest.mark.minutes]
HOUR_MS = 3_600_000
OLD = 2 * TAIL_ROLL_REFS + 4  # two pages, and some of the third
NEW = TAIL_ROLL_REFS
GRACE_MS = 1_500


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def configured(stack: Stack, function: str, **variables: str) -> Iterator[None]:
    """Gives the function these settings too, during the block."""
    lambdas = stack.root_client("lambda")
    before = lambdas.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    lambdas.update_function_configuration(FunctionName=function, Environment={"Variables": before | variables})
    try:
        yield
    finally:
        lambdas.update_function_configuration(FunctionName=function, Environment={"Variables": before})


@pytest.fixture
def short_graces(stack: Stack) -> Iterator[None]:
    grace = str(GRACE_MS)
    with (
        configured(stack, "penstock-upkeep", PENSTOCK_LOG_START_GRACE_MS=grace),
        configured(stack, "penstock-sweep", PENSTOCK_LOG_START_GRACE_MS=grace, PENSTOCK_SWEEP_GRACE_MS=grace),
    ):
        yield


def invoke(stack: Stack, task: str) -> dict[str, Any]:
    answer = start(stack.root_client("lambda"), task)
    done: dict[str, Any] = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, done
    return done


def append(transport: HttpTransport, *topics: str, timestamp_ms: int, size: int = 10) -> None:
    """Sends one record to partition 0 of each topic, in one request and so in one segment."""
    batch = encode([NewRecord(timestamp_ms, None, os.urandom(size))])
    batches = [{"topic": topic, "partition": 0, "length": len(batch)} for topic in topics]
    answer = transport.call(
        "POST", "/v1/produce", {}, {}, frame.encode({"acks": "all", "batches": batches}, [batch] * len(topics))
    )
    assert answer.status == 200, answer.body
    assert all("error" not in result for result in json.loads(answer.body)["results"])


def read(transport: HttpTransport, topic: str, offset: int) -> tuple[int, Any]:
    path = f"/v1/topics/{topic}/partitions/0/records"
    answer = transport.call("GET", path, {"offset": str(offset), "max_bytes": "4000000"}, {}, b"")
    return answer.status, json.loads(answer.body)


def assert_bounds(transport: HttpTransport, topic: str, start: int, end: int) -> None:
    """Asserts that a read below `start` answers the bounds, and a read at `start` finds every record up to `end`."""
    status, told = read(transport, topic, start - 1)
    assert (status, told["error"]["code"]) == (416, "OFFSET_OUT_OF_RANGE")
    assert (told["error"]["log_start_offset"], told["error"]["high_watermark"]) == (start, end)
    status, found = read(transport, topic, start)
    assert status == 200, found
    assert [record["offset"] for record in found["records"]] == list(range(start, end))


def pages(storage: StackStorage, partition: str) -> list[int]:
    """Returns the base offsets of all pages."""
    items = storage.stack.root_client("dynamodb").query(
        TableName=storage.outputs["LogTable"],
        KeyConditionExpression="pk = :pk AND begins_with(sk, :page)",
        ExpressionAttributeValues={":pk": {"S": partition}, ":page": {"S": "page#"}},
        ConsistentRead=True,
    )["Items"]
    return [int(parse_page(item).base_offset) for item in items if parse_merge_mark(item) is None]


def held(storage: StackStorage, keys: set[str]) -> list[set[str]]:
    """Returns the keys that each zone holds, of these keys."""
    s3, found = storage.stack.root_client("s3"), []
    for bucket in storage.buckets:
        listed = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        found.append(keys & {item["Key"] for page in listed for item in page.get("Contents", ())})
    return found


def keys_of(storage: StackStorage, topic: str) -> list[str]:
    return [segment_key(ref.segment_id) for ref in storage.refs(topic)]


def garbage(storage: StackStorage, age_ms: int, count: int = 3) -> set[str]:
    """Puts segments of that age into every zone, as appends leave them that die before their update."""
    ids: list[SegmentId] = [new_segment_id(now_ms() - age_ms, os.urandom(10)) for _ in range(count)]
    for bucket in storage.buckets:
        for segment_id in ids:
            storage.stack.root_client("s3").put_object(Bucket=bucket, Key=segment_key(segment_id), Body=b"x")
    return {segment_key(segment_id) for segment_id in ids}


def aged_topic(transport: HttpTransport, admin: Admin, name: str) -> str:
    """Makes a topic that keeps 1 MiB. It has `OLD` small records, then `NEW` large ones that alone fill that.

    By time, a record expires a minute after its append at the earliest. Tests on a stepped clock hold that.
    """
    admin.create_topic(name, config={"retention_bytes": RETENTION_BYTES_MIN})
    for _ in range(OLD):
        append(transport, name, timestamp_ms=now_ms())
    append_large(transport, name)
    return name


def append_large(transport: HttpTransport, name: str) -> None:
    for _ in range(NEW):
        append(transport, name, timestamp_ms=now_ms(), size=RETENTION_BYTES_MIN // NEW)


def test_records_beyond_retention_bytes_are_hidden_and_no_more(
    stack: Stack, transport: HttpTransport, admin: Admin
) -> None:
    admin.create_topic("by-size", config={"retention_bytes": RETENTION_BYTES_MIN})
    for _ in range(5):
        append(transport, "by-size", timestamp_ms=now_ms(), size=400_000)
    assert invoke(stack, "retention")["retention_failed"] == 0
    assert_bounds(transport, "by-size", start=2, end=5)  # the last three alone are more than 1 MiB, the last two less


def test_expired_records_are_hidden_at_once_and_all_else_waits_for_the_graces(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin
) -> None:
    topic = aged_topic(transport, admin, "expired")
    named = set(keys_of(storage, topic))
    before = pages(storage, storage.partition(topic))
    for _ in range(2):
        invoke(stack, "retention")
        assert invoke(stack, "sweep")["sweep_failed"] == 0
        assert_bounds(transport, topic, start=OLD, end=OLD + NEW)
        assert pages(storage, storage.partition(topic)) == before
        assert held(storage, named) == [named] * 3


@pytest.mark.usefixtures("short_graces")
def test_pages_and_objects_of_expired_records_go_after_the_graces_and_what_others_need_stays(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin
) -> None:
    admin.create_topic("neighbour")
    admin.create_topic("passing", config={"retention_bytes": RETENTION_BYTES_MIN})
    append(transport, "passing", "neighbour", timestamp_ms=now_ms())  # expired for one of the two
    for _ in range(OLD):
        append(transport, "passing", timestamp_ms=now_ms())
    append_large(transport, "passing")
    keys = keys_of(storage, "passing")
    shared, expired, unexpired = {keys[0]}, set(keys[1 : OLD + 1]), set(keys[OLD + 1 :])
    assert keys_of(storage, "neighbour") == [keys[0]]

    def are_gone() -> bool:
        invoke(stack, "retention")
        invoke(stack, "sweep")
        return pages(storage, storage.partition("passing")) == [2 * TAIL_ROLL_REFS] and not any(held(storage, expired))

    until(are_gone, shown=lambda: "pages or objects of expired records are still there")
    assert held(storage, shared | unexpired) == [shared | unexpired] * 3
    assert_bounds(transport, "passing", start=OLD + 1, end=OLD + 1 + NEW)
    assert [record["offset"] for record in read(transport, "neighbour", 0)[1]["records"]] == [0]


def test_truncated_records_are_hidden_at_once_and_the_topic_goes_on(transport: HttpTransport, admin: Admin) -> None:
    admin.create_topic("truncated")
    for _ in range(20):
        append(transport, "truncated", timestamp_ms=now_ms())
    assert admin.truncate("truncated", {0: 17}) == {0: 17}
    append(transport, "truncated", timestamp_ms=now_ms())
    assert_bounds(transport, "truncated", start=17, end=21)


@pytest.mark.usefixtures("short_graces")
def test_deleted_topic_leaves_nothing_behind_and_its_successor_is_not_touched(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin
) -> None:
    topic = aged_topic(transport, admin, "deleted")
    partition, dead = storage.partition(topic), set(keys_of(storage, topic))
    admin.delete_topic(topic)
    admin.create_topic(topic)
    append(transport, topic, timestamp_ms=now_ms())
    live = set(keys_of(storage, topic))

    def notes() -> list[Any]:
        found: list[Any] = storage.stack.root_client("dynamodb").query(
            TableName=storage.outputs["TopicsTable"],
            KeyConditionExpression="pk = :deleted AND sk = :id",
            ExpressionAttributeValues={":deleted": {"S": DELETED}, ":id": {"S": partition.partition("#")[0]}},
            ConsistentRead=True,
        )["Items"]
        return found

    assert notes()

    def is_gone() -> bool:
        invoke(stack, "retention")
        invoke(stack, "sweep")
        return not (notes() or pages(storage, partition) or any(held(storage, dead)))

    until(is_gone, shown=lambda: "a deleted topic's note, pages or objects are still there")
    assert held(storage, live) == [live] * 3
    assert [record["offset"] for record in read(transport, topic, 0)[1]["records"]] == [0]


def set_index_age(storage: StackStorage, since_ms: int) -> None:
    """Sets the age of the index, as an operator does after docs/how-to/operate.md."""
    storage.stack.root_client("dynamodb").put_item(
        TableName=storage.outputs["TopicsTable"],
        Item={"pk": {"S": "#cursors"}, "sk": {"S": "index-since"}, "cursor": {"S": str(since_ms)}},
    )


def test_sweep_removes_old_garbage_and_spares_the_young_the_named_and_the_foreign(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin
) -> None:
    topic = aged_topic(transport, admin, "named")
    named = set(keys_of(storage, topic))
    old, young = garbage(storage, 25 * HOUR_MS), garbage(storage, 23 * HOUR_MS)
    set_index_age(storage, now_ms() - 24 * HOUR_MS)
    done = invoke(stack, "sweep")
    assert (done["objects_deleted"], done["objects_foreign"]) == (0, 3 * len(old))
    assert held(storage, old) == [old] * 3
    set_index_age(storage, now_ms() - 26 * HOUR_MS)
    done = invoke(stack, "sweep")
    assert (done["objects_deleted"], done["objects_foreign"]) == (3 * len(old), 0)
    assert (done["sweep_failed"], done["sweep_unfinished"]) == (0, 0)
    assert held(storage, old | young | named) == [young | named] * 3


def killed(stack: Stack, task: str, operation: str) -> None:
    """Runs the task, and kills it before the effect of that call."""
    faults = Faults()
    with (
        fault_proxy(stack.endpoint_url, faults.decide) as url,
        configured(stack, function_of(task), AWS_ENDPOINT_URL_DYNAMODB=url, AWS_ENDPOINT_URL_S3=url),
    ):
        faults.kill_before.append(operation)
        answer = start(stack.root_client("lambda"), task)
        assert faults.done == [operation]
        assert "FunctionError" in answer, answer["Payload"].read()


def test_sweep_that_was_killed_among_its_deletions_is_finished_by_the_next(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin
) -> None:
    topic = aged_topic(transport, admin, "swept-twice")
    named, old = set(keys_of(storage, topic)), garbage(storage, 25 * HOUR_MS, count=20)
    set_index_age(storage, now_ms() - 26 * HOUR_MS)
    killed(stack, "sweep", "POST bucket")  # DeleteObjects
    assert any(held(storage, old))
    assert invoke(stack, "sweep")["sweep_unfinished"] == 0
    invoke(stack, "sweep")  # the run before continued at the cursor of the killed run
    assert held(storage, old | named) == [named] * 3


@pytest.mark.parametrize("operation", ["UpdateItem", "DeleteItem"])
@pytest.mark.usefixtures("short_graces")
def test_retention_that_was_killed_is_finished_by_the_next(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin, operation: str
) -> None:
    """The function dies where it raises the log start, or where it deletes pages."""
    topic = aged_topic(transport, admin, f"killed-at-{operation}")
    partition = storage.partition(topic)
    if operation == "DeleteItem":
        invoke(stack, "retention")
        time.sleep(GRACE_MS / 1_000 + 0.5)  # the grace has to pass
    killed(stack, "retention", operation)

    def is_done() -> bool:
        invoke(stack, "retention")
        return pages(storage, partition) == [2 * TAIL_ROLL_REFS]

    until(is_done, shown=lambda: "the pages of expired records are still there")
    assert_bounds(transport, topic, start=OLD, end=OLD + NEW)


def test_readers_announce_themselves_and_retention_reads_them(
    stack: Stack, storage: StackStorage, transport: HttpTransport, admin: Admin
) -> None:
    """Each function may do its part. Tests on a stepped clock hold what goes, 44 minutes later."""
    admin.create_topic("passed", config={"retention": "acknowledged"})
    admin.create_topic("copied")
    append(transport, "passed", timestamp_ms=now_ms())
    dynamodb = stack.root_client("dynamodb")
    dynamodb.update_item(  # else retention waits for a minute
        TableName=storage.outputs["TopicsTable"],
        Key={"pk": {"S": "passed"}, "sk": {"S": "topic"}},
        UpdateExpression="SET created_at_ms = :early",
        ExpressionAttributeValues={":early": {"N": str(now_ms() - HOUR_MS)}},
    )
    head = {"pk": {"S": storage.partition("passed")}, "sk": {"S": "head"}}

    def changes() -> int:
        item = dynamodb.get_item(TableName=storage.outputs["LogTable"], Key=head, ConsistentRead=True)["Item"]
        return int(item.get("reader_changes", {"N": "0"})["N"])

    def member() -> None:
        with Consumer("passed", group_id="early", transport=transport, auto_offset_reset="earliest") as consumer:
            assert next(consumer).offset == 0

    def alone() -> None:
        body = {"offsets": [{"topic": "passed", "partition": 0, "offset": 1}]}
        answer = transport.call("POST", "/v1/groups/alone/offsets", {}, {}, json.dumps(body).encode())
        assert answer.status == 200, answer.body

    for announce in (
        member,
        alone,
        lambda: admin.reset_group_offsets("early", "passed", to="earliest"),
        lambda: admin.create_share_group("workers", "passed"),
        lambda: admin.reset_share_group("workers", "passed", to="latest"),
        lambda: admin.put_subscription("copy", "passed", {"topic": "copied"}),
    ):
        before = changes()
        announce()
        assert changes() > before, announce
    done = invoke(stack, "retention")
    assert (done["retention_failed"], done["retention_unfinished"]) == (0, 0)
    admin.delete_subscription("copy")
