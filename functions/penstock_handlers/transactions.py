"""Transactional producers: POST /v1/producers and POST /v1/transactions.

Stages and commits are binary. The caller's principal goes with each request (edge/access/principal.py).
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock_core.acls.rule import Kind, Operation
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import NO_NONCE, Nonce, parse_nonce, parse_transactional_id
from penstock_core.limits import (
    LEADER_EPOCH_MAX,
    OFFSET_MAX,
    PRODUCER_EPOCH_MAX,
    TOPIC_PARTITIONS_MAX,
    TRANSACTION_STAGES_MAX,
)
from penstock_core.quotas.quota import Rate
from penstock_core.records import frame
from penstock_core.transaction import Begin, TransactionalProducer
from penstock_core.zones.zone_state import Acks, parse_acks
from penstock_handlers.edge.access.request_access import access_of, principal_of
from penstock_handlers.edge.entry import entry_point
from penstock_handlers.edge.fields import refuse_unknown, take, take_number, take_objects
from penstock_handlers.edge.http import Event, Result, body_of, json_object_of, json_result
from penstock_handlers.edge.share_requests import parse_acceptances
from penstock_handlers.produce import parse_entries
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import admit, principal_spender, released_on_error
from penstock_service.records.produce_within_quotas import admit_whole
from penstock_service.transactions.begin_transactions import CommittedRange, TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import (
    OffsetEntry,
    commit_transaction,
    stage,
)

_COMMIT_FIELDS = (
    "transactional_id",
    "epoch",
    "transaction",
    "nonce",
    "stage",
    "stages",
    "acks",
    "batches",
    "offsets",
    "acknowledgements",
)


def serve(event: Event, instance: Instance) -> Result:
    """Begin the epoch of a transactional producer, stage a part of a transaction, or commit it."""
    return _BY_ROUTE[event["routeKey"]](event, instance)


def _begin(event: Event, instance: Instance) -> Result:
    fields = json_object_of(event)
    refuse_unknown(fields, "transactional_id", "nonce", "producer_id", "epoch")
    name = take(fields, "transactional_id", str)
    access = access_of(event, instance)
    access.require(Operation.WRITE, Kind.TRANSACTIONAL_ID, name)
    admit(instance, principal_spender(access.principal.name), {Rate.PRODUCE_REQUESTS: 1})
    begin = Begin(nonce=_nonce(fields), last=_last_epoch(fields), principal=principal_of(event, instance).digest)
    state = begin_transactions(instance, name, begin)
    return json_result(
        {
            "producer_id": state.producer_id,
            "epoch": state.epoch,
            "transaction": state.number + 1,
            "last_nonce": state.nonce.hex(),
        }
    )


def _last_epoch(fields: Mapping[str, Any]) -> tuple[int, int] | None:
    if ("producer_id" in fields) != ("epoch" in fields):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, "only one of producer_id and epoch: send both as the last begin told them"
        )
    if "epoch" not in fields:
        return None
    return take_number(fields, "producer_id", 0, OFFSET_MAX), take_number(fields, "epoch", 0, PRODUCER_EPOCH_MAX)


def _nonce(fields: Mapping[str, Any]) -> Nonce:
    return parse_nonce(take(fields, "nonce", str)) if "nonce" in fields else NO_NONCE


def _transact(event: Event, instance: Instance) -> Result:
    header, payload = frame.decode(body_of(event))
    refuse_unknown(header, *_COMMIT_FIELDS)
    producer = TransactionalProducer(
        transactional_id=parse_transactional_id(take(header, "transactional_id", str)),
        epoch=take_number(header, "epoch", 0, PRODUCER_EPOCH_MAX),
        principal=principal_of(event, instance).digest,
    )
    number = take_number(header, "transaction", 0, OFFSET_MAX)
    acks = parse_acks(header.get("acks", "quorum"))
    if acks not in (Acks.QUORUM, Acks.ALL):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"acks={header['acks']!r}: use 'quorum' or 'all' here")
    batches = take_objects(header, "batches") if "batches" in header else []
    access = access_of(event, instance)
    part = TransactionPart(
        producer=producer,
        number=number,
        entries=parse_entries(batches, payload),
        acks=acks,
        nonce=_nonce(header),
        principal=access.principal.name,
    )
    access.require(Operation.WRITE, Kind.TRANSACTIONAL_ID, producer.transactional_id)
    access.require(Operation.WRITE, Kind.TOPIC, *(entry.topic for entry in part.entries))
    if "stage" in header:
        for name in ("stages", "offsets", "acknowledgements"):
            if name in header:
                raise PenstockError(ErrorCode.INVALID_REQUEST, f"{name!r} goes with the commit, not with a stage")
        number_of_stage = take_number(header, "stage", 0, OFFSET_MAX)
        with released_on_error(instance, admit_whole(instance, access.principal.name, part.entries)):
            stage(instance, part, number_of_stage)
        return json_result({})
    offsets = [_offset(each) for each in take_objects(header, "offsets")] if "offsets" in header else []
    stages = take_number(header, "stages", 0, TRANSACTION_STAGES_MAX, 0)
    acceptances = parse_acceptances(header, "acknowledgements") if "acknowledgements" in header else ()
    access.require(Operation.READ, Kind.GROUP, *(each.group for each in offsets))
    access.require(Operation.READ, Kind.SHARE_GROUP, *(each.group for each in acceptances))
    access.require(
        Operation.READ, Kind.TOPIC, *(each.topic for each in offsets), *(each.entry.topic for each in acceptances)
    )
    with released_on_error(instance, admit_whole(instance, access.principal.name, part.entries)):
        found = commit_transaction(instance, part, offsets, stages, acceptances)
    return json_result({"results": [_to_json(each) for each in found]})


def _offset(fields: Mapping[str, Any]) -> OffsetEntry:
    names = ("group", "topic", "topic_id", "partition", "offset", "metadata", "member_id", "instance_id", "lease_epoch")
    refuse_unknown(fields, *names, "leader_epoch")
    return OffsetEntry(
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
        topic_id=take(fields, "topic_id", str) if fields.get("topic_id") is not None else None,
        leader_epoch=take_number(fields, "leader_epoch", 0, LEADER_EPOCH_MAX)
        if fields.get("leader_epoch") is not None
        else None,
    )


def _to_json(each: CommittedRange) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "base_offset": each.base_offset,
        "next_offset": each.next_offset,
    }


_BY_ROUTE: Mapping[str, Callable[[Event, Instance], Result]] = {
    "POST /v1/producers": _begin,
    "POST /v1/transactions": _transact,
}

handler = entry_point(serve)
