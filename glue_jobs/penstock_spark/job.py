"""What stands around every job: its options, its Spark session, and the lines that it prints.

A job is a script `glue_jobs/<name>.py` with `main(argv)`. It gets the options of storage.py and its own, says how far
it is and what came out of it as lines of JSON on stdout, and ends with an error if not everything was done: then EMR
and Glue call the run failed, and the alarm rings. The same script runs anywhere; Spark's settings are its starter's.

Glue calls a script with arguments of its own among the job's. There, and only there, the options come as lists of JSON:
`--penstock-storage`, which the deployed job has, and `--penstock-arguments` of the run.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock_broker.adapters.aws import Storage
from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.storage import OPTIONS, find_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GLUE_STORAGE = "--penstock-storage"
GLUE_ARGUMENTS = "--penstock-arguments"


def job_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser that knows the options of storage.py; the job adds its own."""
    parser = argparse.ArgumentParser(prog=name, description=description, allow_abbrev=False)
    storage = parser.add_argument_group("where the storage is (see docs/jobs.md)")
    for option in OPTIONS:
        storage.add_argument(_flag(option), dest=option, metavar="VALUE")
    return parser


def parse_job(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace, Storage]:
    """The job's options and its storage. Raises SystemExit 2 on unknown options, INVALID_CONFIG as `find_storage`."""
    options = parser.parse_args(_own_arguments(argv))
    given = {option: value for option in OPTIONS if (value := getattr(options, option)) is not None}
    return options, find_storage(given)


@contextmanager
def spark_session(name: str) -> "Iterator[SparkSession]":
    """A session, with the settings of whoever started the job; it is stopped at the end, unless it was there before."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    spark = SparkSession.builder.appName(f"penstock-{name}").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def tell(event: str, **facts: Any) -> None:
    """One line of JSON on stdout: `{"event": ..., ...}`. A job's last is `result`."""
    print(json.dumps({"event": event, **facts}), flush=True)


def _own_arguments(argv: Sequence[str]) -> list[str]:
    if GLUE_STORAGE not in argv:
        return list(argv)
    return [argument for name in (GLUE_STORAGE, GLUE_ARGUMENTS) for argument in _json_argument(argv, name)]


def _json_argument(argv: Sequence[str], name: str) -> list[str]:
    if name not in argv:
        return []
    text = "".join(argv[argv.index(name) + 1 :][:1])
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{name} {text!r}: give a JSON list of texts")
    return found


def _flag(option: str) -> str:
    return "--" + "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in option)
