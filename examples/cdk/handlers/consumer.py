"""A Lambda function that Penstock calls with the records of the topic `orders`. It notes what has to be packed.

A record whose handling raises is tried three times, and then goes to the topic `orders.dead`. The records
behind it in its partition come again, too. So an order is noted under its place in the topic, and never twice.
"""

import os
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.kafka_event import KafkaEventRecord

processor = BatchProcessor(event_type=EventType.Kafka)


@cache
def parcels() -> Any:
    """The table of this function instance."""
    return boto3.resource("dynamodb").Table(os.environ["PARCELS_TABLE"])


def note(record: KafkaEventRecord) -> None:
    """Notes the order of a record. Raises ValueError for an order without pieces."""
    order = record.json_value
    if order["pieces"] < 1:
        raise ValueError("an order has one piece or more")
    place = f"{record.topic}-{record.partition}-{record.offset}"
    parcels().put_item(Item={"place": place, "customer": order["customer"], "pieces": order["pieces"]})


def handler(event: dict[str, Any], context: Any) -> Any:
    """Handles a batch, and answers which records have failed."""
    return process_partial_response(event, note, processor, context)
