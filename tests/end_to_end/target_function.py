"""A Lambda function as users write it, with Powertools. It knows nothing of Penstock.

tests/end_to_end/test_push_targets.py deploys it to the emulator. `stream` and `batch` fail for records with `poison`.
They write the id of any other record that names a file, `handled`, into that file.
"""

from pathlib import Path
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.kafka_event import KafkaEventRecord
from aws_lambda_powertools.utilities.kafka import ConsumerRecords, SchemaConfig, kafka_consumer

_processor = BatchProcessor(event_type=EventType.Kafka)


@kafka_consumer(schema_config=SchemaConfig(value_schema_type="JSON"))
def stream(event: ConsumerRecords, _context: Any) -> None:
    for record in event.records:
        _handle(record.value, record.key, record.headers)


def batch(event: dict[str, Any], context: Any) -> Any:
    return process_partial_response(event, record_handler=_record, processor=_processor, context=context)


def _record(record: KafkaEventRecord) -> None:
    key = record.decoded_key
    _handle(record.json_value, key.decode() if key else None, record.decoded_headers)


def _handle(value: Any, key: str | None, headers: Any) -> None:
    if value.get("poison"):
        raise ValueError(f"poison of {key} with {dict(headers)}")
    if value.get("handled"):
        with Path(value["handled"]).open("a") as file:
            file.write(f"{value['id']}\n")
