"""TxnOffsetCommit: notes offsets, which the transaction commits with its records.

The offsets of a member go under its leases, and never without. So the commit counts only while the member owns the
partitions. Offsets without a member count where no member owns the partition. Versions before 3 have no member.
"""

from collections.abc import Mapping
from typing import Any

from penstock.model import TopicPartition
from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.members.member import KafkaMember, MemberNames, service_id
from penstock_kafka.groups.members.sessions import Sessions
from penstock_kafka.groups.offsets.offset_commit import OffsetToCommit, commit_item, offset_of, refusal_of
from penstock_kafka.transactions.epochs.open_transaction import NotedOffset
from penstock_kafka.transactions.epochs.producers import Producers
from penstock_kafka.transactions.epochs.transactional_producer import TransactionalProducer
from penstock_kafka.transactions.refusals import code_for, refuse_if_gone

_NO_GENERATION = -1


class TxnOffsetCommit:
    """Answers TxnOffsetCommit."""

    def __init__(self, producers: Producers, sessions: Sessions) -> None:
        self._producers = producers
        self._sessions = sessions

    async def answer(self, call: Call) -> Answer:
        """The outcome for each partition: all offsets are noted, or none."""
        request = call.request
        asked = {
            TopicPartition(str(topic.name), int(each.partition_index)): offset_of(each)
            for topic in request.topics
            for each in topic.partitions
        }
        try:
            refuse_if_gone(call)
            codes = await self._note(request, asked)
        except (PenstockError, RequestRefused) as error:
            codes = dict.fromkeys(asked, code_for(error, call))
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": each.partition_index,
                            "error_code": codes[TopicPartition(str(topic.name), int(each.partition_index))],
                        }
                        for each in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    async def _note(
        self, request: Request, asked: Mapping[TopicPartition, OffsetToCommit]
    ) -> dict[TopicPartition, KafkaError]:
        epoch = (int(request.producer_id), int(request.producer_epoch))
        producer = self._producers.find(str(request.transactional_id), epoch)
        async with producer.lock:
            return await self._note_in(producer, request, asked)

    async def _note_in(
        self, producer: TransactionalProducer, request: Request, asked: Mapping[TopicPartition, OffsetToCommit]
    ) -> dict[TopicPartition, KafkaError]:
        """The caller holds the producer's lock: a look for the member takes time, and its request must not come late.

        Else an offset that the client has sent again meanwhile, and committed, could come into its next transaction.
        """
        codes = {each: refusal_of(offset) or KafkaError.none for each, offset in asked.items()}
        if any(code is not KafkaError.none for code in codes.values()):
            return codes
        group = str(request.group_id)
        try:
            member = await self._member(request, group)
        except (PenstockError, RequestRefused) as error:
            return dict.fromkeys(asked, group_error(error))
        generation = int(getattr(request, "generation_id", _NO_GENERATION))
        if member is not None and not all(_may_commit(member, each, generation) for each in asked):
            return dict.fromkeys(asked, KafkaError.illegal_generation)
        producer.add_offsets(
            group, {(group, each): _noted(group, each, offset, member) for each, offset in asked.items()}
        )
        return codes

    async def _member(self, request: Request, group: str) -> KafkaMember | None:
        member_id = str(getattr(request, "member_id", ""))
        generation = int(getattr(request, "generation_id", _NO_GENERATION))
        if not member_id and generation == _NO_GENERATION:
            return None
        instance_id = getattr(request, "group_instance_id", None)
        names = MemberNames(group=group, member_id=service_id(member_id), instance_id=instance_id)
        return await self._sessions.find(names, generation)


def _may_commit(member: KafkaMember, partition: TopicPartition, generation: int) -> bool:
    """Only under a lease. A member that has lost the partition may hold records that the next owner has copied."""
    return partition in member.leases and member.may_commit(partition, generation)


def _noted(group: str, each: TopicPartition, offset: OffsetToCommit, member: KafkaMember | None) -> NotedOffset:
    """With the lease of the partition, if a member commits."""
    if member is None:
        return NotedOffset(item={"group": group, **commit_item(each, offset)})
    names: dict[str, Any] = {"member_id": member.names.member_id}
    if member.names.instance_id is not None:
        names["instance_id"] = member.names.instance_id
    return NotedOffset(item={"group": group, **commit_item(each, offset, member), **names}, member=member)
