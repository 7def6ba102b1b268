"""Finds the storage of a Penstock for programs that read it without its API: jobs, the data source, notebooks.

Each name comes from an option, or else from the environment:

| data source's option | job's option         | environment                 | meaning                                  |
|----------------------|----------------------|-----------------------------|------------------------------------------|
| `topicsTable`        | `--topics-table`     | `PENSTOCK_TOPICS_TABLE`     | DynamoDB table                           |
| `logTable`           | `--log-table`        | `PENSTOCK_LOG_TABLE`        | DynamoDB table                           |
| `groupsTable`        | `--groups-table`     | `PENSTOCK_GROUPS_TABLE`     | DynamoDB table                           |
| `repairQueueUrl`     | `--repair-queue-url` | `PENSTOCK_REPAIR_QUEUE_URL` | SQS queue, for several zones             |
| `zones`              | `--zones`            | `PENSTOCK_ZONES`            | `a=<bucket>,b=<bucket>,…` in order       |
| `archive`            | `--archive`          | `PENSTOCK_ARCHIVE`          | bucket of the archive tier               |
| `results`            | `--results`          | `PENSTOCK_RESULTS`          | bucket for jobs' results (may be absent) |
| `catalog`            | `--catalog`          | `PENSTOCK_CATALOG`          | of tables: `glue:<database>`, or `none`  |
| `wakeUps`            | `--wake-ups`         | `PENSTOCK_WAKE_UPS`         | `<host>,<WebSocket's host>`, or `none`   |
| `registrySecret`     | `--registry-secret`  | `PENSTOCK_REGISTRY_SECRET`  | of Secrets Manager (may be absent)       |
| `region`             | `--region`           | `AWS_REGION`                | else botocore's chain                    |
| `endpointUrl`        | `--endpoint-url`     | `AWS_ENDPOINT_URL`          | an emulator instead of AWS               |
| `stack`              | `--stack`            | `PENSTOCK_STACK`            | CloudFormation stack, for its outputs    |

If neither sets a name, the outputs of `stack` do. If no name and no stack is given at all, the local stack applies: the
file `.penstock/jobs.env` of the working directory or of a parent, which `penstock local up` writes, if it is yours and
only you may write to it. It also sets the endpoint and the keys, whatever AWS settings the environment exports.
Otherwise the driver and each executor take their credentials from botocore's chain.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from penstock.local_files import JOBS_ENV_NAMES, find_local_file, read_local_file
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.stack_outputs import outputs_of, parse_stack_place, storage_variables
from penstock_service.adapters.aws import Storage, aws_instance, parse_wake_ups, parse_zones
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.instance.instance import Instance

STORAGE_CALLS = StorageCalls()  # of this process

# option -> environment
_NAMES: Mapping[str, str] = {
    "topicsTable": "PENSTOCK_TOPICS_TABLE",
    "logTable": "PENSTOCK_LOG_TABLE",
    "groupsTable": "PENSTOCK_GROUPS_TABLE",
    "zones": "PENSTOCK_ZONES",
    "archive": "PENSTOCK_ARCHIVE",
}
_OPTIONAL: Mapping[str, str] = {
    "repairQueueUrl": "PENSTOCK_REPAIR_QUEUE_URL",
    "results": "PENSTOCK_RESULTS",
    "catalog": "PENSTOCK_CATALOG",
    "wakeUps": "PENSTOCK_WAKE_UPS",
}
_ALL_NAMES = {**_NAMES, **_OPTIONAL}
_PLACES: Mapping[str, str] = {
    "registrySecret": "PENSTOCK_REGISTRY_SECRET",
    "region": "AWS_REGION",
    "endpointUrl": "AWS_ENDPOINT_URL",
    "stack": "PENSTOCK_STACK",
}
OPTIONS = (*_ALL_NAMES, *_PLACES)
_NONE = "none"
_INSTANCES_MAX = 16  # a job works on one storage; a notebook may read several


def find_storage(options: Mapping[str, str] | None = None, *, environ: Mapping[str, str] | None = None) -> Storage:
    """Find the storage by the rules above.

    Option names may be in any case, as Spark passes them; other options are ignored.

    Raises INVALID_CONFIG, which names the missing options and the ways to give them. Costs one DescribeStacks if the
    stack's outputs are needed.
    """
    given = _given(options or {}, os.environ if environ is None else environ)
    local = {} if any(name in given for name in (*_NAMES, "stack")) else _local_stack()
    if local:
        return _storage(
            {option: local[variable] for option, variable in _ALL_NAMES.items() if variable in local}
            | {option: value for option, value in _given(options or {}, {}).items() if option in _OPTIONAL},
            registry_secret=given.get("registrySecret"),
            region=local.get("AWS_REGION"),
            endpoint_url=local.get("AWS_ENDPOINT_URL"),
            access_key=local.get("AWS_ACCESS_KEY_ID"),
            secret_key=local.get("AWS_SECRET_ACCESS_KEY"),
        )
    region, endpoint_url = given.get("region"), given.get("endpointUrl")
    names = {option: given[option] for option in _ALL_NAMES if option in given}
    if len(names) < len(_ALL_NAMES) and "stack" in given:
        names = names_of_outputs(_outputs(given["stack"], region, endpoint_url)) | names
    return _storage(names, registry_secret=given.get("registrySecret"), region=region, endpoint_url=endpoint_url)


def names_of_outputs(outputs: Mapping[str, str]) -> dict[str, str]:
    """The outputs of a stack that name its storage, by the options of the data source."""
    variables = storage_variables(outputs)
    return {option: variables[variable] for option, variable in _ALL_NAMES.items() if variable in variables}


@lru_cache(_INSTANCES_MAX)
def open_instance(storage: Storage) -> Instance:
    """This process's instance on that storage. The first call makes it, and later calls return it. Makes no call."""
    return aws_instance(storage, STORAGE_CALLS)


