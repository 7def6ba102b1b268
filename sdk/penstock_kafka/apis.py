"""All APIs of the gateway: key, versions and handler. A function for each room binds them to its state."""

from collections.abc import Callable, Iterable
from itertools import chain

from penstock.system import new_member_id, wall_clock_ms
from penstock_core.limits import KAFKA_METADATA_BYTES_MAX, KAFKA_PRODUCE_BYTES_MAX
from penstock_kafka.admin.acls import Acls
from penstock_kafka.admin.configs import AlterConfigs, DescribeConfigs
from penstock_kafka.admin.topics import CreatePartitions, CreateTopics, DeleteRecords, DeleteTopics
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey, Registry
from penstock_kafka.dispatch.names import with_service_names
from penstock_kafka.fetch.fetch import Fetch
from penstock_kafka.groups.admin.describe_groups import ConsumerGroupDescribe, DeleteGroups, DescribeGroups, ListGroups
from penstock_kafka.groups.classic.join_group import JoinGroup, SyncGroup
from penstock_kafka.groups.classic.leave_group import Heartbeat, LeaveGroup
from penstock_kafka.groups.consumer.consumer_group_heartbeat import ConsumerGroupHeartbeat
from penstock_kafka.groups.led.led_codec import DocumentService
from penstock_kafka.groups.led.led_groups import LedGroups
from penstock_kafka.groups.members.sessions import GroupService, Sessions
from penstock_kafka.groups.offsets.offset_commit import OffsetCommit
from penstock_kafka.groups.offsets.offset_fetch import OffsetDelete, OffsetFetch
from penstock_kafka.metadata.metadata import DescribeCluster, FindCoordinator, Metadata
from penstock_kafka.offsets.list_offsets import ListOffsets, OffsetForLeaderEpoch
from penstock_kafka.produce.produce import Produce
from penstock_kafka.produce.sender import Sender
from penstock_kafka.security.users import Sasl, Users
from penstock_kafka.share.clients import ShareClients
from penstock_kafka.share.group_queue import GroupQueues
from penstock_kafka.share.members import ShareMembers
from penstock_kafka.share.settle import Settler
from penstock_kafka.share.share_acknowledge import ShareAcknowledge
from penstock_kafka.share.share_calls import ShareCalls
from penstock_kafka.share.share_fetch import ShareFetch
from penstock_kafka.share.share_group_heartbeat import ShareGroupDescribe, ShareGroupHeartbeat
from penstock_kafka.share.share_groups import open_share_groups
from penstock_kafka.share.share_offsets import AlterShareGroupOffsets, DescribeShareGroupOffsets
from penstock_kafka.transactions.begin_and_end import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, InitProducerId
from penstock_kafka.transactions.describe import DescribeProducers, DescribeTransactions
from penstock_kafka.transactions.epochs.producers import open_producers
from penstock_kafka.transactions.txn_offset_commit import TxnOffsetCommit

LOGIN_BYTES_MAX = 16 * 1024  # of a request before the login


def metadata_apis(context: Context) -> Iterable[Api]:
    """Metadata, FindCoordinator and DescribeCluster."""
    return (
        Api(
            key=ApiKey.METADATA,
            versions=(0, 13),
            handler=Metadata(context).answer,
            bytes_max=KAFKA_METADATA_BYTES_MAX,
        ),
        Api(key=ApiKey.FIND_COORDINATOR, versions=(0, 6), handler=FindCoordinator(context.settings).answer),
        Api(key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 1), handler=DescribeCluster(context.settings).answer),
    )


def produce_apis(context: Context) -> Iterable[Api]:
    """Produce. Version 12 would let a transaction begin without AddPartitionsToTxn; 13 has ids in place of names."""
    produce = Produce(context, Sender(context))
    yield Api(
        key=ApiKey.PRODUCE,
        versions=(3, 11),
        handler=produce.answer,
        is_pipelined=True,
        bytes_max=KAFKA_PRODUCE_BYTES_MAX,
    )


