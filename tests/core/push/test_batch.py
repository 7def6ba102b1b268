from penstock_core.ids import Partition, PartitionKey, TopicId, TopicName
from penstock_core.push.batch import PushRecord
from penstock_core.records.codec import BatchBuilder, NewRecord, decode
from penstock_core.records.record_batch import Compression


def test_record_names_its_place() -> None:
    builder = BatchBuilder(Compression.NONE)
    builder.append(*NewRecord(key=None, value=b"v", headers=[], timestamp_ms=5))
    [record] = decode(builder.build())
    key = PartitionKey(TopicId("ab" * 10), Partition(2))
    assert PushRecord(topic=TopicName("orders"), key=key, record=record).place == (key, 0)
