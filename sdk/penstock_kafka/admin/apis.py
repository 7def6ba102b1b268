"""The APIs of this room."""

from collections.abc import Iterable

from penstock_kafka.admin.acls import Acls
from penstock_kafka.admin.alter_configs import AlterConfigs
from penstock_kafka.admin.create_partitions import CreatePartitions
from penstock_kafka.admin.create_topics import CreateTopics
from penstock_kafka.admin.delete_records import DeleteRecords
from penstock_kafka.admin.delete_topics import DeleteTopics
from penstock_kafka.admin.describe_configs import DescribeConfigs
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey


def apis(context: Context) -> Iterable[Api]:
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
