"""The admin client for an event loop: admin.py says what each call does."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from penstock.acl_model import AccessChange, AccessDecision, AccessRule
from penstock.admin.quotas import AsyncQuotaMethods
from penstock.api import acl_calls, calls, group_admin_calls, share_group_calls, subscription_calls
from penstock.api.topic_heat import topic_heat
from penstock.group_model import Group, GroupDescription, ResetOffset
from penstock.heat_model import TopicHeat
from penstock.http.async_client import AsyncClient
from penstock.http.async_transport import AsyncTransport, open_async_transport
from penstock.http.named_transport import TransportName
from penstock.model import (
    CommittedOffset,
    OffsetAndTimestamp,
    ScheduledRecords,
    Topic,
    TopicDescription,
    TopicPartition,
    Zone,
)
from penstock.share_model import Redrive, ShareGroup, ShareGroupDescription
from penstock.subscription_model import Subscription, SubscriptionDescription
from penstock.system import wall_clock_ms


class AsyncAdmin(AsyncQuotaMethods):
    """`Admin` for asyncio, in `async with`. It belongs to one event loop, and to any number of its tasks."""

    def __init__(
        self,
        url: str | None = None,
        *,
        region: str | None = None,
        transport: AsyncTransport | TransportName | None = None,
    ) -> None:
        self._client = AsyncClient(open_async_transport(url, region, transport))

    async def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, Any] | None = None) -> Topic:
        """As `Admin.create_topic`, awaited."""
        return await self._client.call(calls.create_topic(name, partitions, {} if config is None else config))

    async def list_topics(self) -> list[Topic]:
        """As `Admin.list_topics`, awaited."""
        return await self._client.call(calls.list_topics())

    async def describe_topic(self, name: str) -> TopicDescription:
        """As `Admin.describe_topic`, awaited."""
        return await self._client.call(calls.describe_topic(name))

    async def alter_topic(self, name: str, config: Mapping[str, Any]) -> Topic:
        """As `Admin.alter_topic`, awaited."""
        return await self._client.call(calls.alter_topic(name, config))

    async def add_partitions(self, name: str, partitions: int) -> Topic:
        """As `Admin.add_partitions`, awaited."""
        return await self._client.call(calls.add_partitions(name, partitions))

    async def set_partitions(self, name: str, partitions: int) -> Topic:
        """As `Admin.set_partitions`, awaited."""
        return await self._client.call(calls.set_partitions(name, partitions))

    async def delete_topic(self, name: str) -> None:
        """As `Admin.delete_topic`, awaited."""
        await self._client.call(calls.delete_topic(name))

    async def list_offsets(self, name: str, timestamp: int | str = "latest") -> dict[int, int | None]:
        """As `Admin.list_offsets`, awaited."""
        return await self._client.call(calls.offsets_of(name, timestamp))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As `Admin.offsets_for_times`, awaited."""
        return await self._client.call(calls.offsets_at(timestamps))

    async def topic_heat(self, name: str, since_ms: int = 300_000) -> TopicHeat:
        """As `Admin.topic_heat`, awaited."""
        return await self._client.call(topic_heat(name, since_ms, wall_clock_ms()))

    async def truncate(self, name: str, before_offsets: Mapping[int, int]) -> dict[int, int]:
        """As `Admin.truncate`, awaited."""
        return await self._client.call(calls.truncate(name, before_offsets))

    async def list_scheduled(self, topic: str, partition: int | None = None) -> list[ScheduledRecords]:
        """As `Admin.list_scheduled`, awaited."""
        return await self._client.call(calls.list_scheduled(topic, partition))

    async def cancel_scheduled(self, topic: str, scheduled_id: str) -> ScheduledRecords:
        """As `Admin.cancel_scheduled`, awaited."""
        return await self._client.call(calls.cancel_scheduled(topic, scheduled_id))

    async def group_offsets(self, group: str, topic: str | None = None) -> list[CommittedOffset]:
        """As `Admin.group_offsets`, awaited."""
        return await self._client.call(calls.group_offsets(group, topic))

    async def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, metadata: str = "", may_go_back: bool = False
    ) -> None:
        """As `Admin.commit_group_offsets`, awaited."""
        await self._client.call(calls.commit_group_offsets(group, offsets, metadata, may_go_back=may_go_back))

    async def list_groups(self) -> list[Group]:
        """As `Admin.list_groups`, awaited."""
        return await self._client.call(group_admin_calls.list_groups())

    async def describe_group(self, group: str) -> GroupDescription:
        """As `Admin.describe_group`, awaited."""
        return await self._client.call(group_admin_calls.describe_group(group))

    async def alter_group(self, group: str, config: Mapping[str, Any]) -> Group:
        """As `Admin.alter_group`, awaited."""
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
        """As `Admin.reset_group_offsets`, awaited."""
        target = group_admin_calls.ResetTarget(to=to, timestamp_ms=timestamp_ms, shift_by=shift_by, offsets=offsets)
        return await self._client.call(
            group_admin_calls.reset_offsets(group, topic, target, partitions=partitions, dry_run=dry_run, force=force)
        )

    async def delete_group_offsets(
        self, group: str, topic: str, partitions: Sequence[int] | None = None
    ) -> dict[int, int | None]:
        """As `Admin.delete_group_offsets`, awaited."""
        return await self._client.call(group_admin_calls.delete_offsets(group, topic, partitions))

    async def delete_group(self, group: str) -> None:
        """As `Admin.delete_group`, awaited."""
        await self._client.call(group_admin_calls.delete_group(group))

    async def create_share_group(
        self, group: str, topics: str | Iterable[str], config: Mapping[str, Any] | None = None
    ) -> ShareGroup:
        """As `Admin.create_share_group`, awaited."""
        return await self._client.call(
            share_group_calls.create_share_group(group, topics, {} if config is None else config)
        )

    async def list_share_groups(self) -> list[ShareGroup]:
        """As `Admin.list_share_groups`, awaited."""
        return await self._client.call(share_group_calls.list_share_groups())

    async def describe_share_group(self, group: str) -> ShareGroupDescription:
        """As `Admin.describe_share_group`, awaited."""
        return await self._client.call(share_group_calls.describe_share_group(group))

    async def alter_share_group(
        self, group: str, config: Mapping[str, Any], topics: str | Iterable[str] | None = None
    ) -> ShareGroup:
        """As `Admin.alter_share_group`, awaited."""
        return await self._client.call(share_group_calls.alter_share_group(group, config, topics))

    async def reset_share_group(
        self,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        offset: int | None = None,
        timestamp_ms: int | None = None,
        partitions: Sequence[int] | None = None,
        dry_run: bool = False,
    ) -> dict[int, ResetOffset]:
        """As `Admin.reset_share_group`, awaited."""
        target = share_group_calls.ShareResetTarget(to=to, offset=offset, timestamp_ms=timestamp_ms)
        calls = share_group_calls.reset_share_group(group, topic, target, partitions, dry_run=dry_run)
        return await self._client.call(calls)

    async def delete_share_group(self, group: str) -> None:
        """As `Admin.delete_share_group`, awaited."""
        await self._client.call(share_group_calls.delete_share_group(group))

    async def redrive(
        self,
        topic: str,
        *,
        to: str | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the word of the API
        records_max: int | None = None,
        cursor: str | None = None,
    ) -> Redrive:
        """As `Admin.redrive`, awaited."""
        return await self._client.call(share_group_calls.redrive(topic, to, filter, records_max, cursor))

    async def put_subscription(
        self,
        name: str,
        topics: str | Iterable[str] | None = None,
        target: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Subscription:
        """As `Admin.put_subscription`, awaited."""
        return await self._client.call(subscription_calls.put_subscription(name, topics, target, config))

    async def list_subscriptions(self) -> list[Subscription]:
        """As `Admin.list_subscriptions`, awaited."""
        return await self._client.call(subscription_calls.list_subscriptions())

    async def describe_subscription(self, name: str) -> SubscriptionDescription:
        """As `Admin.describe_subscription`, awaited."""
        return await self._client.call(subscription_calls.describe_subscription(name))

    async def pause_subscription(self, name: str) -> Subscription:
        """As `Admin.pause_subscription`, awaited."""
        return await self._client.call(subscription_calls.pause_subscription(name))

    async def resume_subscription(self, name: str) -> Subscription:
        """As `Admin.resume_subscription`, awaited."""
        return await self._client.call(subscription_calls.resume_subscription(name))

    async def delete_subscription(self, name: str) -> None:
        """As `Admin.delete_subscription`, awaited."""
        await self._client.call(subscription_calls.delete_subscription(name))

    async def list_acls(self, *, principal: str | None = None, resource: str | None = None) -> list[AccessRule]:
        """As `Admin.list_acls`, awaited."""
        return await self._client.call(acl_calls.list_acls(principal, resource))

    async def change_acls(self, add: Iterable[AccessRule] = (), remove: Iterable[AccessRule] = ()) -> AccessChange:
        """As `Admin.change_acls`, awaited."""
        return await self._client.call(acl_calls.change_acls(add, remove))

    async def check_acl(self, operation: str, resource: str, *, principal: str | None = None) -> AccessDecision:
        """As `Admin.check_acl`, awaited."""
        return await self._client.call(acl_calls.check_acl(operation, resource, principal))

    async def release_transactional_id(self, transactional_id: str) -> None:
        """As `Admin.release_transactional_id`, awaited."""
        await self._client.call(calls.release_transactional_id(transactional_id))

    async def list_zones(self) -> list[Zone]:
        """As `Admin.list_zones`, awaited."""
        return await self._client.call(calls.list_zones())

    async def take_zone_out(self, zone: str, reason: str = "") -> Zone:
        """As `Admin.take_zone_out`, awaited."""
        return await self._client.call(calls.move_zone(zone, "taken_out", reason))

    async def let_zone_in(self, zone: str, reason: str = "") -> Zone:
        """As `Admin.let_zone_in`, awaited."""
        return await self._client.call(calls.move_zone(zone, "catching_up", reason))

    async def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """As `Admin.partitions`, awaited."""
        return await self._client.call(calls.all_partitions(topics))

    async def close(self) -> None:
        """As `Admin.close`, awaited."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        """The client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()
