"""The job `archive`: topics to Iceberg tables, or to Parquet without a catalog, by day, each offset once.

    archive.py [--topic orders] [--output s3://bucket/lake] [--catalog glue:penstock] [--group-bytes N] …

Without --topic the job archives all topics. After a kill at any point, the next run continues, and two runs at once do
no harm: penstock_spark/archive/archive_plan.py argues why. docs/how-to/archive.md tells how to query the tables.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MIB
from penstock_core.log.topic import Topic
from penstock_service.adapters.aws import Storage
from penstock_service.instance.instance import Instance
from penstock_spark.archive.archive_files import ArchivedGroup, archive_group
from penstock_spark.archive.archive_plan import Plan
from penstock_spark.archive.archive_table import LAKE, ParquetTable, TableKind, claim_table
from penstock_spark.archive.archiving import ArchiveResult, GroupRunner, Sizes, archive_topic
from penstock_spark.archive.iceberg_table import IcebergTable, open_catalog
from penstock_spark.arguments import byte_count
from penstock_spark.job import (
    add_on_undecodable,
    describe_failure,
    job_parser,
    log_event,
    parse_job,
    spark_session,
)
from penstock_spark.result_store import ResultStore, open_results, results_uri
from penstock_spark.storage import open_instance

if TYPE_CHECKING:
    from pyspark import SparkContext

GROUP_BYTES = 64 * MIB  # one task's work, in seconds, and files that engines like to read
COMMIT_BYTES = 8 * 1024 * MIB  # bounds the plan, and the work that a failed commit leaves to the next run


def main(argv: Sequence[str]) -> None:
    """Run once. Raises INTERNAL at the end if a topic failed, or if records expired before they were archived."""
    parser = job_parser("archive", "Archives topics into tables, each offset once.")
    parser.add_argument("--topic", action="append", default=[], help="only this topic; repeat it for several topics")
    parser.add_argument("--output", help="s3://bucket/prefix or a folder; else lake/ in the bucket --results")
    parser.add_argument("--group-bytes", type=byte_count, default=GROUP_BYTES, help="bytes of segments for one task")
    parser.add_argument(
        "--commit-bytes", type=byte_count, default=COMMIT_BYTES, help="bytes of segments in one commit, about"
    )
    add_on_undecodable(parser)
    options, storage = parse_job(parser, argv)
    instance = open_instance(storage)
    topics = _topics(instance, options.topic)
    uri = results_uri(options.output, storage, LAKE)
    lake = open_results(uri, storage)
    sizes = Sizes(group_bytes=options.group_bytes, commit_bytes=options.commit_bytes)
    done: list[ArchiveResult] = []
    failed: list[str] = []
    log_event("archiving", topics=len(topics), output=uri, catalog=storage.catalog)
    with spark_session("archive") as spark:
        skips = options.on_undecodable == "skip"
        run_groups = _group_runner(spark.sparkContext, storage, uri, skips_undecodable=skips)
        for topic in topics:
            try:
                done.append(_archive(instance, lake, storage, topic, run_groups, sizes))
            except Exception as error:  # the topic's edge: Spark raises its own for what a worker raised
                failed.append(topic.name)
                log_event("failed", topic=topic.name, error=describe_failure(error))
    log_event("result", job="archive", topics=[each.facts() for each in done], failed=failed)
    expired = sum(each.expired_offsets for each in done)
    if failed or expired:
        raise PenstockError(
            ErrorCode.INTERNAL,
            f"{len(failed)} topics failed, and {expired} offsets were removed before they were archived (by retention, "
            "or by truncation): the lines above name them",
        )


def _archive(
    instance: Instance, lake: ResultStore, storage: Storage, topic: Topic, run_groups: GroupRunner, sizes: Sizes
) -> ArchiveResult:
    if storage.catalog is None:
        name = claim_table(lake, topic, TableKind.PARQUET)
        return archive_topic(instance, lake, topic, ParquetTable(lake, name), run_groups, sizes, log_event)
    catalog, namespace = open_catalog(storage.catalog, storage)
    name = claim_table(lake, topic, TableKind.ICEBERG)
    table = IcebergTable(catalog, namespace, lake, name)
    return archive_topic(instance, lake, topic, table, run_groups, sizes, log_event)


def _group_runner(context: "SparkContext", storage: Storage, uri: str, *, skips_undecodable: bool) -> GroupRunner:
    def run_groups(table: str, plan: Plan) -> Sequence[ArchivedGroup]:
        if not plan.groups:
            return []
        groups = context.parallelize(plan.groups, len(plan.groups))
        return groups.map(
            lambda group: archive_group(
                open_instance(storage),
                open_results(uri, storage),
                table,
                plan,
                group,
                skips_undecodable=skips_undecodable,
            )
        ).collect()

    return run_groups


def _topics(instance: Instance, names: Sequence[str]) -> list[Topic]:
    return [instance.topic_cache.read_through(name) for name in dict.fromkeys(names)] or list(
        instance.stores.topics.list()
    )


if __name__ == "__main__":
    main(sys.argv[1:])
