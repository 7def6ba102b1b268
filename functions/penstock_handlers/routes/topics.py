"""/v1/topics: create, list, describe, alter, delete, offsets, truncate, delayed records."""

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from penstock_core.acls.rule import Kind, Operation
from penstock_core.direct.function_arn import LAMBDA
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import OFFSET_MAX, SCHEDULED_PAGE_MAX, TOPIC_LIST_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.log.index import Head
from penstock_core.log.timer import Timer, scheduled_id
from penstock_core.log.topic import Topic, config_to_json
from penstock_core.log.wake_up import NAMESPACE
from penstock_core.outcomes import Outcome
from penstock_core.quotas.quota import ClaimKind
from penstock_handlers.edge.fields import partition_number, whole_number
from penstock_handlers.edge.json_api import (
    PAGED,
    After,
    Digits,
    JsonApp,
    caller_of,
    error_json,
    instance_of,
    principal_name,
    serve_with,
)
from penstock_handlers.edge.models.answer_models import (
    AddressAnswer,
    DeadLettersAnswer,
    OffsetAnswer,
    OffsetList,
    PartitionBounds,
    ScheduledList,
    ScheduledTimer,
    StageMetadata,
    TopicAnswer,
    TopicDescription,
    TopicList,
    TopicMetadata,
    TopicUserCounts,
    TruncatedPartition,
    TruncatedPartitions,
    WakeUpPlaceAnswer,
    move_answer,
)
from penstock_handlers.edge.models.request_models import AlterTopic, CreateTopic, Number
from penstock_service.quotas.claim_resource import forget_claim
from penstock_service.share.dead_letters.describe_letters import describe_letters
from penstock_service.timers.scheduled import cancel_scheduled, list_scheduled
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from penstock_service.topics.create_topic import create_topic
from penstock_service.topics.describe_topic import PartitionOffsets, count_users, describe_topic, list_topics
from penstock_service.topics.list_offsets import OffsetSpec, RecordPlace, list_offsets, place_of_record

app = JsonApp("topics")


@app.operation("POST /v1/topics", "createTopic", "Create a topic", status_code=201)
def create(request: CreateTopic) -> TopicAnswer:
    """Create a topic."""
    caller_of(app).require(Operation.CREATE, Kind.TOPIC, request.name)
    return _topic(create_topic(instance_of(app), request.name, request.partitions, request.config, principal_name(app)))


@app.operation("GET /v1/topics", "listTopics", "List topics", parameters=PAGED)
def list_all(limit: Annotated[Digits, Query(ge=1, le=TOPIC_LIST_MAX)] = TOPIC_LIST_MAX, after: After = "") -> TopicList:
    """List the topics that you may describe by name, `limit` at a time, from behind `after`."""
    topics, next_after = list_topics(instance_of(app).stores.topics, limit, after, caller_of(app).sees(Kind.TOPIC))
    return {"topics": [*map(_topic, topics)], "next_after": next_after}


@app.operation("GET /v1/metadata", "topicMetadata", "A topic's partitions and settings", parameters=("topic",))
def metadata(topic: Annotated[str | None, Query()] = None) -> TopicMetadata | StageMetadata:
    """Answer a topic without the bounds of its partitions: one read of one item. Without a topic it reads nothing."""
    addresses = _addresses()
    if topic is None:
        return {"addresses": addresses}
    # Not below /v1/topics/{topic}: IAM's * matches slashes, and a caller of this may not be allowed to read records.
    caller_of(app).require(Operation.DESCRIBE, Kind.TOPIC, topic)
    return {**_topic(instance_of(app).topic_cache.read_through(topic)), "addresses": addresses}


@app.operation("GET /v1/wake-ups", "wakeUps", "Where readers receive wake-ups", tag="wake-ups")
def wake_ups() -> WakeUpPlaceAnswer:
    """Answer the WebSocket on which a reader waits for records. Reads nothing."""
    place = instance_of(app).stores.wake_ups.place
    if place is None:
        return {"realtime": None}
    return {
        "realtime": place.realtime_url,
        "host": place.host,
        "realtime_host": place.realtime_host,
        "namespace": NAMESPACE,
    }


