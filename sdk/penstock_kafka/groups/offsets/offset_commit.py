"""OffsetCommit: as a member under its leases, or without a member where no member owns the partition.

Kafka lets the last commit win. The service lets offsets only rise, unless a commit names the one that it goes back from
(docs/adr/0022). The gateway names it for a client that may go back:

| the commit comes from                                      | below the group's offset                              |
|------------------------------------------------------------|-------------------------------------------------------|
| a member, and the gateway knows the group's offset         | goes back: the client has sought there                |
| a member, and another gateway has let it join or commit    | refused, until the client has joined again            |
| a client without a member (generation -1)                  | goes back: an operator's tool, or manual assignment   |
| a connection that its client has closed                    | refused: the client has sent it again, or has gone on |

Generation -1 makes a client one without a member, even if it names a member id: a consumer of the newer protocol has
an id before it joins, and a consumer that assigns partitions by itself never joins.

The offsets -1 and -2 are the partition's end and its beginning, as in ListOffsets: kafkajs resets a group by them.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.api.calls import offset_item, seen_commit
from penstock.model import TopicPartition
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import COMMIT_METADATA_BYTES_MAX, COMMIT_OFFSET_MAX
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.members.member import KafkaMember, MemberNames, service_id
from penstock_kafka.groups.members.sessions import Sessions

Refusals = dict[TopicPartition, KafkaError]

_DELETED = (ErrorCode.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID)  # the topic is gone, or made anew
_NO_EPOCH = -1
_WORDS = {-1: "latest", -2: "earliest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    """An offset, and what the client keeps with it: a text and a leader epoch."""

    offset: int
    metadata: str
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """The client that commits: a member in a generation, or none (generation -1). `gone` is its connection's."""

    names: MemberNames
    generation: int
    gone: asyncio.Event

    @property
    def is_member(self) -> bool:
        """True if the client says that it is a member."""
        return self.generation >= 0


class OffsetCommit:
    """Answers OffsetCommit."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def answer(self, call: Call) -> Answer:
        """The outcome for each partition."""
        request = call.request
        offsets = {
            TopicPartition(str(topic.name), int(each.partition_index)): offset_of(each)
            for topic in request.topics
            for each in topic.partitions
        }
        try:
            refused = await self.commit(_committer_of(call), await self._resolved(offsets))
        except (PenstockError, RequestRefused) as error:
            refused = dict.fromkeys(offsets, group_error(error))
        return {"topics": [_told(topic, refused) for topic in request.topics]}

    async def _resolved(self, offsets: Mapping[TopicPartition, OffsetToCommit]) -> dict[TopicPartition, OffsetToCommit]:
        """The offsets, with the partition's end and beginning in place of -1 and -2. What cannot be found stays.

        One call of the service for each topic and word.
        """
        resolved = {**offsets}
        asked = {
            (where.topic, word) for where, each in offsets.items() if (word := _WORDS.get(each.offset)) is not None
        }
        for topic, word in sorted(asked):
            found = await self._sessions.service.offsets_at(topic, word)
            for where, each in offsets.items():
                if where.topic == topic and _WORDS.get(each.offset) == word and where.partition in found:
                    resolved[where] = replace(each, offset=found[where.partition])
        return resolved

    async def commit(self, committer: Committer, offsets: Mapping[TopicPartition, OffsetToCommit]) -> Refusals:
        """The refused partitions. A refusal of the committer is one of all its partitions."""
        refused = {each: code for each, asked in offsets.items() if (code := refusal_of(asked)) is not None}
        good = {each: asked for each, asked in offsets.items() if each not in refused}
        if not good:
            return refused
        try:
            if not committer.is_member:
                return refused | await self._commit_alone(committer, good)
            member = await self._sessions.find(committer.names, committer.generation)
            return refused | await self._commit_as_member(member, committer, good)
        except (PenstockError, RequestRefused) as error:
            return refused | dict.fromkeys(good, group_error(error))

    async def _commit_alone(self, committer: Committer, offsets: Mapping[TopicPartition, OffsetToCommit]) -> Refusals:
        items = {each: commit_item(each, asked) for each, asked in offsets.items()}
        service = self._sessions.service
        errors = await service.commit(committer.names.group, [*items.values()], {})
        back = {each: error for each, error in errors.items() if error.code is ErrorCode.OFFSET_BEHIND}
        if back and not committer.gone.is_set():
            errors = _but(errors, back) | await self._go_back(committer.names.group, items, back, {})
        return {each: group_error(error) for each, error in errors.items()}

    async def _commit_as_member(
        self, member: KafkaMember, committer: Committer, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> Refusals:
        """Under the lease of each partition. One that the member has no lease of counts if no member owns it."""
        stale = KafkaError.illegal_generation if member.is_classic else KafkaError.stale_member_epoch
        refused = {each: stale for each in offsets if not member.may_commit(each, committer.generation)}
        good = {each: asked for each, asked in offsets.items() if each not in refused}
        leased = {each: commit_item(each, asked, member) for each, asked in good.items() if each in member.leases}
        others = {each: commit_item(each, asked) for each, asked in good.items() if each not in member.leases}
        names = {"member_id": member.names.member_id}
        if member.names.instance_id is not None:
            names["instance_id"] = member.names.instance_id
        errors = await self._commit_leased(member, committer, leased, names) if leased else {}
        if others:
            errors |= await self._sessions.service.commit(member.names.group, [*others.values()], {})
        lost = KafkaError.illegal_generation if member.is_classic else KafkaError.unknown_member_id
        by_lease = {ErrorCode.LEASE_FENCED: lost, ErrorCode.LEASE_HELD: lost, ErrorCode.OFFSET_BEHIND: lost}
        return refused | {each: by_lease.get(error.code) or group_error(error) for each, error in errors.items()}

    async def _commit_leased(
        self,
        member: KafkaMember,
        committer: Committer,
        items: Mapping[TopicPartition, Mapping[str, Any]],
        names: Mapping[str, str],
    ) -> dict[TopicPartition, PenstockError]:
        """Commit under leases. A lease that turns out to be another one's, or used elsewhere, is lost."""
        used = {each: member.leases[each] for each in items}
        group = member.names.group
        errors = await self._sessions.service.commit(group, [*items.values()], names)
        back = {
            each: error
            for each, error in errors.items()
            if error.code is ErrorCode.OFFSET_BEHIND and member.may_go_back(each, error.facts["committed_offset"])
        }
        if committer.gone.is_set() or (back and not await self._sessions.is_newest(member)):
            back = {}
        errors = _but(errors, back) | await self._go_back(group, items, back, names)
        for each, item in items.items():
            error = errors.get(each)
            if error is None:
                member.known[each] = item["offset"]
            elif member.leases.get(each) == used[each] and _is_lost(member, committer, error):
                member.lost(each)
                member.looks_at_topics |= error.code in _DELETED  # else the group would grant it anew
        return errors

    async def _go_back(
        self,
        group: str,
        items: Mapping[TopicPartition, Mapping[str, Any]],
        back: Mapping[TopicPartition, PenstockError],
        names: Mapping[str, str],
    ) -> dict[TopicPartition, PenstockError]:
        """Commit these again, each back from the commit that its error names. Another commit may come first."""
        if not back:
            return {}
        again = [{**items[each], "back_from": seen_commit(error)} for each, error in back.items()]
        return await self._sessions.service.commit(group, again, names)


