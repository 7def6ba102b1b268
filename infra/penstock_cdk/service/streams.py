"""Lambda's reads of the log table's stream. They cost nothing, and a filter drops records before any function starts.

AWS advises two readers of a stream at most, and `replicate` and `dispatch` are two ("Best practices for DynamoDB
Streams"). A third one would have to share their records.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from penstock_cdk.service.queues import depend_on_role
from penstock_cdk.storage.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """The share of one function in the stream: records that match `pattern`, so many at once or after `window`.

    A batch that fails is tried again in halves: `attempts_max` times (-1 is no limit), and until its records have that
    age. Then it goes to `dead`.
    """

    pattern: Mapping[str, Any]
    batch: int
    window: Duration
    dead: sqs.Queue
    attempts_max: int
    age_max: Duration


def read_stream(
    scope: Construct, construct_id: str, *, tables: Tables, function: lambda_.IFunction, source: StreamSource
) -> None:
    """Lets Lambda read the log table's stream for the function, from the oldest record that the stream has."""
    mapping = lambda_.CfnEventSourceMapping(
        scope,
        construct_id,
        function_name=function.function_name,
        event_source_arn=tables.log.table_stream_arn,
        starting_position="TRIM_HORIZON",
        batch_size=source.batch,
        maximum_batching_window_in_seconds=source.window.to_seconds(),
        filter_criteria=lambda_.CfnEventSourceMapping.FilterCriteriaProperty(
            filters=[lambda_.CfnEventSourceMapping.FilterProperty(pattern=json.dumps(source.pattern))]
        ),
        function_response_types=["ReportBatchItemFailures"],
        bisect_batch_on_function_error=True,
        maximum_retry_attempts=source.attempts_max,
        maximum_record_age_in_seconds=source.age_max.to_seconds(),
        destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
            on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(destination=source.dead.queue_arn)
        ),
    )
    depend_on_role(mapping, function)
