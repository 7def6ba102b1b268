"""The jobs of a deployed stack, by its outputs, and the AWS clients that run them."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError, NoRegionError

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SDK_PAGES_MAX
from penstock_core.stack_outputs import outputs_of, parse_stack_place

_ROLE = "Role"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedJob:
    """The role, the script and the Glue name of one job."""

    role_arn: str
    script_url: str
    glue_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedJobs:
    """The jobs of a stack by name; `application_id` is None if it has no EMR application."""

    application_id: str | None
    log_group: str
    jobs: Mapping[str, DeployedJob]


def client(service: str, region: str | None) -> Any:
    """A client by the usual AWS chain. Raises INVALID_CONFIG if there is no region."""
    try:
        # botocore itself reads AWS_DEFAULT_REGION and the profile's region only.
        return botocore.session.Session().create_client(service, region_name=region or os.environ.get("AWS_REGION"))
    except NoRegionError as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"no region to look for {service} in: give --region, or set AWS_REGION"
        ) from error
    except BotoCoreError as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"no client of {service}: {error}") from error


def read_deployed_jobs(cloudformation: Any, stack: str) -> DeployedJobs:
    """One DescribeStacks. Raises INVALID_CONFIG if there is no such stack, or if it has no jobs."""
    place = parse_stack_place(stack)
    try:
        [found] = cloudformation.describe_stacks(StackName=place.stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the outputs of stack {stack!r} could not be read: {error}; deploy it (docs/how-to/deploy.md), or name "
            "the deployed one with --stack or PENSTOCK_STACK",
        ) from error
    outputs = outputs_of(found, place)
    if "JobsLogGroup" not in outputs:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"stack {stack!r} has no jobs: deploy this version of Penstock")
    names = [name.removeprefix("Job").removesuffix(_ROLE) for name in outputs if name.startswith("Job")]
    return DeployedJobs(
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
    """The lines of the streams with this prefix, by time. One FilterLogEvents for each MB, `SDK_PAGES_MAX` at most."""
    token: dict[str, str] = {}
    for _ in range(SDK_PAGES_MAX):
        answer = logs.filter_log_events(logGroupName=group, logStreamNamePrefix=stream_prefix, **token)
        yield from (event["message"].rstrip("\n") for event in answer["events"])
        if "nextToken" not in answer:
            return
        token = {"nextToken": answer["nextToken"]}
    raise PenstockError(ErrorCode.INTERNAL, f"the log has more than {SDK_PAGES_MAX:,} pages: read it in CloudWatch")


def to_ms(time: datetime) -> int:
    """Milliseconds since 1970."""
    return round(time.timestamp() * 1_000)