def _committer_of(call: Call) -> Committer:
    request = call.request
    names = MemberNames(
        group=str(request.group_id),
        member_id=service_id(str(request.member_id)),
        instance_id=getattr(request, "group_instance_id", None),
    )
    return Committer(names=names, generation=request.generation_id_or_member_epoch, gone=call.peer.gone)


def _is_lost(member: KafkaMember, committer: Committer, error: PenstockError) -> bool:
    """The error tells that the lease is another one's, that its member has committed elsewhere, or of a lost topic."""
    if error.code is ErrorCode.OFFSET_BEHIND:
        return not (member.is_untold or committer.gone.is_set())
    return error.code in (ErrorCode.LEASE_FENCED, *_DELETED)


def _but(
    errors: Mapping[TopicPartition, PenstockError], others: Mapping[TopicPartition, PenstockError]
) -> dict[TopicPartition, PenstockError]:
    return {each: error for each, error in errors.items() if each not in others}


def refusal_of(asked: OffsetToCommit) -> KafkaError | None:
    """The code for an offset that no group can have; None for a good one."""
    if len(asked.metadata.encode()) > COMMIT_METADATA_BYTES_MAX:
        return KafkaError.offset_metadata_too_large
    return None if 0 <= asked.offset <= COMMIT_OFFSET_MAX else KafkaError.offset_out_of_range


def offset_of(each: Request) -> OffsetToCommit:
    """The offset of one partition of a request. Old versions name no leader epoch."""
    epoch = int(getattr(each, "committed_leader_epoch", _NO_EPOCH))
    return OffsetToCommit(
        offset=int(each.committed_offset),
        metadata=each.committed_metadata or "",
        leader_epoch=None if epoch == _NO_EPOCH else epoch,
    )


def commit_item(each: TopicPartition, asked: OffsetToCommit, member: KafkaMember | None = None) -> dict[str, Any]:
    """The offset as the service takes it, with the lease of the member that commits it."""
    lease = None if member is None else member.leases[each]
    return offset_item(
        each,
        asked.offset,
        metadata=asked.metadata,
        leader_epoch=asked.leader_epoch,
        lease_epoch=None if lease is None else lease.lease_epoch,
        topic_id=None if lease is None else lease.topic_id,
    )


def _told(topic: Request, refused: Mapping[TopicPartition, KafkaError]) -> Answer:
    return {
        "name": topic.name,
        "partitions": [
            {
                "partition_index": each.partition_index,
                "error_code": refused.get(TopicPartition(str(topic.name), int(each.partition_index)), KafkaError.none),
            }
            for each in topic.partitions
        ],
    }