def fetch_apis(context: Context) -> Iterable[Api]:
    """Fetch."""
    yield Api(key=ApiKey.FETCH, versions=(4, 16), handler=Fetch(context).answer, may_rest=True)


def offsets_apis(context: Context) -> Iterable[Api]:
    """ListOffsets and OffsetForLeaderEpoch."""
    yield Api(key=ApiKey.LIST_OFFSETS, versions=(1, 9), handler=ListOffsets(context).answer)
    yield Api(key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), handler=OffsetForLeaderEpoch(context.service).answer)


def admin_apis(context: Context) -> Iterable[Api]:
    """Topics, their settings and records, and access rules."""
    configs, acls = AlterConfigs(context), Acls(context)
    return (
        Api(key=ApiKey.CREATE_TOPICS, versions=(2, 7), handler=CreateTopics(context).answer),
        Api(key=ApiKey.DELETE_TOPICS, versions=(1, 6), handler=DeleteTopics(context).answer),
        Api(key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), handler=CreatePartitions(context).answer),
        Api(key=ApiKey.DELETE_RECORDS, versions=(0, 2), handler=DeleteRecords(context).answer),
        Api(key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), handler=DescribeConfigs(context).answer),
        Api(key=ApiKey.ALTER_CONFIGS, versions=(0, 2), handler=configs.whole),
        Api(key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), handler=configs.incremental),
        Api(key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), handler=acls.describe),
        Api(key=ApiKey.CREATE_ACLS, versions=(1, 3), handler=acls.create),
        Api(key=ApiKey.DELETE_ACLS, versions=(1, 3), handler=acls.delete),
    )


def groups_apis(context: Context) -> Iterable[Api]:
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


def share_apis(context: Context) -> Iterable[Api]:
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


def transactions_apis(context: Context) -> Iterable[Api]:
    """Producer ids and transactions, in the versions before KIP-890's second part."""
    producers = open_producers(context)
    topics = context.service.topics
    offsets = TxnOffsetCommit(producers, open_sessions(context))
    describe = DescribeTransactions(producers)
    return (
        Api(key=ApiKey.INIT_PRODUCER_ID, versions=(0, 5), handler=InitProducerId(producers).answer),
        Api(key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 3), handler=AddPartitionsToTxn(producers, topics).answer),
        Api(key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), handler=AddOffsetsToTxn(producers).answer),
        Api(key=ApiKey.END_TXN, versions=(0, 4), handler=EndTxn(producers).answer),
        Api(key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 4), handler=offsets.answer),
        Api(key=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), handler=DescribeProducers(producers, topics).answer),
        Api(key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), handler=describe.describe),
        Api(key=ApiKey.LIST_TRANSACTIONS, versions=(0, 1), handler=describe.list),
    )


def login_apis(users: Users) -> Iterable[Api]:
    """SaslHandshake and SaslAuthenticate."""
    sasl = Sasl(users)
    yield Api(
        key=ApiKey.SASL_HANDSHAKE,
        versions=(1, 1),
        handler=sasl.handshake,
        bytes_max=LOGIN_BYTES_MAX,
        is_before_login=True,
    )
    yield Api(
        key=ApiKey.SASL_AUTHENTICATE,
        versions=(0, 2),
        handler=sasl.authenticate,
        bytes_max=LOGIN_BYTES_MAX,
        is_before_login=True,
    )


ROOMS: tuple[Callable[[Context], Iterable[Api]], ...] = (
    metadata_apis,
    produce_apis,
    fetch_apis,
    offsets_apis,
    admin_apis,
)
# Their requests and answers name groups, transactional ids and instances.
NAMING_ROOMS: tuple[Callable[[Context], Iterable[Api]], ...] = (groups_apis, share_apis, transactions_apis)


def open_registry(context: Context, users: Users | None = None) -> Registry:
    """All APIs of the gateway, and those of the login if there are users."""
    login = () if users is None else login_apis(users)
    named = (with_service_names(api) for room in NAMING_ROOMS for api in room(context))
    return Registry(chain(login, named, *(room(context) for room in ROOMS)))
