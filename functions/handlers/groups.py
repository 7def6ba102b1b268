"""/v1/groups: committed offsets."""

from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from handlers.entry import entry_point
from handlers.json_api import broker_of, error_json, json_app, only_parameters, serve_with
from handlers.models import CommitOffsets, CommitResult, CommitResults, CommittedOffsets
from penstock_broker.commit_offsets import CommitEntry, commit_offsets
from penstock_broker.committed_offsets import committed_offsets
from penstock_core.errors import PenstockError

app = json_app()


@app.post(
    "/v1/groups/<group>/offsets",
    operation_id="commitOffsets",
    summary="Commit offsets of a group",
    tags=["groups"],
    middlewares=[only_parameters()],
)
def commit(group: Annotated[str, Path()], request: CommitOffsets) -> CommitResults:
    entries = [
        CommitEntry(topic=item.topic, partition=item.partition, offset=item.offset, metadata=item.metadata)
        for item in request.offsets
    ]
    results = commit_offsets(broker_of(app), group, entries)
    return {"results": [_to_json(*pair) for pair in zip(entries, results, strict=True)]}


@app.get(
    "/v1/groups/<group>/offsets",
    operation_id="committedOffsets",
    summary="Read a group's offsets",
    tags=["groups"],
    middlewares=[only_parameters("topic")],
)
def committed(group: Annotated[str, Path()], topic: Annotated[str | None, Query()] = None) -> CommittedOffsets:
    found = committed_offsets(broker_of(app), group, topic)
    return {
        "offsets": [
            {
                "topic": item.topic,
                "partition": item.partition.partition,
                "offset": item.offset,
                "metadata": item.metadata,
                "committed_at_ms": item.committed_at_ms,
            }
            for item in found
        ]
    }


def _to_json(entry: CommitEntry, result: PenstockError | None) -> CommitResult:
    answer: CommitResult = {"topic": entry.topic, "partition": entry.partition}
    if result is not None:
        answer["error"] = error_json(result)
    return answer


serve = serve_with(app)
handler = entry_point(serve)
