"""What a deployed stack says of its jobs, by its outputs, and the clients of AWS that run them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from penstock_core.errors import ErrorCode, PenstockError

_ROLE = "Role"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedJob:
    """What a run of one job is started by."""

    role_arn: str
    script_url: str
    glue_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The jobs of a stack by name; `application_id` is None if it has no EMR application."""

    application_id: str | None
    log_group: str
    jobs: Mapping[str, DeployedJob]


def client(service: str, region: str | None) -> Any:
    """A client by the usual AWS chain. Raises INVALID_CONFIG if there is no region."""
    try:
        return botocore.session.Session().create_client(service, region_name=region)
    except BotoCoreError as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"no client of {service}: {error}") from error


def read_deployed(cloudformation: Any, stack: str) -> Deployed:
    """One DescribeStacks. Raises INVALID_CONFIG if the stack is not there, or is one without jobs."""
    try:
        [found] = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the outputs of stack {stack!r} could not be read: {error}; deploy it (docs/running.md), or name the "
            "deployed one with --stack or PENSTOCK_STACK",
        ) from error
    outputs = {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", ())}
    if "JobsLogGroup" not in outputs:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"stack {stack!r} has no jobs: deploy this version of Penstock")
    names = [name.removeprefix("Job").removesuffix(_ROLE) for name in outputs if name.startswith("Job")]
    return Deployed(
        application_id=outputs.get("JobsApplicationId"),
        log_group=outputs["JobsLogGroup"],
        jobs={
            name.lower(): DeployedJob(
                role_arn=outputs[f"Job{name}Role"],
                script_url=outputs[f"Job{name}Script"],
                glue_name=outputs[f"Job{name}Glue"],
            )
            for name in sorted(names)
            if f"Job{name}{_ROLE}" in outputs
        },
    )


def log_lines(logs: Any, group: str, stream_prefix: str) -> Iterator[str]:
    """The lines of the streams whose names begin so, by time. One FilterLogEvents for each MB."""
    token: dict[str, str] = {}
    while True:
        answer = logs.filter_log_events(logGroupName=group, logStreamNamePrefix=stream_prefix, **token)
        yield from (event["message"].rstrip("\n") for event in answer["events"])
        if "nextToken" not in answer:
            return
        token = {"nextToken": answer["nextToken"]}


def to_ms(time: datetime) -> int:
    """Milliseconds since 1970."""
    return round(time.timestamp() * 1_000)
