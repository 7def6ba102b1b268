"""Finds the storage of a Penstock for whoever reads it without its API: jobs, the data source, notebooks.

Each name is asked for as an option, then in the environment:

| data source's option | job's option         | environment                 | what it is                               |
|----------------------|----------------------|-----------------------------|------------------------------------------|
| `topicsTable`        | `--topics-table`     | `PENSTOCK_TOPICS_TABLE`     | DynamoDB table                           |
| `logTable`           | `--log-table`        | `PENSTOCK_LOG_TABLE`        | DynamoDB table                           |
| `groupsTable`        | `--groups-table`     | `PENSTOCK_GROUPS_TABLE`     | DynamoDB table                           |
| `repairQueueUrl`     | `--repair-queue-url` | `PENSTOCK_REPAIR_QUEUE_URL` | SQS queue                                |
| `zones`              | `--zones`            | `PENSTOCK_ZONES`            | `a=<bucket>,b=<bucket>,…` in order       |
| `archive`            | `--archive`          | `PENSTOCK_ARCHIVE`          | bucket of the archive tier               |
| `results`            | `--results`          | `PENSTOCK_RESULTS`          | bucket for jobs' results (may be absent) |
| `catalog`            | `--catalog`          | `PENSTOCK_CATALOG`          | of tables: `glue:<database>`, or `none`  |
| `region`             | `--region`           | `AWS_REGION`                | else botocore's chain                    |
| `endpointUrl`        | `--endpoint-url`     | `AWS_ENDPOINT_URL`          | an emulator instead of AWS               |
| `stack`              | `--stack`            | `PENSTOCK_STACK`            | CloudFormation stack whose outputs count |

Where neither says it, the outputs of `stack` do; and where nothing of all this is given, the local stack of the working
directory or of a parent does (`.penstock/jobs.env`, which `penstock local up` writes), with its endpoint and its keys,
whatever is exported for AWS. Credentials otherwise come from botocore's chain, on the driver and on each executor.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from penstock_broker.adapters.aws import Storage, aws_broker, parse_zones
from penstock_broker.adapters.storage_calls import StorageCalls
from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError

JOBS_ENV = Path(".penstock") / "jobs.env"
STORAGE_CALLS = StorageCalls()  # of this process

# option -> (environment, what `cdk deploy` calls it)
_NAMES: Mapping[str, tuple[str, str]] = {
    "topicsTable": ("PENSTOCK_TOPICS_TABLE", "TopicsTable"),
    "logTable": ("PENSTOCK_LOG_TABLE", "LogTable"),
    "groupsTable": ("PENSTOCK_GROUPS_TABLE", "GroupsTable"),
    "repairQueueUrl": ("PENSTOCK_REPAIR_QUEUE_URL", "RepairQueueUrl"),
    "zones": ("PENSTOCK_ZONES", "ZoneBuckets"),
    "archive": ("PENSTOCK_ARCHIVE", "ArchiveBucket"),
}
_OPTIONAL: Mapping[str, tuple[str, str]] = {
    "results": ("PENSTOCK_RESULTS", "ResultsBucket"),
    "catalog": ("PENSTOCK_CATALOG", "Catalog"),
}
_ALL_NAMES = {**_NAMES, **_OPTIONAL}
_PLACES: Mapping[str, str] = {
    "region": "AWS_REGION",
    "endpointUrl": "AWS_ENDPOINT_URL",
    "stack": "PENSTOCK_STACK",
}
OPTIONS = (*_ALL_NAMES, *_PLACES)
_NO_CATALOG = "none"


def find_storage(options: Mapping[str, str] | None = None, *, environ: Mapping[str, str] | None = None) -> Storage:
    """The storage by the rules above; option names in any case, as Spark hands them on; others are not looked at.

    Raises INVALID_CONFIG, which says what is missing and how to give it. One DescribeStacks if outputs are needed.
    """
    given = _given(options or {}, os.environ if environ is None else environ)
    local = {} if any(name in given for name in (*_NAMES, "stack")) else _local_stack()
    if local:
        return _storage(
            {option: local[variable] for option, (variable, _) in _ALL_NAMES.items() if variable in local}
            | {option: value for option, value in _given(options or {}, {}).items() if option in _OPTIONAL},
            region=local.get("AWS_REGION"),
            endpoint_url=local.get("AWS_ENDPOINT_URL"),
            access_key=local.get("AWS_ACCESS_KEY_ID"),
            secret_key=local.get("AWS_SECRET_ACCESS_KEY"),
        )
    region, endpoint_url = given.get("region"), given.get("endpointUrl")
    names = {option: given[option] for option in _ALL_NAMES if option in given}
    if len(names) < len(_ALL_NAMES) and "stack" in given:
        names = names_of_outputs(_outputs(given["stack"], region, endpoint_url)) | names
    return _storage(names, region=region, endpoint_url=endpoint_url)


def names_of_outputs(outputs: Mapping[str, str]) -> dict[str, str]:
    """Of a stack's outputs, those that say where its storage is, by their options."""
    return {option: outputs[output] for option, (_, output) in _ALL_NAMES.items() if output in outputs}


def environment_of_outputs(outputs: Mapping[str, str]) -> dict[str, str]:
    """The same by the names that they have in the environment."""
    return {_ALL_NAMES[option][0]: value for option, value in names_of_outputs(outputs).items()}


@cache
def open_broker(storage: Storage) -> Broker:
    """This process's broker on that storage: made at the first call and then kept. Sends no call."""
    return aws_broker(storage, STORAGE_CALLS)


def _given(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    by_lower = {name.lower(): value for name, value in options.items()}
    variables = {option: variable for option, (variable, _) in _ALL_NAMES.items()} | dict(_PLACES)
    found = {
        option: by_lower.get(option.lower()) or environ.get(variable, "") for option, variable in variables.items()
    }
    return {option: value for option, value in found.items() if value}


def _storage(names: Mapping[str, str], **places: str | None) -> Storage:
    missing = [option for option in _NAMES if not names.get(option)]
    if missing:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"it is not known where the storage is: {', '.join(missing)} not given; give the option, set "
            f"{', '.join(_NAMES[option][0] for option in missing)}, name the deployed stack (option stack or "
            "PENSTOCK_STACK), or start a local one with `penstock local up` in this directory or a parent of it",
        )
    try:
        zones = parse_zones(names["zones"])
    except ValueError as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"zones: {error}") from error
    return Storage(
        topics_table=names["topicsTable"],
        log_table=names["logTable"],
        groups_table=names["groupsTable"],
        repair_queue_url=names["repairQueueUrl"],
        zones=zones,
        archive=names["archive"],
        results=names.get("results"),
        catalog=catalog if (catalog := names.get("catalog")) != _NO_CATALOG else None,
        **places,
    )


def _outputs(stack: str, region: str | None, endpoint_url: str | None) -> dict[str, str]:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client: Any = boto3.client("cloudformation", region_name=region, endpoint_url=endpoint_url)
        [found] = client.describe_stacks(StackName=stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"the outputs of stack {stack!r} could not be read: {error}"
        ) from error
    return {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", ())}


def _local_stack() -> dict[str, str]:
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = folder / JOBS_ENV
        if path.is_file():
            return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return {}
