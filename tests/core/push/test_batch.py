from penstock_core.ids import Partition, PartitionKey, TopicId, TopicName
from penstock_core.push.batch import Failed, Failure, PushRecord, reason_of
from penstock_core.records.codec import BatchBuilder, NewRecord, decode
from penstock_core.records.record_batch import Compression


def test_record_names_its_place() -> None:
    builder = BatchBuilder(Compression.NONE)
    builder.append(*NewRecord(key=None, value=b"v", headers=[], timestamp_ms=5))
    [record] = decode(builder.build())
    key = PartitionKey(TopicId("ab" * 10), Partition(2))
    assert PushRecord(topic=TopicName("orders"), key=key, record=record).place == (key, 0)


def test_reason_is_the_error_of_the_target_or_the_kind_of_its_failure() -> None:
    assert reason_of(Failed(failure=Failure.BROKEN, error=" status 500 ")) == "status 500"
    assert reason_of(Failed(failure=Failure.BROKEN, error=" ")) == "broken, without a word of the target"