@app.operation("GET /v1/topics/<topic>", "describeTopic", "Describe a topic")
def describe(topic: Annotated[str, Path()]) -> TopicDescription:
    """Describe a topic, with the bounds of each partition."""
    instance = instance_of(app)
    found, bounds = describe_topic(instance.topic_cache, instance.stores.log, topic)
    return {**_topic(found), "offsets": [*map(_bounds, bounds)]}


@app.operation("GET /v1/topics/<topic>/users", "countTopicUsers", "Count who uses a topic")
def users(topic: Annotated[str, Path()]) -> TopicUserCounts:
    """Count the share groups and subscriptions that use a topic, also those that you may not describe."""
    found = count_users(instance_of(app), topic)
    return {"share_groups": found.share_groups, "subscriptions": found.subscriptions}


@app.operation("PATCH /v1/topics/<topic>", "alterTopic", "Alter a topic")
def alter(topic: Annotated[str, Path()], request: AlterTopic) -> TopicAnswer:
    """Change how many partitions of a topic are writable, or some of its settings."""
    return _topic(alter_topic(instance_of(app), topic, request.partitions, request.config, principal_name(app)))


@app.operation("DELETE /v1/topics/<topic>", "deleteTopic", "Delete a topic", status_code=204)
def delete(topic: Annotated[str, Path()]) -> Response[None]:
    """Delete a topic with its records."""
    topic_id = delete_topic(instance_of(app), topic)
    forget_claim(instance_of(app), principal_name(app), ClaimKind.TOPIC, topic, topic_id)
    return Response(status_code=204)


@app.operation("GET /v1/topics/<topic>/dead-letters", "describeDeadLetters", "Tell which dead letters are open")
def dead_letters(topic: Annotated[str, Path()]) -> DeadLettersAnswer:
    """Count the letters that no redrive has moved or dropped, and tell their offsets."""
    found = describe_letters(instance_of(app), topic)
    return {
        "records": sum(each.records for each in found),
        "open": sum(each.open for each in found),
        "partitions": [
            {
                "partition": each.partition,
                "records": each.records,
                "open": each.open,
                "open_ranges": list(each.open_ranges),
                "ranges_from": each.ranges_from,
            }
            for each in found
        ],
    }


@app.operation(
    "GET /v1/topics/<topic>/offsets",
    "listOffsets",
    "Offsets by time, or of the ends",
    parameters=("timestamp", "partition", "offset"),
)
def offsets(
    topic: Annotated[str, Path()],
    timestamp: Annotated[str, Query(description="earliest, latest, or milliseconds since 1970")] = "latest",
    partition: Annotated[Digits | None, Query(ge=0)] = None,
    offset: Annotated[
        Digits | None, Query(ge=0, le=OFFSET_MAX, description="of a record of the partition: tell where it lies")
    ] = None,
) -> OffsetList:
    """Answer the offset of each partition, or of one, at a time or at an end; or where one record lies."""
    if offset is not None:
        if partition is None:
            raise PenstockError(ErrorCode.INVALID_REQUEST, f"offset={offset} without a partition: give both")
        return {"offsets": [_placed(place_of_record(instance_of(app), topic, partition, offset), offset)]}
    results = list_offsets(instance_of(app), topic, _spec(timestamp), partition).all_ok()
    return {
        "offsets": [
            {
                "topic_id": item.topic_id,
                "partition": item.partition,
                "offset": item.offset,
                "timestamp_ms": item.timestamp_ms,
            }
            for item in results
        ]
    }


@app.operation("POST /v1/topics/<topic>/truncate", "truncateTopic", "Remove records")
def truncate_topic(
    topic: Annotated[str, Path()],
    before: Annotated[
        dict[str, Number], Body(max_length=TOPIC_PARTITIONS_MAX, description="partition to the first offset that stays")
    ],
) -> TruncatedPartitions:
    """Delete the records of some partitions before the offsets given."""
    wanted = {partition_number(name): offset for name, offset in before.items()}
    results = truncate(instance_of(app), topic, wanted)
    return {"partitions": [_truncated(*pair) for pair in zip(wanted, results, strict=True)]}


