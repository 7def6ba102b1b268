"""The service's calls about groups, as the gateway makes them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.api.calls import commit_offsets, committed_offsets, list_offsets
from penstock.api.group_admin_calls import delete_group, describe_group, list_groups, try_delete_offsets
from penstock.group.group_calls import beat
from penstock.group.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.http.async_client import AsyncClient
from penstock.http.steps import drive_async
from penstock.model import CommittedOffset, TopicPartition
from penstock.model.groups import Group, GroupDescription
from penstock_core.errors import ErrorCode, PenstockError


class GroupService:
    """Groups of one stack. Every method raises the service's PenstockError."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def heartbeat(self, group: str, body: Mapping[str, Any]) -> HeartbeatResponse:
        """One try. A repeat needs a body with a higher sequence."""
        request = HeartbeatRequest(body=body, sent_at_ms=0, session=0, claims=0)
        answer = await drive_async(beat(group, request), self._client.try_once)
        if isinstance(answer, PenstockError):
            raise answer
        return answer

    async def commit(
        self, group: str, items: Sequence[Mapping[str, Any]], names: Mapping[str, str]
    ) -> dict[TopicPartition, PenstockError]:
        """The refused offsets, with the error of each. `names` has the member's, and is empty without a member."""
        return await self._client.call(commit_offsets(group, items, **names))

    async def committed(self, group: str, topics: Iterable[str] | None) -> dict[TopicPartition, CommittedOffset]:
        """The group's offsets, of some topics or of all (None). A topic that does not exist has none."""
        if topics is None:
            return await self._client.call(committed_offsets(group))
        found: dict[TopicPartition, CommittedOffset] = {}
        for topic in dict.fromkeys(topics):
            try:
                found |= await self._client.call(committed_offsets(group, topic))
            except PenstockError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC:
                    raise
        return found

    async def offsets_at(self, topic: str, word: str) -> dict[int, int]:
        """The "latest" or "earliest" offsets of a topic, by partition. A topic that does not exist has none."""
        try:
            found = await self._client.call(list_offsets(topic, word))
        except PenstockError as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC, ErrorCode.INVALID_NAME):
                raise
            return {}
        return {number: at.offset for number, at in found.items() if at is not None}

    async def describe(self, group: str) -> GroupDescription:
        """The group, its members and partitions."""
        return await self._client.call(describe_group(group))

    async def groups(self) -> list[Group]:
        """All groups that the caller may see."""
        return await self._client.call(list_groups())

    async def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets."""
        await self._client.call(delete_group(group))

    async def delete_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> dict[int, PenstockError]:
        """Delete the group's offsets in these partitions, which none of its members reads. The errors of some."""
        outcomes = await self._client.call(try_delete_offsets(group, topic, partitions))
        return {each: outcome for each, outcome in outcomes.items() if isinstance(outcome, PenstockError)}
