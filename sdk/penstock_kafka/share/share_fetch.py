"""ShareFetch: acknowledge what the request brings, then acquire records, or wait for some.

The client is told the stored batches and, with them, the ranges that it has acquired: records of other consumers are
in the bytes, and do not count. Records that come too late for their client go back, uncounted, and at once.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model import TopicPartition
from penstock.share.acknowledgements import GIVE_BACK, Acknowledgement
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SHARE_KEY_RECORDS_MAX, SHARE_RECORDS_MAX
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error
from penstock_kafka.groups.group_errors import uuid_of_id
from penstock_kafka.share.clients import ENDS, ShareClient, ShareClients, SharePlace
from penstock_kafka.share.group_queue import FetchWish, GroupQueues
from penstock_kafka.share.held_locks import HeldLock
from penstock_kafka.share.settle import OK, Settlement, Settler, Verdict, settlement_of, to_settle, topic_of
from penstock_kafka.share.share_acknowledge import acknowledgements_of
from penstock_kafka.share.share_calls import AcquireAnswer, AcquiredLock, AcquiredPartition
from penstock_kafka.share.share_groups import ShareGroups

_WAIT_MS_MAX = 60_000
_DELIVERIES_MAX = 2**15 - 1
_NO_LEADER = {"leader_id": -1, "leader_epoch": -1}
_OF_THE_GROUP = (KafkaError.group_authorization_failed, KafkaError.group_id_not_found, KafkaError.invalid_group_id)
_FITTER = {
    ErrorCode.ACCESS_DENIED: KafkaError.group_authorization_failed,
    ErrorCode.INVALID_NAME: KafkaError.invalid_group_id,
    ErrorCode.THROTTLED: KafkaError.kafka_storage_error,  # clients try again at this code of a partition
    ErrorCode.INVALID_REQUEST: KafkaError.kafka_storage_error,  # the group has lost a topic: a heartbeat adds it
}


def share_error(error: PenstockError) -> KafkaError:
    """The code that answers this error in ShareFetch and ShareAcknowledge."""
    return kafka_error(error, _FITTER)


@dataclass(slots=True, kw_only=True)
class _Findings:
    """The parts of an answer, by partition."""

    records: dict[SharePlace, AcquiredPartition] = field(default_factory=dict)
    errors: dict[SharePlace, Verdict] = field(default_factory=dict)
    refusal: Verdict = OK  # of the whole request


class ShareFetch:
    """Answers ShareFetch."""

    def __init__(
        self, context: Context, clients: ShareClients, settler: Settler, queues: GroupQueues, groups: ShareGroups
    ) -> None:
        self._context = context
        self._topics = context.service.topics
        self._clients = clients
        self._settler = settler
        self._queues = queues
        self._groups = groups

    async def answer(self, call: Call) -> Answer:
        """The records that the client has got, and the verdicts on its acknowledgements."""
        request = call.request
        wishes = acknowledgements_of(request)
        try:
            client = self._clients.fetching(request, monotonic_ms(), acknowledges=bool(wishes))
        except RequestRefused as refused:
            return _refused(Verdict(refused.code, refused.message))
        settlement = await settlement_of(client, wishes, self._topics)
        findings = _Findings()
        if request.share_session_epoch == ENDS or getattr(request, "is_renew_ack", False):
            await self._settler.settle(settlement)
            if request.share_session_epoch == ENDS:
                await self._settler.end(client)
        else:
            await self._fetch(call, settlement, findings)
        if findings.refusal is not OK:
            return _refused(findings.refusal)
        return {
            "error_code": KafkaError.none,
            "acquisition_lock_timeout": await self._groups.lock_ms(client.group),
            "responses": _responses(settlement.verdicts, findings),
        }

    async def _fetch(self, call: Call, settlement: Settlement, findings: _Findings) -> None:
        request, client = call.request, settlement.client
        until_ms = monotonic_ms() + int(min(max(request.max_wait.total_seconds() * 1_000, 0), _WAIT_MS_MAX))
        topics = await self._readable(client, findings)
        if not topics or request.max_bytes <= 0:
            await self._settler.settle(settlement)
            await _rest(call, until_ms)
            return
        records_max = SHARE_RECORDS_MAX
        if await self._groups.may_be_by_key(client.group):
            records_max = SHARE_KEY_RECORDS_MAX
        session, sent_ms = client.session, monotonic_ms()
        wish = FetchWish(
            records_max=max(1, min(request.max_records, records_max)),
            bytes_max=request.max_bytes,
            until_ms=until_ms,
            peer=call.peer,
            afterwards=call.afterwards,
            entries=settlement.entries,
        )
        try:
            outcome = await self._queues.fetch(client.group, topics, wish)
        except PenstockError as error:
            settlement.fail(error)
            failure: PenstockError | None = error
        else:
            settlement.take(outcome.acknowledged, sent_ms + await self._groups.lock_ms(client.group))
            failure = outcome.failure
            if outcome.answer is not None:
                is_there = client.session == session and client.epoch is not None and not call.peer.gone.is_set()
                self._hand_out(client, outcome.answer, findings, is_there=is_there)
        if failure is not None:
            self._failed(settlement, failure, findings)
            await _rest(call, until_ms)

    async def _readable(self, client: ShareClient, findings: _Findings) -> frozenset[str]:
        """The topics of the session, and errors for the partitions that are not there."""
        names: dict[object, str] = {}
        for place in client.partitions:
            try:
                if place.topic_id not in names:
                    names[place.topic_id] = await topic_of(place, self._topics)
            except (PenstockError, RequestRefused) as error:
                findings.errors[place] = Verdict(kafka_error(error), error_message(error))
        return frozenset(names.values())

    def _hand_out(self, client: ShareClient, answer: AcquireAnswer, findings: _Findings, *, is_there: bool) -> None:
        """Give the client the partitions of its session. All else goes back."""
        places = {
            named: SharePlace(uuid_of_id(each.topic_id), named.partition) for named, each in answer.partitions.items()
        }
        own: list[Acknowledgement] = []
        for lock in answer.locks:
            place = places[TopicPartition(lock.key.topic, lock.key.partition)]
            is_wanted = is_there and place in client.partitions
            if is_wanted and lock.offsets:
                client.locks.add(_held(lock))
            if not is_wanted:
                own.append(_entry(lock, is_whole=True))
            if is_wanted and lock.missing:
                own.append(_entry(lock, is_whole=False))
        for named, each in answer.partitions.items():
            if is_there and places[named] in client.partitions and each.acquired:
                findings.records[places[named]] = each
        if own:
            self._context.start(self._settler.settle(to_settle(client, own)), "penstock-kafka-share-settle")

    def _failed(self, settlement: Settlement, error: PenstockError, findings: _Findings) -> None:
        """Tell the client. An error of the group refuses the request, if no acknowledgement has an answer."""
        client = settlement.client
        self._groups.forget(client.group)
        verdict = Verdict(share_error(error), error_message(error))
        if verdict.error in _OF_THE_GROUP and all(each is not OK for each in settlement.verdicts.values()):
            findings.refusal = verdict
        elif verdict.error in _OF_THE_GROUP:
            verdict = Verdict(KafkaError.kafka_storage_error, verdict.message)
        for place in list(client.partitions)[:1]:  # none if the session has ended meanwhile
            findings.errors[place] = verdict


def _held(lock: AcquiredLock) -> HeldLock:
    count = len(lock.offsets) + len(lock.missing)
    return HeldLock(key=lock.key, lock_id=lock.key.lock_id, count=count, ends_ms=lock.ends_ms, open={*lock.offsets})


def _entry(lock: AcquiredLock, *, is_whole: bool) -> Acknowledgement:
    """The whole lock goes back, or the offsets that no batch covers: the client has not seen them (G11)."""
    offsets = sorted({*lock.offsets, *lock.missing}) if is_whole else lock.missing
    return Acknowledgement(
        key=lock.key,
        lock_id=lock.key.lock_id,
        wish=GIVE_BACK,
        offsets=tuple(offsets),
        is_whole=is_whole or not lock.offsets,
    )


async def _rest(call: Call, until_ms: int) -> None:
    """A client that was refused asks again at once: it does so once its waiting time is over."""
    try:
        async with asyncio.timeout(max(0, until_ms - monotonic_ms()) / 1_000):
            await call.peer.gone.wait()
    except TimeoutError:
        pass


def _refused(verdict: Verdict) -> Answer:
    return {"error_code": verdict.error, "error_message": verdict.message, "responses": []}


def _responses(verdicts: Mapping[SharePlace, Verdict], findings: _Findings) -> list[Answer]:
    topics: dict[object, list[Answer]] = {}
    for place in dict.fromkeys([*verdicts, *findings.records, *findings.errors]):
        acknowledged = verdicts.get(place, OK)
        error = findings.errors.get(place, OK)
        found = findings.records.get(place)
        topics.setdefault(place.topic_id, []).append(
            {
                "partition_index": place.partition,
                "error_code": error.error,
                "error_message": error.message,
                "acknowledge_error_code": int(acknowledged.error),
                "acknowledge_error_message": acknowledged.message,
                "current_leader": _NO_LEADER,
                "records": b"" if found is None else found.records(),
                "acquired_records": [] if found is None else _acquired(found),
            }
        )
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]


def _acquired(found: AcquiredPartition) -> list[Answer]:
    return [
        {
            "first_offset": each.start,
            "last_offset": each.end - 1,
            "delivery_count": min(each.deliveries, _DELIVERIES_MAX),
        }
        for each in sorted(found.acquired)
    ]