@app.operation(
    "GET /v1/topics/<topic>/scheduled", "listScheduled", "List delayed records", parameters=(*PAGED, "partition")
)
def scheduled(
    topic: Annotated[str, Path()],
    limit: Annotated[Digits, Query(ge=1, le=SCHEDULED_PAGE_MAX)] = SCHEDULED_PAGE_MAX,
    after: After = "",
    partition: Annotated[Digits | None, Query(ge=0)] = None,
) -> ScheduledList:
    """List the delayed records that wait, by partition and due time, `limit` at a time, from behind `after`."""
    page = list_scheduled(instance_of(app), topic, limit, after, partition)
    return {"scheduled": [_scheduled(timer) for timer in page.timers], "next_after": page.next_after}


@app.operation("DELETE /v1/topics/<topic>/scheduled/<timer>", "cancelScheduled", "Cancel delayed records")
def cancel(topic: Annotated[str, Path()], timer: Annotated[str, Path()]) -> ScheduledTimer:
    """Cancel delayed records that wait. They never come. A repeat gets the same answer."""
    return _scheduled(cancel_scheduled(instance_of(app), topic, timer))


def _scheduled(timer: Timer) -> ScheduledTimer:
    partition = timer.key.partition
    return {
        "scheduled_id": scheduled_id(partition, timer.place),
        "partition": partition,
        "deliver_at_ms": timer.place.due_ms,
        "records": timer.ref.record_count,
        "bytes": timer.ref.length,
    }


def _addresses() -> list[AddressAnswer]:
    """The ways past API Gateway. They are for callers with AWS credentials, so the subject of a token is told none."""
    callers = instance_of(app).proven_callers
    if callers is None or not callers.functions or caller_of(app).principal.is_token:
        return []
    return [{"transport": LAMBDA, "address": callers.functions}]


def _bounds(found: PartitionOffsets) -> PartitionBounds:
    answer: PartitionBounds = {
        "partition": found.partition,
        "log_start_offset": found.log_start_offset,
        "high_watermark": found.high_watermark,
        "state": found.state.value,
        "stored_bytes": found.stored_bytes,
    }
    if found.promoted_at is not None:
        answer["promoted_at"] = found.promoted_at
    return answer


def _topic(topic: Topic) -> TopicAnswer:
    answer: TopicAnswer = {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "writable_partitions": topic.writable_partitions,
        "first_writable_partition": topic.first_writable,
        "config": config_to_json(topic.config),
        "created_at_ms": topic.created_at_ms,
    }
    if topic.retention_raise is not None:
        noted = topic.retention_raise
        answer["earlier_retention"] = {"retention_ms": noted.retention_ms, "before_ms": noted.since_ms}
    if topic.mirror is not None:
        note = topic.mirror
        answer["mirror"] = {"name": note.name, "topic_id": note.topic_id, "source": note.source or None}
    if topic.move is not None:
        answer["move"] = move_answer(topic.move)
    return answer


def _placed(found: RecordPlace, offset: int) -> OffsetAnswer:
    sequence = found.sequence
    return {
        "topic_id": found.topic_id,
        "partition": found.partition,
        "offset": offset,
        "timestamp_ms": None,
        "place": {
            "start_offset": found.start_offset,
            "end_offset": found.end_offset,
            "appended_ms": found.appended_ms,
            "kind": found.tier.name.lower(),
            "segment": found.segment_id.hex(),
            "position": found.position,
            "length": found.length,
            "zones": [*found.zones],
            "producer_id": None if sequence is None else sequence.producer_id,
            "producer_epoch": None if sequence is None else sequence.epoch,
            "first_sequence": None if sequence is None else sequence.first_sequence,
        },
    }


def _spec(text: str) -> OffsetSpec | int:
    if text in ("earliest", "latest"):
        return OffsetSpec(text)
    number = whole_number(text)
    if number is not None:
        return number
    raise PenstockError(
        ErrorCode.INVALID_REQUEST, f"timestamp={text!r:.100}: must be earliest, latest or milliseconds since 1970"
    )


def _truncated(partition: int, result: Outcome[Head]) -> TruncatedPartition:
    if isinstance(result, PenstockError):
        return {"partition": partition, "error": error_json(result)}
    return {"partition": partition, "log_start_offset": result.log_start_offset}


serve = serve_with(app)
