"""The APIs of this room."""

from collections.abc import Iterable

from penstock.system import new_member_id, wall_clock_ms
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.groups.admin.describe_groups import ConsumerGroupDescribe, DescribeGroups
from penstock_kafka.groups.admin.list_groups import DeleteGroups, ListGroups
from penstock_kafka.groups.admin.offset_delete import OffsetDelete
from penstock_kafka.groups.classic.heartbeat import Heartbeat
from penstock_kafka.groups.classic.join_group import JoinGroup
from penstock_kafka.groups.classic.leave_group import LeaveGroup
from penstock_kafka.groups.classic.sync_group import SyncGroup
from penstock_kafka.groups.consumer.consumer_group_heartbeat import ConsumerGroupHeartbeat
from penstock_kafka.groups.led.documents import DocumentService
from penstock_kafka.groups.led.led_groups import LedGroups
from penstock_kafka.groups.members.group_service import GroupService
from penstock_kafka.groups.members.sessions import Sessions
from penstock_kafka.groups.offsets.offset_commit import OffsetCommit
from penstock_kafka.groups.offsets.offset_fetch import OffsetFetch


def apis(context: Context) -> Iterable[Api]:
    """Members of both protocols, their offsets, and groups as operators see them."""
    sessions = open_sessions(context)
    led = LedGroups(DocumentService(context.service.client), new_member_id(), context.start)
    shared = (context.service, context.share_members)
    return (
        Api(key=ApiKey.JOIN_GROUP, versions=(0, 9), handler=JoinGroup(sessions, led).answer, may_rest=True),
        Api(key=ApiKey.SYNC_GROUP, versions=(0, 5), handler=SyncGroup(sessions, led).answer, may_rest=True),
        Api(key=ApiKey.HEARTBEAT, versions=(0, 4), handler=Heartbeat(sessions, led).answer),
        Api(key=ApiKey.LEAVE_GROUP, versions=(0, 5), handler=LeaveGroup(sessions, led).answer),
        Api(
            key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
            versions=(0, 1),
            handler=ConsumerGroupHeartbeat(sessions, context.service.topics).answer,
        ),
        Api(key=ApiKey.OFFSET_COMMIT, versions=(2, 9), handler=OffsetCommit(sessions).answer),
        Api(key=ApiKey.OFFSET_FETCH, versions=(1, 9), handler=OffsetFetch(sessions).answer),
        Api(key=ApiKey.LIST_GROUPS, versions=(0, 5), handler=ListGroups(sessions, *shared).answer),
        Api(key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), handler=DescribeGroups(sessions, led).answer),
        Api(key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), handler=ConsumerGroupDescribe(sessions).answer),
        Api(key=ApiKey.DELETE_GROUPS, versions=(0, 2), handler=DeleteGroups(sessions, led, *shared).answer),
        Api(key=ApiKey.OFFSET_DELETE, versions=(0, 0), handler=OffsetDelete(sessions).answer),
    )


def open_sessions(context: Context) -> Sessions:
    """The members of this gateway. Transactions that commit their offsets use them too."""
    return context.share(Sessions, lambda: Sessions(GroupService(context.service.client), wall_clock_ms))
