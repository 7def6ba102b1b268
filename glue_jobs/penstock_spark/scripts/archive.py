"""The job `archive`: topics to Iceberg tables, or to Parquet without a catalog, by day, each offset once.

    archive.py [--topic orders] [--output s3://bucket/lake] [--catalog glue:penstock] [--schema orders=avro:FILE] …

Without --topic the job archives all topics. After a kill at any point, the next run continues, and two runs at once do
no harm: penstock_spark/archive/archive_plan.py argues why. docs/how-to/archive.md tells how to query the tables.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MIB
from penstock_core.log.topic import Topic
from penstock_service.adapters.aws import Storage
from penstock_service.instance.instance import Instance
from penstock_spark.archive.archive_files import ArchivedFile, ArchivedGroup, archive_group, try_partitions
from penstock_spark.archive.archive_plan import Plan
from penstock_spark.archive.archive_table import LAKE, ParquetTable, TableKind, claim_table
from penstock_spark.archive.archiving import (
    NOTHING_TO_PREPARE,
    ArchiveResult,
    GroupRunner,
    Preparation,
    Sizes,
    archive_topic,
    merge_files,
    merge_latest,
    rebuild_table,
    remove_table_orphans,
)
from penstock_spark.archive.iceberg_table import IcebergTable, open_catalog
from penstock_spark.archive.latest_rows import SUFFIX as LATEST_SUFFIX
from penstock_spark.archive.latest_rows import LatestRows, LatestRunner, write_latest
from penstock_spark.archive.merging_files import Merge, MergedFiles, MergeRunner, merge_group
from penstock_spark.archive.rebuilding import Rebuild, RebuildRunner, RebuiltFile, rebuild_file
from penstock_spark.archive.registered_schemas import open_registry, read_schema
from penstock_spark.archive.typed_columns import FORMATS, REGISTERED, Typing, value_columns
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
    from pyiceberg.catalog import Catalog
    from pyspark import SparkContext

GROUP_BYTES = 64 * MIB  # one task's work, in seconds, and files that engines like to read
COMMIT_BYTES = 8 * 1024 * MIB  # bounds the plan, and the work that a failed commit leaves to the next run


def main(argv: Sequence[str]) -> None:
    """Run once. Raises INTERNAL at the end if a topic failed, or if records expired before they were archived."""
    options, storage = parse_job(_parser(), argv)
    instance = open_instance(storage)
    topics = _topics(instance, options.topic)
    uri = results_uri(options.output, storage, LAKE)
    lake = open_results(uri, storage)
    schemas = read_schemas(options.schema, storage)
    _check_schemas(schemas, topics, storage, rebuilds=options.rebuild)
    partitions = read_partitions(options.partition_by, topics)
    if (options.latest or options.merge_files or options.remove_orphans) and storage.catalog is None:
        raise _invalid("--latest, --merge-files and --remove-orphans need a --catalog")
    sizes = Sizes(group_bytes=options.group_bytes, commit_bytes=options.commit_bytes)
    done: list[ArchiveResult] = []
    failed: list[str] = []
    log_event("archiving", topics=len(topics), output=uri, catalog=storage.catalog)
    with spark_session("archive") as spark:
        skips = options.on_undecodable == "skip"
        runners = _Runners(
            groups=_group_runner(spark.sparkContext, storage, uri, skips_undecodable=skips),
            trial=_trial_runner(spark.sparkContext, storage, uri),
            rebuild=_rebuild_runner(spark.sparkContext, storage, uri) if options.rebuild else None,
            latest=_latest_runner(spark.sparkContext, storage, uri) if options.latest else None,
            merge=_merge_runner(spark.sparkContext, storage, uri) if options.merge_files else None,
            removes_orphans=options.remove_orphans,
        )
        for topic in topics:
            try:
                schema = schemas.get(topic.name)
                if schema is None:
                    schema = topic_schema(topic, storage)
                by = partitions.get(topic.name)
                if by and schema is None:
                    raise _invalid(f"--partition-by {topic.name}=…: give the topic's --schema, or its value_schema")
                done.append(_archive(instance, lake, storage, topic, runners, sizes, schema, by))
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


def _parser() -> ArgumentParser:
    parser = job_parser("archive", "Archives topics into tables, each offset once.")
    parser.add_argument("--topic", action="append", default=[], help="only this topic; repeat it for several topics")
    parser.add_argument("--output", help="s3://bucket/prefix or a folder; else lake/ in the bucket --results")
    parser.add_argument("--group-bytes", type=byte_count, default=GROUP_BYTES, help="bytes of segments for one task")
    parser.add_argument(
        "--commit-bytes", type=byte_count, default=COMMIT_BYTES, help="bytes of segments in one commit, about"
    )
    parser.add_argument(
        "--schema",
        action="append",
        default=[],
        metavar="TOPIC=FORMAT:PLACE",
        help="type a topic's values by this schema: FORMAT is json (JSON Schema), avro, or protobuf (descriptors, as "
        "order.desc#shop.Order), PLACE a file or s3://bucket/key; or registry:URL[#SUBJECT[#MESSAGE]], where URL is "
        "https://… or glue:REGISTRY",
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="first type all rows of tables with a schema anew, by the new schema"
    )
    parser.add_argument(
        "--partition-by",
        action="append",
        default=[],
        metavar="TOPIC=COLUMN,…",
        help="new files of the topic's typed table have one value of each of these columns, or of day(COLUMN) and "
        "hour(COLUMN) of times; TOPIC= for days alone",
    )
    parser.add_argument(
        "--latest", action="store_true", help="also keep a table of the latest record of each key of compacted topics"
    )
    parser.add_argument("--merge-files", action="store_true", help="also join small files of the tables, by day")
    parser.add_argument("--remove-orphans", action="store_true", help="also remove files that killed runs have left")
    add_on_undecodable(parser)
    return parser


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runners:
    """The parts of the work as Spark runs them; None for those that the options leave out."""

    groups: GroupRunner
    trial: Callable[[str, Plan], object]
    rebuild: RebuildRunner | None
    latest: LatestRunner | None
    merge: MergeRunner | None
    removes_orphans: bool


def _archive(
    instance: Instance,
    lake: ResultStore,
    storage: Storage,
    topic: Topic,
    runners: _Runners,
    sizes: Sizes,
    schema: tuple[str, str] | None,
    partition_by: Sequence[str] | None,
) -> ArchiveResult:
    if storage.catalog is None:
        name = claim_table(lake, topic, TableKind.PARQUET)
        return archive_topic(instance, lake, topic, ParquetTable(lake, name), runners.groups, sizes, log_event)
    catalog, namespace = open_catalog(storage.catalog, storage)
    name = claim_table(lake, topic, TableKind.ICEBERG)
    table = IcebergTable(catalog, namespace, lake, name)

    def ready() -> Typing | None:
        if schema is None:
            return None
        if runners.rebuild is not None:
            rebuild_table(table, schema, runners.rebuild, log_event, partition_by)
        return table.typed(*schema, partition_by)

    check = runners.trial if partition_by else NOTHING_TO_PREPARE.check
    preparation = Preparation(ready=ready, check=check)
    result = archive_topic(instance, lake, topic, table, runners.groups, sizes, log_event, preparation)
    _keep_tables(lake, (catalog, namespace), topic, table, runners, schema)
    return result


def _keep_tables(
    lake: ResultStore,
    place: "tuple[Catalog, str]",
    topic: Topic,
    table: IcebergTable,
    runners: _Runners,
    schema: tuple[str, str] | None,
) -> None:
    """Bring the table of latest rows up to date, join small files, and remove those of killed runs, as asked."""
    if runners.latest is not None and topic.config.is_compacted:
        name = claim_table(lake, topic, TableKind.ICEBERG, LATEST_SUFFIX)
        latest = IcebergTable(*place, lake, name)
        typing = None if schema is None else latest.typed(*schema)
        merge_latest(table, latest, topic, typing, runners.latest, log_event)
        if runners.removes_orphans:
            remove_table_orphans(lake, latest, log_event)
    if runners.merge is not None:
        merge_files(table, runners.merge, log_event)
    if runners.removes_orphans:
        remove_table_orphans(lake, table, log_event)


def _trial_runner(context: "SparkContext", storage: Storage, uri: str) -> Callable[[str, Plan], object]:
    def run_trial(table: str, plan: Plan) -> None:
        registries = partial(open_registry, storage)
        context.parallelize([plan], 1).foreach(
            lambda each: try_partitions(open_instance(storage), open_results(uri, storage), table, each, registries)
        )

    return run_trial


def _merge_runner(context: "SparkContext", storage: Storage, uri: str) -> MergeRunner:
    def run_merge(merge: Merge) -> Sequence[MergedFiles]:
        indexes = context.parallelize(range(len(merge.groups)), len(merge.groups))
        return indexes.map(lambda index: merge_group(open_results(uri, storage), merge, index)).collect()

    return run_merge


def _latest_runner(context: "SparkContext", storage: Storage, uri: str) -> LatestRunner:
    def run_latest(work: LatestRows) -> Sequence[Sequence[ArchivedFile]]:
        registries = partial(open_registry, storage)
        partitions = context.parallelize(range(work.partitions), work.partitions)
        return partitions.map(
            lambda partition: write_latest(open_results(uri, storage), work, partition, registries)
        ).collect()

    return run_latest


def _rebuild_runner(context: "SparkContext", storage: Storage, uri: str) -> RebuildRunner:
    def run_rebuild(rebuild: Rebuild) -> Sequence[RebuiltFile]:
        indexes = context.parallelize(range(len(rebuild.paths)), len(rebuild.paths))
        registries = partial(open_registry, storage)
        return indexes.map(lambda index: rebuild_file(open_results(uri, storage), rebuild, index, registries)).collect()

    return run_rebuild


def read_schemas(given: Sequence[str], storage: Storage) -> dict[str, tuple[str, str]]:
    """Format and text of the schema of each topic that `--schema` names. Raises INVALID_CONFIG with the way out."""
    found: dict[str, tuple[str, str]] = {}
    for each in given:
        topic, _, rest = each.partition("=")
        kind, _, place = rest.partition(":")
        if not topic or kind not in (*FORMATS, REGISTERED) or not place or place.endswith("/"):
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"--schema {each!r:.200}: give TOPIC=json:FILE, TOPIC=avro:s3://bucket/key, "
                "TOPIC=protobuf:order.desc#shop.Order or TOPIC=registry:https://host",
            )
        if topic in found:
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"--schema names topic {topic!r:.100} twice: give it one")
        text = read_schema(kind, place, topic, storage)
        value_columns(kind, text)
        found[topic] = kind, text
    return found


def read_partitions(given: Sequence[str], topics: Sequence[Topic]) -> dict[str, tuple[str, ...]]:
    """The columns that `--partition-by` names, by topic. Raises INVALID_CONFIG with the way out."""
    found: dict[str, tuple[str, ...]] = {}
    names = {each.name for each in topics}
    for each in given:
        topic, is_pair, columns = each.partition("=")
        listed = tuple(filter(None, columns.split(",")))
        if topic not in names or not is_pair or topic in found or len({*listed}) < len(listed):
            raise _invalid(f"--partition-by {each!r:.200}: give TOPIC=COLUMN,… once for each topic of this run")
        found[topic] = listed
    return found


def _invalid(message: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, message)


def topic_schema(topic: Topic, storage: Storage) -> tuple[str, str] | None:
    """Format and text of the schema that the topic names; None if it names none. Raises as `read_schema`.

    Without a catalog, the schema has no use, and a line says so.
    """
    kind, _, place = topic.config.value_schema.partition(":")
    if kind and storage.catalog is None:
        log_event("untyped", topic=topic.name, value_schema=topic.config.value_schema, reason="the run has no catalog")
        return None
    return (kind, read_schema(kind, place, topic.name, storage)) if kind else None


def _check_schemas(schemas: Mapping[str, object], topics: Sequence[Topic], storage: Storage, *, rebuilds: bool) -> None:
    if rebuilds and not schemas and not any(each.config.value_schema for each in topics):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, "--rebuild types tables anew: give their --schema, or the topics a value_schema"
        )
    unknown = sorted(schemas.keys() - {each.name for each in topics})
    if unknown:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"--schema names {', '.join(unknown)[:200]}, which this run does not archive"
        )
    if (schemas or rebuilds) and storage.catalog is None:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, "types need a --catalog: plain Parquet files have no columns that may change"
        )


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
                registries=partial(open_registry, storage),
            )
        ).collect()

    return run_groups


def _topics(instance: Instance, names: Sequence[str]) -> list[Topic]:
    return [instance.topic_cache.read_through(name) for name in dict.fromkeys(names)] or list(
        instance.stores.topics.list()
    )


if __name__ == "__main__":
    main(sys.argv[1:])
