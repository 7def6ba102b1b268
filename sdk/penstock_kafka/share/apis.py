"""The APIs of this room."""

from collections.abc import Iterable

from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.share.clients import ShareClients
from penstock_kafka.share.group_queue import GroupQueues
from penstock_kafka.share.members import ShareMembers
from penstock_kafka.share.settle import Settler
from penstock_kafka.share.share_acknowledge import ShareAcknowledge
from penstock_kafka.share.share_calls import ShareCalls
from penstock_kafka.share.share_fetch import ShareFetch
from penstock_kafka.share.share_group_describe import ShareGroupDescribe
from penstock_kafka.share.share_group_heartbeat import ShareGroupHeartbeat
from penstock_kafka.share.share_groups import open_share_groups
from penstock_kafka.share.share_offsets import AlterShareGroupOffsets, DescribeShareGroupOffsets


def apis(context: Context) -> Iterable[Api]:
    """Members, sessions and locks of this gateway, and share groups as operators see them (KIP-932)."""
    service, topics = context.service, context.service.topics
    calls = ShareCalls(service, context.figures)
    groups = open_share_groups(context)
    settler = Settler(calls, groups)
    clients, members = ShareClients(), ShareMembers(context.share_members)
    fetch = ShareFetch(context, clients, settler, GroupQueues(context, calls), groups)
    acknowledge = ShareAcknowledge(clients, settler, topics, groups)
    alter = AlterShareGroupOffsets(context, members, groups)
    return (
        Api(
            key=ApiKey.SHARE_GROUP_HEARTBEAT,
            versions=(1, 1),
            handler=ShareGroupHeartbeat(members, groups, topics).answer,
        ),
        Api(key=ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1), handler=ShareGroupDescribe(service, members).answer),
        Api(key=ApiKey.SHARE_FETCH, versions=(1, 2), handler=fetch.answer, may_rest=True),
        Api(key=ApiKey.SHARE_ACKNOWLEDGE, versions=(1, 2), handler=acknowledge.answer),
        Api(
            key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1), handler=DescribeShareGroupOffsets(context).answer
        ),
        Api(key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0), handler=alter.answer),
    )
