"""botocore's description of AWS, as small as the functions' clients need it. A cold start reads and parses it.

botocore describes 400 services, and most of each description is prose. What a client reads stays as it is: operations,
shapes, and the rules that find an endpoint.
"""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

# botocore loads these for its clients of CloudFormation, DynamoDB, EventBridge, Lambda, S3, SQS and STS.
SERVICES = frozenset(("cloudformation", "dynamodb", "events", "lambda", "s3", "sqs", "sts"))
_ENDPOINTS = "endpoints.json"
_FILES = frozenset((_ENDPOINTS, "partitions.json", "_retry.json", "sdk-default-configuration.json"))
_PROSE = "documentation"
_READ_WITH_PROSE = "clientContextParams"  # botocore reads the texts of these, to no end


def shrink(data: Path) -> None:
    """Removes what no client of `SERVICES` reads from the folder `botocore/data`."""
    for entry in data.iterdir():
        if entry.name not in SERVICES | _FILES:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for path in list(data.rglob("*.json.gz")):
        with gzip.open(path) as packed:
            _write(path.with_suffix(""), _without_prose(json.load(packed)))
        path.unlink()
    endpoints = json.loads((data / _ENDPOINTS).read_bytes())
    for partition in endpoints["partitions"]:
        partition["services"] = {name: each for name, each in partition["services"].items() if name in SERVICES}
    _write(data / _ENDPOINTS, endpoints)


def _without_prose(value: Any) -> Any:
    """The value without its texts `documentation`. A member or a shape of that name stays: it is no text."""
    if isinstance(value, dict):
        return {
            name: each if name == _READ_WITH_PROSE else _without_prose(each)
            for name, each in value.items()
            if not (name == _PROSE and isinstance(each, str))
        }
    return [_without_prose(each) for each in value] if isinstance(value, list) else value


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, separators=(",", ":")))
