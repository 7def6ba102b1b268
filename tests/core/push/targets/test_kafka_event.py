"""The event of Lambda targets: its bytes, its size, and Powertools' utilities for Kafka, which read it unchanged.

Answers of functions and endpoints: which records they name, and answers that fail the whole batch.
"""

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.kafka_event import KafkaEventRecord
from aws_lambda_powertools.utilities.kafka import ConsumerRecords, SchemaConfig, kafka_consumer
from aws_lambda_powertools.utilities.parser.models import KafkaSelfManagedEventModel
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.limits import PUSH_PAYLOAD_BYTES_MAX
from penstock_core.push.batch import Answer, Answered, Failed, Failure
from penstock_core.push.targets.kafka_event import decode_answer, encode_kafka_event, event_bytes, fitting
from tests.support.push_records import StoredRecord, orders, push_batch, push_record

RECORD = StoredRecord(15, 1_545_084_650_987, b"recordKey", b"Hello, this is a test.", (("headerKey", b"headerValue"),))
GOLDEN = (
    b'{"eventSource":"SelfManagedKafka","bootstrapServers":"penstock","records":{"orders-0":['
    b'{"topic":"orders","partition":0,"offset":15,"timestamp":1545084650987,"timestampType":"CREATE_TIME",'
    b'"key":"cmVjb3JkS2V5","value":"SGVsbG8sIHRoaXMgaXMgYSB0ZXN0Lg==",'
    b'"headers":[{"headerKey":[104,101,97,100,101,114,86,97,108,117,101]}]}]},'
    b'"penstock":{"subscription":"packing","subscriptionId":"0c0c0c0c0c0c0c0c0c0c","attempt":1}}'
)
octets = st.none() | st.binary()
headers = st.lists(st.tuples(st.text(), octets), max_size=3).map(tuple)
records = st.builds(StoredRecord, st.integers(0, 2**63 - 1), st.integers(-1, 2**63 - 1), octets, octets, headers)
BATCH = push_batch(
    [
        push_record(StoredRecord(15), "orders", 0),
        push_record(StoredRecord(16), "orders", 0),
        push_record(StoredRecord(15), "orders-0", 1),
    ]
)
ALL_HANDLED = Answered()


def test_event_has_its_golden_bytes() -> None:
    assert encode_kafka_event(orders(RECORD)) == GOLDEN


def test_record_has_the_fields_of_the_example_in_the_manual_of_lambda() -> None:
    example = {
        "topic": "mytopic",
        "partition": 0,
        "offset": 15,
        "timestamp": 1545084650987,
        "timestampType": "CREATE_TIME",
        "key": "abcDEFghiJKLmnoPQRstuVWXyz1234==",
        "value": "SGVsbG8sIHRoaXMgaXMgYSB0ZXN0Lg==",
        "headers": [{"headerKey": [104, 101, 97, 100, 101, 114, 86, 97, 108, 117, 101]}],
    }
    [record] = json.loads(encode_kafka_event(orders(RECORD)))["records"]["orders-0"]
    assert record == example | {"topic": "orders", "key": "cmVjb3JkS2V5"}


def test_partitions_of_several_topics_have_an_array_each() -> None:
    batch = push_batch(
        [
            push_record(StoredRecord(1), "orders", 0),
            push_record(StoredRecord(1), "orders", 1),
            push_record(StoredRecord(2), "orders", 0),
            push_record(StoredRecord(9), "bills", 0),
        ]
    )
    found = json.loads(encode_kafka_event(batch))["records"]
    assert {name: [each["offset"] for each in found[name]] for name in found} == {
        "orders-0": [1, 2],
        "orders-1": [1],
        "bills-0": [9],
    }


def test_header_bytes_are_signed_as_java_writes_them() -> None:
    record = StoredRecord(0, headers=(("h", b"\x00\x7f\x80\xff"), ("h", None)))
    [found] = json.loads(encode_kafka_event(orders(record)))["records"]["orders-0"]
    assert found["headers"] == [{"h": [0, 127, -128, -1]}, {"h": []}]


@given(st.lists(records, max_size=5))
def test_bound_of_each_record_covers_its_bytes(found: list[StoredRecord]) -> None:
    batch = orders(*found)
    assert len(encode_kafka_event(batch)) <= 1_024 + sum(event_bytes(each) for each in batch.records)


def test_records_of_the_greatest_names_and_numbers_stay_within_their_bounds() -> None:
    record = push_record(StoredRecord(2**63 - 1, 2**63 - 1), "t" * 249, 2**31 - 1)
    batch = push_batch([record])
    assert len(encode_kafka_event(batch)) <= 1_024 + event_bytes(record)


def test_delivery_takes_as_many_records_as_a_lambda_event_holds() -> None:
    content = [push_record(StoredRecord(offset, value=b"x" * 50_000)) for offset in range(100)]
    count = fitting(content)
    assert len(encode_kafka_event(push_batch(content[:count]))) <= PUSH_PAYLOAD_BYTES_MAX
    assert len(encode_kafka_event(push_batch(content[: count + 2]))) > PUSH_PAYLOAD_BYTES_MAX


def test_few_records_fit_together_and_none_needs_no_room() -> None:
    assert fitting([push_record(StoredRecord(offset)) for offset in range(7)]) == 7
    assert fitting([]) == 0


def test_record_that_is_too_large_goes_alone() -> None:
    large = push_record(StoredRecord(0, value=bytes(PUSH_PAYLOAD_BYTES_MAX)))
    assert fitting([large, large]) == 1


def event_of(*records: StoredRecord) -> Any:
    return json.loads(encode_kafka_event(orders(*records)))


JSON_RECORDS = [
    StoredRecord(offset, key=b"c1", value=json.dumps({"id": offset}).encode(), headers=(("tag", b"\xe9"),))
    for offset in (15, 16, 17)
]
CONTEXT: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: 1_000)


