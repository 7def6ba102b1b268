"""The code of the function that empties a bucket, or drops a database, when CloudFormation deletes their stack.

emptying.py makes it. CloudFormation carries it inside the template, at most 4,096 characters. It needs nothing but
Lambda's own botocore.
"""

import json
import os
import urllib.request
from typing import Any

import botocore.session

# A resource that an update drops or replaces says Delete, too. Its bucket may be meant to stay, so it is left alone.
GOING = ("DELETE_IN_PROGRESS", "ROLLBACK_IN_PROGRESS")


def handler(event: dict[str, Any], context: Any) -> None:
    """Empties the bucket or drops the database on Delete.

    It answers CloudFormation in every case, which waits for an hour otherwise.
    """
    place = event["ResourceProperties"]
    name = place.get("Bucket") or place["Database"]
    answer = {"Status": "SUCCESS", "Reason": "", "PhysicalResourceId": name}
    try:
        if event["RequestType"] == "Delete" and _is_going(event["StackId"]):
            _empty(name, context) if "Bucket" in place else _drop(name)
    except Exception as error:
        answer |= {"Status": "FAILED", "Reason": f"{name} is not empty: {error}"}
    answer |= {each: event[each] for each in ("StackId", "RequestId", "LogicalResourceId")}
    body = json.dumps(answer).encode()
    request = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")  # noqa: S310
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310 - the URL is CloudFormation's own


def _client(service: str) -> Any:
    return botocore.session.get_session().create_client(service, region_name=os.environ["AWS_REGION"])


def _is_going(stack: str) -> bool:
    [found] = _client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    return bool(found["StackStatus"] in GOING)


def _empty(bucket: str, context: Any) -> None:
    s3 = _client("s3")
    try:
        while keys := [{"Key": each["Key"]} for each in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]:
            refused = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True}).get("Errors")
            if refused:
                raise RuntimeError(str(refused[0]))
            if context.get_remaining_time_in_millis() < 30_000:
                raise RuntimeError("there was no time for all objects: delete the stack again")
    except s3.exceptions.NoSuchBucket:
        return


def _drop(database: str) -> None:
    """Glue drops its tables with it. Without an archive there is none."""
    glue = _client("glue")
    try:
        glue.delete_database(Name=database)
    except glue.exceptions.EntityNotFoundException:
        return
