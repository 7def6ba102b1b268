"""/v1/topics: create, list, describe, alter, delete, offsets, truncate."""

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from handlers.entry import entry_point
from handlers.fields import partition_number, whole_number
from handlers.json_api import broker_of, error_json, json_app, only_parameters, serve_with
from handlers.models import (
    AlterTopic,
    CreateTopic,
    Number,
    OffsetList,
    PartitionBounds,
    TopicAnswer,
    TopicDescription,
    TopicList,
    TruncatedPartition,
    TruncatedPartitions,
)
from penstock_broker.alter_topic import alter_topic
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_broker.describe_topic import describe_topic, list_topics
from penstock_broker.list_offsets import OffsetSpec, list_offsets, listed
from penstock_broker.truncate import truncate
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.index import Head
from penstock_core.limits import TOPIC_LIST_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.topic import Topic, config_to_json

app = json_app()
_TAG = ["topics"]


@app.post(
    "/v1/topics",
    status_code=201,
    operation_id="createTopic",
    summary="Create a topic",
    tags=_TAG,
    middlewares=[only_parameters()],
)
def create(request: CreateTopic) -> TopicAnswer:
    return _topic(create_topic(broker_of(app), request.name, request.partitions, request.config))


@app.get(
    "/v1/topics",
    operation_id="listTopics",
    summary="List topics",
    tags=_TAG,
    middlewares=[only_parameters("limit", "after")],
)
def list_all(
    limit: Annotated[int, Query(ge=1, le=TOPIC_LIST_MAX)] = TOPIC_LIST_MAX, after: Annotated[str, Query()] = ""
) -> TopicList:
    topics, next_after = list_topics(broker_of(app), limit, after)
    return {"topics": [_topic(topic) for topic in topics], "next_after": next_after}


@app.get(
    "/v1/metadata",
    operation_id="topicMetadata",
    summary="A topic's partitions and settings",
    tags=_TAG,
    middlewares=[only_parameters("topic")],
)
def metadata(topic: Annotated[str, Query()]) -> TopicAnswer:
    # Not below /v1/topics/{topic}: IAM's * matches slashes, and who may call this must not be able to read records.
    return _topic(broker_of(app).directory.look_up(topic))


@app.get(
    "/v1/topics/<topic>",
    operation_id="describeTopic",
    summary="Describe a topic",
    tags=_TAG,
    middlewares=[only_parameters()],
)
def describe(topic: Annotated[str, Path()]) -> TopicDescription:
    found, bounds = describe_topic(broker_of(app), topic)
    offsets: list[PartitionBounds] = [
        {
            "partition": item.partition,
            "log_start_offset": item.log_start_offset,
            "high_watermark": item.high_watermark,
        }
        for item in bounds
    ]
    return {**_topic(found), "offsets": offsets}


@app.patch(
    "/v1/topics/<topic>", operation_id="alterTopic", summary="Alter a topic", tags=_TAG, middlewares=[only_parameters()]
)
def alter(topic: Annotated[str, Path()], request: AlterTopic) -> TopicAnswer:
    return _topic(alter_topic(broker_of(app), topic, request.partitions, request.config))


@app.delete(
    "/v1/topics/<topic>",
    status_code=204,
    operation_id="deleteTopic",
    summary="Delete a topic",
    tags=_TAG,
    middlewares=[only_parameters()],
)
def delete(topic: Annotated[str, Path()]) -> Response[None]:
    delete_topic(broker_of(app), topic)
    return Response(status_code=204)


@app.get(
    "/v1/topics/<topic>/offsets",
    operation_id="listOffsets",
    summary="Offsets by time, or of the ends",
    tags=_TAG,
    middlewares=[only_parameters("timestamp", "partition")],
)
def offsets(
    topic: Annotated[str, Path()],
    timestamp: Annotated[str, Query(description="earliest, latest, or milliseconds since 1970")] = "latest",
    partition: Annotated[int | None, Query(ge=0)] = None,
) -> OffsetList:
    results = listed(list_offsets(broker_of(app), topic, _spec(timestamp), partition))
    return {
        "offsets": [
            {"partition": item.partition, "offset": item.offset, "timestamp_ms": item.timestamp_ms} for item in results
        ]
    }


@app.post(
    "/v1/topics/<topic>/truncate",
    operation_id="truncateTopic",
    summary="Remove records",
    tags=_TAG,
    middlewares=[only_parameters()],
)
def truncate_topic(
    topic: Annotated[str, Path()],
    before: Annotated[
        dict[str, Number], Body(max_length=TOPIC_PARTITIONS_MAX, description="partition to the first offset that stays")
    ],
) -> TruncatedPartitions:
    wanted = {partition_number(name): offset for name, offset in before.items()}
    results = truncate(broker_of(app), topic, wanted)
    return {"partitions": [_truncated(*pair) for pair in zip(wanted, results, strict=True)]}


def _topic(topic: Topic) -> TopicAnswer:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "config": config_to_json(topic.config),
        "created_at_ms": topic.created_at_ms,
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


def _truncated(partition: int, result: Head | PenstockError) -> TruncatedPartition:
    if isinstance(result, PenstockError):
        return {"partition": partition, "error": error_json(result)}
    return {"partition": partition, "log_start_offset": result.log_start_offset}


serve = serve_with(app)
handler = entry_point(serve)
