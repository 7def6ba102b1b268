"""The job `archive`: topics to Iceberg tables, or to Parquet where there is no catalog, by day, each offset once.

    archive.py [--topic orders] [--output s3://bucket/lake] [--catalog glue:penstock] [--group-bytes N] …

Without --topic it archives all. Killed at any point and run again, it goes on; two runs at once do no harm. How:
penstock_spark/archive_plan.py. docs/archive.md says how to query the tables.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock_broker.adapters.aws import Storage
from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MIB
from penstock_core.topic import Topic
from penstock_spark.archive_files import ArchivedGroup, archive_group
from penstock_spark.archive_plan import Plan
from penstock_spark.archive_table import LAKE, ParquetTable, TableKind, claim_table
from penstock_spark.archiving import Sizes, Spread, TopicArchived, archive_topic
from penstock_spark.iceberg_table import IcebergTable, open_catalog
from penstock_spark.job import job_parser, parse_job, spark_session, tell
from penstock_spark.result_store import ResultStore, open_results, results_uri
from penstock_spark.storage import open_broker

if TYPE_CHECKING:
    from pyspark import SparkContext

GROUP_BYTES = 64 * MIB
COMMIT_BYTES = 8 * 1024 * MIB


def main(argv: Sequence[str]) -> None:
    """One run. Raises INTERNAL at its end if a topic failed, or if records expired before they were archived."""
    parser = job_parser("archive", "Archives topics into tables, each offset once.")
    parser.add_argument("--topic", action="append", default=[], help="only this topic; may come often")
    parser.add_argument("--output", help="s3://bucket/prefix or a folder; else lake/ in the bucket --results")
    parser.add_argument("--group-bytes", type=_bytes, default=GROUP_BYTES, help="of segments that a task archives")
    parser.add_argument("--commit-bytes", type=_bytes, default=COMMIT_BYTES, help="of segments in one commit, about")
    options, storage = parse_job(parser, argv)
    broker = open_broker(storage)
    topics = _topics(broker, options.topic)
    uri = results_uri(options.output, storage, LAKE)
    lake = open_results(uri, storage)
    sizes = Sizes(group_bytes=options.group_bytes, commit_bytes=options.commit_bytes)
    done: list[TopicArchived] = []
    failed: list[str] = []
    tell("archiving", topics=len(topics), output=uri, catalog=storage.catalog)
    with spark_session("archive") as spark:
        spread = _spread(spark.sparkContext, storage, uri)
        for topic in topics:
            try:
                done.append(_archive(broker, lake, storage, topic, spread, sizes))
            except PenstockError as error:
                failed.append(topic.name)
                tell("failed", topic=topic.name, error=error.to_json())
    tell("result", job="archive", topics=[each.facts() for each in done], failed=failed)
    expired = sum(each.expired_offsets for each in done)
    if failed or expired:
        raise PenstockError(
            ErrorCode.INTERNAL,
            f"{len(failed)} topics failed, and {expired} offsets were removed before they were archived (by retention, "
            "or by truncation): the lines above name them",
        )


def _archive(
    broker: Broker, lake: ResultStore, storage: Storage, topic: Topic, spread: Spread, sizes: Sizes
) -> TopicArchived:
    if storage.catalog is None:
        name = claim_table(lake, topic, TableKind.PARQUET)
        return archive_topic(broker, lake, topic, ParquetTable(lake, name), spread, sizes, tell)
    catalog, namespace = open_catalog(storage.catalog, storage)
    name = claim_table(lake, topic, TableKind.ICEBERG)
    table = IcebergTable(catalog, namespace, lake, name)
    return archive_topic(broker, lake, topic, table, spread, sizes, tell)


def _spread(context: "SparkContext", storage: Storage, uri: str) -> Spread:
    def spread(table: str, plan: Plan) -> Sequence[ArchivedGroup]:
        if not plan.groups:
            return []
        groups = context.parallelize(plan.groups, len(plan.groups))
        return groups.map(
            lambda group: archive_group(open_broker(storage), open_results(uri, storage), table, plan, group)
        ).collect()

    return spread


def _topics(broker: Broker, names: Sequence[str]) -> list[Topic]:
    return [broker.directory.look_up(name) for name in dict.fromkeys(names)] or list(broker.topics.list())


def _bytes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes")
    return int(text)


if __name__ == "__main__":
    main(sys.argv[1:])
