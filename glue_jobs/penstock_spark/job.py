"""The frame of every job: its options, its Spark session, and the lines that it prints.

A job is a script `penstock_spark/scripts/<name>.py` with `main(argv)`. It takes the options of storage.py and its own.
It prints its progress and its result as lines of JSON on stdout. If part of the work failed, the job ends with an
error. EMR and Glue then mark the run as failed, and the alarm rings. The same script runs anywhere: the program that
starts it chooses Spark's settings.

Glue mixes arguments of its own with the job's. Only there, two arguments carry the options as lists of JSON:
`--penstock-storage`, which the deployed job sets, and `--penstock-arguments`, which each run sets.
"""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.aws import Storage
from penstock_spark.storage import OPTIONS, find_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GLUE_STORAGE = "--penstock-storage"
GLUE_ARGUMENTS = "--penstock-arguments"

# How the traceback of a worker ends.
_RAISED = re.compile(r"^(?:[\w.]+\.)?\w+(?:Error|Exception): .*$", re.MULTILINE)
_TEXT_MAX = 500  # of an error that is not Penstock's: Spark's have pages of traceback


def job_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options of storage.py. The job adds its own."""
    parser = argparse.ArgumentParser(prog=name, description=description, allow_abbrev=False)
    storage = parser.add_argument_group("where the storage is (see docs/reference/jobs.md)")
    for option in OPTIONS:
        storage.add_argument(_flag(option), dest=option, metavar="VALUE")
    return parser


def parse_job(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace, Storage]:
    """The job's options and its storage.

    Raises SystemExit 2 on unknown options, and INVALID_CONFIG as `find_storage` does.
    """
    options = parser.parse_args(_own_arguments(argv))
    given = {option: value for option in OPTIONS if (value := getattr(options, option)) is not None}
    return options, find_storage(given)


@contextmanager
def spark_session(name: str) -> "Iterator[SparkSession]":
    """A Spark session with the settings of the program that started the job.

    The end of the block stops the session, unless it existed before.
    """
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


def add_on_undecodable(parser: argparse.ArgumentParser) -> None:
    """The option for what the job does with batches that nobody can decode."""
    parser.add_argument(
        "--on-undecodable",
        choices=("raise", "skip"),
        default="raise",
        help="a batch that nobody can decode fails its topic (raise, the default), or is left out and counted",
    )


def describe_failure(error: Exception) -> dict[str, Any]:
    """The error as one fact of a line. The last line of the error that a Spark worker raised, bounded."""
    if isinstance(error, PenstockError):
        return error.to_json()
    text = str(error)
    raised = _RAISED.findall(text)
    named = [line for line in raised if "penstock" in line]
    message = (named or raised or [f"{type(error).__name__}: {text}"])[-1]
    return {"code": ErrorCode.INTERNAL.name, "message": message[:_TEXT_MAX], "maybe_applied": False}


def log_event(event: str, **facts: Any) -> None:
    """Print one line of JSON on stdout: `{"event": ..., ...}`. A job's last line is the event `result`."""
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
