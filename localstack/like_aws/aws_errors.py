"""The errors of AWS as bytes: DynamoDB's and Lambda's JSON, S3's XML, the HTTP API's message.

The shapes are those of botocore's models. Texts that no model has are from AWS's guides or from public reports.
"""

import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from localstack.like_aws.exchange import Answer

_DYNAMODB = "com.amazonaws.dynamodb.v20120810#"
_AVAILABILITY = "com.amazon.coral.availability#"
ON_DEMAND_MESSAGE = (
    "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your table or "
    "index so please try again shortly. If exceptions persist, check if you have a hot key: "
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html"
)
PROVISIONED_MESSAGE = (
    "The level of configured provisioned throughput for the table was exceeded. Consider increasing your provisioning "
    "level with the UpdateTable API."
)
CONFLICT_MESSAGE = "Transaction is ongoing for the item"


def throttling(reasons: Sequence[Mapping[str, str]], *, is_on_demand: bool) -> Answer:
    """DynamoDB's refusal of a call that exceeds its throughput: one of two types, by the table's billing."""
    if is_on_demand:
        return _dynamodb(_AVAILABILITY + "ThrottlingException", message=ON_DEMAND_MESSAGE, throttlingReasons=reasons)
    name = _DYNAMODB + "ProvisionedThroughputExceededException"
    return _dynamodb(name, message=PROVISIONED_MESSAGE, ThrottlingReasons=reasons)


def transaction_conflict() -> Answer:
    """DynamoDB's refusal of a write of an item that a transaction holds."""
    return _dynamodb(_DYNAMODB + "TransactionConflictException", message=CONFLICT_MESSAGE)


def transaction_cancelled(reasons: Sequence[Mapping[str, str]]) -> Answer:
    """DynamoDB's cancellation of a transaction, with a reason for each action: `{"Code": "None"}` for one without."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return _dynamodb(_DYNAMODB + "TransactionCanceledException", Message=message, CancellationReasons=reasons)


def s3_error(status: int, code: str, message: str) -> Answer:
    """S3's error with that code."""
    text = (
        f"<Code>{code}</Code><Message>{escape(message)}</Message><RequestId>{_id()}</RequestId><HostId>{_id()}</HostId>"
    )
    return s3_answer(status, f"<Error>{text}</Error>")


def s3_answer(status: int, xml: str) -> Answer:
    """S3's answer with that document."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{xml}'.encode()
    headers = ((b"content-type", b"application/xml"), (b"x-amz-request-id", _id().encode()))
    return Answer(status=status, headers=headers, body=body)


def lambda_error(status: int, code: str, **members: str) -> Answer:
    """Lambda's error with that code, of an Invoke."""
    headers = (
        (b"content-type", b"application/json"),
        (b"x-amzn-errortype", code.encode()),
        (b"x-amzn-requestid", _id().encode()),
    )
    return Answer(status=status, headers=headers, body=json.dumps(members, separators=(",", ":")).encode())


def api_message(status: int, message: str) -> Answer:
    """The HTTP API's own answer, in place of a function's."""
    headers = ((b"content-type", b"application/json"), (b"apigw-requestid", _id().encode()))
    return Answer(status=status, headers=headers, body=json.dumps({"message": message}, separators=(",", ":")).encode())


def _dynamodb(kind: str, **members: Any) -> Answer:
    body = json.dumps({"__type": kind, **members}, separators=(",", ":")).encode()
    return Answer(status=400, headers=dynamodb_headers(body), body=body)


def dynamodb_headers(body: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """The headers of an answer of DynamoDB with that body."""
    return (
        (b"content-type", b"application/x-amz-json-1.0"),
        (b"x-amzn-requestid", _id().encode()),
        (b"x-amz-crc32", b"%d" % zlib.crc32(body)),
    )


def _id() -> str:
    return uuid.uuid4().hex.upper()
