"""POST /v1/producers and POST /v1/transactions: transactional producers, and what they stage and commit, in binary."""

from collections.abc import Mapping
from typing import Any

from handlers.entry import entry_point
from handlers.fields import refuse_others, take, take_number, take_objects
from handlers.http import Event, Result, body_of, json_result, parse_json, text_of
from handlers.produce import parse_entries
from penstock_broker.begin_transactions import begin_transactions
from penstock_broker.broker import Broker
from penstock_broker.commit_transaction import Committed, GroupOffset, commit_transaction, stage
from penstock_core import frame
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_transactional_id
from penstock_core.limits import (
    OFFSET_MAX,
    PRODUCER_EPOCH_MAX,
    TOPIC_PARTITIONS_MAX,
    TRANSACTION_STAGES_MAX,
)
from penstock_core.quorum import Acks, parse_acks
from penstock_core.transaction import TransactionalProducer


def serve(event: Event, broker: Broker) -> Result:
    return (_begin if event["routeKey"] == "POST /v1/producers" else _transact)(event, broker)


def _begin(event: Event, broker: Broker) -> Result:
    fields = parse_json(text_of(event))
    if not isinstance(fields, dict):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"the body must be a JSON object, not {fields!r:.100}")
    refuse_others(fields, "transactional_id")
    state = begin_transactions(broker, take(fields, "transactional_id", str))
    return json_result({"producer_id": state.producer_id, "epoch": state.epoch, "transaction": state.number + 1})


def _transact(event: Event, broker: Broker) -> Result:
    header, payload = frame.decode(body_of(event))
    refuse_others(header, "transactional_id", "epoch", "transaction", "stage", "stages", "acks", "batches", "offsets")
    producer = TransactionalProducer(
        transactional_id=parse_transactional_id(take(header, "transactional_id", str)),
        epoch=take_number(header, "epoch", 0, PRODUCER_EPOCH_MAX),
    )
    number = take_number(header, "transaction", 0, OFFSET_MAX)
    acks = parse_acks(header.get("acks", "quorum"))
    if acks not in (Acks.QUORUM, Acks.ALL):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"acks={acks.value!r}: a transaction takes 'quorum' or 'all'")
    batches = take_objects(header, "batches") if "batches" in header else []
    entries = parse_entries(batches, payload)
    if "stage" in header:
        for name in ("stages", "offsets"):
            if name in header:
                raise PenstockError(ErrorCode.INVALID_REQUEST, f"{name!r} goes with the commit, not with a stage")
        stage(broker, producer, number, take_number(header, "stage", 0, OFFSET_MAX), entries, acks)
        return json_result({})
    offsets = [_offset(each) for each in take_objects(header, "offsets")] if "offsets" in header else []
    stages = take_number(header, "stages", 0, TRANSACTION_STAGES_MAX, 0)
    found = commit_transaction(broker, producer, number, entries, offsets, stages, acks)
    return json_result({"results": [_to_json(each) for each in found]})


def _offset(fields: Mapping[str, Any]) -> GroupOffset:
    refuse_others(
        fields, "group", "topic", "partition", "offset", "metadata", "member_id", "instance_id", "lease_epoch"
    )
    return GroupOffset(
        group=take(fields, "group", str),
        topic=take(fields, "topic", str),
        partition=take_number(fields, "partition", 0, TOPIC_PARTITIONS_MAX - 1),
        offset=take_number(fields, "offset", 0, OFFSET_MAX),
        metadata=take(fields, "metadata", str, ""),
        member_id=take(fields, "member_id", str) if fields.get("member_id") is not None else None,
        instance_id=take(fields, "instance_id", str) if fields.get("instance_id") is not None else None,
        lease_epoch=take_number(fields, "lease_epoch", 0, OFFSET_MAX)
        if fields.get("lease_epoch") is not None
        else None,
    )


def _to_json(each: Committed) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "base_offset": each.base_offset,
        "next_offset": each.next_offset,
    }


handler = entry_point(serve)
