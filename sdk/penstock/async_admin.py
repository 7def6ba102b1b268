"""Topics and groups, managed from an event loop: admin.py says what each call does."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from penstock import calls, group_admin_calls
from penstock.async_client import AsyncClient
from penstock.async_transport import AsyncTransport, open_async_transport
from penstock.group_model import Group, GroupDescription, ResetOffset
from penstock.model import CommittedOffset, OffsetAndTimestamp, Topic, TopicDescription, TopicPartition, Zone
from penstock.start_offsets import offsets_at


class AsyncAdmin:
    """As Admin, in `async with`. For one event loop, and any number of its tasks."""

    def __init__(
        self, url: str | None = None, *, region: str | None = None, transport: AsyncTransport | None = None
    ) -> None:
        self._client = AsyncClient(open_async_transport(url, region, transport))

    async def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, Any] | None = None) -> Topic:
        """As Admin.create_topic."""
        return await self._client.call(calls.create_topic(name, partitions, {} if config is None else config))

    async def list_topics(self) -> list[Topic]:
        """As Admin.list_topics."""
        return await self._client.call(calls.list_topics())

    async def describe_topic(self, name: str) -> TopicDescription:
        """As Admin.describe_topic."""
        return await self._client.call(calls.describe_topic(name))

    async def alter_topic(self, name: str, config: Mapping[str, Any]) -> Topic:
        """As Admin.alter_topic."""
        return await self._client.call(calls.alter_topic(name, config))

    async def add_partitions(self, name: str, partitions: int) -> Topic:
        """As Admin.add_partitions."""
        return await self._client.call(calls.add_partitions(name, partitions))

    async def delete_topic(self, name: str) -> None:
        """As Admin.delete_topic."""
        await self._client.call(calls.delete_topic(name))

    async def list_offsets(self, name: str, timestamp: int | str = "latest") -> dict[int, int | None]:
        """As Admin.list_offsets."""
        return await self._client.call(calls.offsets_of(name, timestamp))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As Admin.offsets_for_times."""
        return await self._client.call(offsets_at(timestamps))

    async def truncate(self, name: str, before_offsets: Mapping[int, int]) -> dict[int, int]:
        """As Admin.truncate."""
        return await self._client.call(calls.truncate(name, before_offsets))

    async def group_offsets(self, group: str, topic: str | None = None) -> list[CommittedOffset]:
        """As Admin.group_offsets."""
        return await self._client.call(calls.group_offsets(group, topic))

    async def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, metadata: str = ""
    ) -> None:
        """As Admin.commit_group_offsets."""
        await self._client.call(calls.commit_group_offsets(group, offsets, metadata))

    async def list_groups(self) -> list[Group]:
        """As Admin.list_groups."""
        return await self._client.call(group_admin_calls.list_groups())

    async def describe_group(self, group: str) -> GroupDescription:
        """As Admin.describe_group."""
        return await self._client.call(group_admin_calls.describe_group(group))

    async def alter_group(self, group: str, config: Mapping[str, Any]) -> Group:
        """As Admin.alter_group."""
        return await self._client.call(group_admin_calls.alter_group(group, config))

    async def reset_group_offsets(
        self,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        timestamp_ms: int | None = None,
        shift_by: int | None = None,
        offsets: Mapping[int, int] | None = None,
        partitions: Sequence[int] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> dict[int, ResetOffset]:
        """As Admin.reset_group_offsets."""
        return await self._client.call(
            group_admin_calls.reset_offsets(
                group,
                topic,
                to=to,
                timestamp_ms=timestamp_ms,
                shift_by=shift_by,
                offsets=offsets,
                partitions=partitions,
                dry_run=dry_run,
                force=force,
            )
        )

    async def delete_group(self, group: str) -> None:
        """As Admin.delete_group."""
        await self._client.call(group_admin_calls.delete_group(group))

    async def list_zones(self) -> list[Zone]:
        """As Admin.list_zones."""
        return await self._client.call(calls.list_zones())

    async def take_zone_out(self, zone: str, reason: str = "") -> Zone:
        """As Admin.take_zone_out."""
        return await self._client.call(calls.move_zone(zone, "taken_out", reason))

    async def let_zone_in(self, zone: str, reason: str = "") -> Zone:
        """As Admin.let_zone_in."""
        return await self._client.call(calls.move_zone(zone, "catching_up", reason))

    async def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """As Admin.partitions."""
        return await self._client.call(calls.all_partitions(topics))

    async def close(self) -> None:
        """Give back connections."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