def test_powertools_kafka_consumer_reads_the_event() -> None:
    @kafka_consumer(schema_config=SchemaConfig(value_schema_type="JSON"))
    def handler(event: ConsumerRecords, _context: Any) -> list[Any]:
        return [(each.topic, each.partition, each.offset, each.value, each.key, each.headers) for each in event.records]

    assert handler(event_of(*JSON_RECORDS), CONTEXT) == [
        ("orders", 0, offset, {"id": offset}, "c1", {"tag": b"\xe9"}) for offset in (15, 16, 17)
    ]


@pytest.mark.parametrize(("bad", "failed"), [((), ()), ((16,), (16,)), ((15, 17), (15, 17))])
def test_powertools_batch_processor_answers_what_we_read(bad: tuple[int, ...], failed: tuple[int, ...]) -> None:
    def handle(record: KafkaEventRecord) -> None:
        if record.json_value["id"] in bad:
            raise ValueError(record.decoded_key)

    processor = BatchProcessor(event_type=EventType.Kafka)
    answer = process_partial_response(
        event=event_of(*JSON_RECORDS), record_handler=handle, processor=processor, context=CONTEXT
    )
    batch = orders(*JSON_RECORDS)
    found = decode_answer(json.dumps(answer).encode(), batch, is_json=True)
    assert isinstance(found, Answered)
    assert {offset for _, offset in found.failed} == set(failed)


def test_powertools_parser_takes_the_event_for_one_of_self_managed_kafka() -> None:
    model = KafkaSelfManagedEventModel.model_validate(event_of(RECORD))
    [record] = model.records["orders-0"]
    assert (record.offset, record.value, record.key) == (15, "Hello, this is a test.", b"recordKey")


def test_tombstone_has_a_null_value_and_a_record_without_key_a_null_key() -> None:
    [record] = event_of(StoredRecord(3, value=None))["records"]["orders-0"]
    assert (record["key"], record["value"]) == (None, None)
    assert KafkaEventRecord(record).value is None


def test_texts_are_the_base64_of_rfc_4648() -> None:
    [record] = event_of(StoredRecord(3, key=b"", value=bytes(range(256))))["records"]["orders-0"]
    assert (record["key"], base64.b64decode(record["value"], validate=True)) == ("", bytes(range(256)))


def answer_of(document: Any, *, is_json: bool = True) -> Answer:
    return decode_answer(json.dumps(document).encode(), BATCH, is_json=is_json)


def named(*identifiers: Any) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": each} for each in identifiers]}


@pytest.mark.parametrize(
    "document",
    [None, {}, "done", 7, [], {"statusCode": 200}, {"batchItemFailures": []}, {"batchItemFailures": None}],
)
def test_answer_that_names_no_record_handles_all(document: Any) -> None:
    assert answer_of(document) == ALL_HANDLED


def test_empty_answer_handles_all() -> None:
    assert decode_answer(b"", BATCH, is_json=True) == ALL_HANDLED


@pytest.mark.parametrize(
    "identifier", [{"partition": "orders-0", "offset": 16}, "orders-0-16"], ids=["as AWS has it", "as Middy writes it"]
)
def test_named_record_failed(identifier: Any) -> None:
    found = answer_of(named(identifier))
    assert found == Answered(
        failed=frozenset({BATCH.records[1].place}), error="the target names 1 of 3 records in batchItemFailures"
    )


def test_topic_whose_name_ends_like_a_partition_is_not_mistaken() -> None:
    found = answer_of(named({"partition": "orders-0-1", "offset": 15}, "orders-0-1-15", "orders-0-15"))
    assert isinstance(found, Answered)
    assert found.failed == {BATCH.records[2].place, BATCH.records[0].place}


@pytest.mark.parametrize(
    "identifier",
    [
        None,
        "",
        17,
        "orders-0",
        "orders-0-17",
        "orders-0-²",
        "orders-0-" + "9" * 5_000,
        {"partition": "orders-1", "offset": 15},
        {"partition": "orders-0", "offset": "15"},
        {"partition": "orders-0", "offset": True},
        {"partition": 0, "offset": 15},
        {"offset": 15},
    ],
)
def test_identifier_that_names_no_record_of_the_batch_fails_all(identifier: Any) -> None:
    found = answer_of(named("orders-0-15", identifier))
    assert isinstance(found, Failed)
    assert found.failure is Failure.REFUSAL
    assert "names no record of the batch" in found.error


@pytest.mark.parametrize("failures", ["all", {"itemIdentifier": "orders-0-15"}, 3, False])
def test_failures_that_are_no_array_fail_all(failures: Any) -> None:
    found = answer_of({"batchItemFailures": failures})
    assert isinstance(found, Failed)
    assert "is not an array" in found.error


@pytest.mark.parametrize("entry", [None, "orders-0-15", [], {"itemidentifier": "orders-0-15"}])
def test_entry_without_identifier_fails_all(entry: Any) -> None:
    assert isinstance(answer_of({"batchItemFailures": [entry]}), Failed)


@pytest.mark.parametrize("data", [b"<html>", b"\xff", b"[" * 100_000])
def test_text_that_is_not_json_fails_a_function_and_suits_an_endpoint(data: bytes) -> None:
    found = decode_answer(data, BATCH, is_json=True)
    assert isinstance(found, Failed)
    assert "is not JSON" in found.error
    assert decode_answer(data, BATCH, is_json=False) == ALL_HANDLED


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
)


@given(json_values)
def test_any_failures_are_understood_or_refused(failures: Any) -> None:
    found = answer_of({"batchItemFailures": failures})
    assert isinstance(found, Failed) or found.failed <= {each.place for each in BATCH.records}
