"""The APIs of this room."""

from collections.abc import Iterable

from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.groups.apis import open_sessions
from penstock_kafka.transactions.add_offsets_to_txn import AddOffsetsToTxn
from penstock_kafka.transactions.add_partitions_to_txn import AddPartitionsToTxn
from penstock_kafka.transactions.describe import DescribeProducers, DescribeTransactions
from penstock_kafka.transactions.end_txn import EndTxn
from penstock_kafka.transactions.epochs.producers import open_producers
from penstock_kafka.transactions.init_producer_id import InitProducerId
from penstock_kafka.transactions.txn_offset_commit import TxnOffsetCommit


def apis(context: Context) -> Iterable[Api]:
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