def _given(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    by_lower = {name.lower(): value for name, value in options.items()}
    variables = {**_ALL_NAMES, **_PLACES}
    found = {
        option: by_lower.get(option.lower()) or environ.get(variable, "") for option, variable in variables.items()
    }
    return {option: value for option, value in found.items() if value}


def _storage(
    names: Mapping[str, str],
    *,
    registry_secret: str | None,
    region: str | None,
    endpoint_url: str | None,
    access_key: str | None = None,
    secret_key: str | None = None,
) -> Storage:
    missing = [option for option in _NAMES if not names.get(option)]
    if missing:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the storage is unknown: {', '.join(missing)} missing; give the option, set "
            f"{', '.join(_NAMES[option] for option in missing)}, name the deployed stack (option stack or "
            "PENSTOCK_STACK), or start a local one with `penstock local up` in this directory or a parent of it",
        )
    try:
        zones = parse_zones(names["zones"])
        wake_ups = parse_wake_ups(_unless_none(names.get("wakeUps")))
    except ValueError as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"zones or wakeUps: {error}") from error
    if len(zones) > 1 and not names.get("repairQueueUrl"):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            "the storage is unknown: repairQueueUrl missing; a stage with several zones has a repair queue",
        )
    return Storage(
        topics_table=names["topicsTable"],
        log_table=names["logTable"],
        groups_table=names["groupsTable"],
        repair_queue_url=names.get("repairQueueUrl"),
        zones=zones,
        archive=names["archive"],
        results=names.get("results"),
        catalog=_unless_none(names.get("catalog")),
        wake_ups=wake_ups,
        registry_secret=registry_secret,
        region=region,
        endpoint_url=endpoint_url,
        access_key=access_key,
        secret_key=secret_key,
    )


def _unless_none(name: str | None) -> str | None:
    return None if name == _NONE else name


def _outputs(stack: str, region: str | None, endpoint_url: str | None) -> dict[str, str]:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    place = parse_stack_place(stack)
    try:
        client: Any = boto3.client("cloudformation", region_name=region, endpoint_url=endpoint_url)
        [found] = client.describe_stacks(StackName=place.stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"the outputs of stack {stack!r} could not be read: {error}"
        ) from error
    return outputs_of(found, place)


def _local_stack() -> dict[str, str]:
    """The values of the nearest `jobs.env`. Raises NotConfiguredError if it cannot be trusted."""
    path = find_local_file("jobs.env")
    return {} if path is None else read_local_file(path, JOBS_ENV_NAMES)
