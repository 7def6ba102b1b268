"""`penstock import`: from Kafka or SQS into a topic.

Exit codes: 0 all is copied, or `--follow` was stopped; 1 an error, a stop before the end, or a group or message that
stayed behind; 2 wrong usage.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.service import Service, parse_offsets, service_command
from penstock.workers.signals import stopped_by_signals
from penstock_core.limits import IMPORT_QUEUE_WAIT_MS
from penstock_core.text import counted
from penstock_import.copying.copier import Copier, CopySettings
from penstock_import.copying.group_mover import GroupMove, GroupMover, GroupSettings
from penstock_import.copying.starts import KEEP, REHASH, StartSettings, placement_for
from penstock_import.copying.topic_import import ImportOutcome, TopicImport, find_or_create_topic, find_topic
from penstock_import.queue.drain import Drain, DrainSettings
from penstock_import.queue.sqs import SqsQueue, sqs_client
from penstock_import.report import Report, group_json
from penstock_import.source.address import KafkaAddress, QueueAddress, parse_address, parse_properties
from penstock_import.source.records import TopicSource

_KAFKA_ONLY = {
    "config": "--config",
    "partitions": "--partitions",
    "create": "--create",
    "append": "--append",
    "groups": "--group",
    "groups_may_go_back": "--groups-may-go-back",
    "from_beginning": "--from-beginning",
    "start_offsets": "--from",
    "skip_expired": "--skip-expired",
    "skip_too_large": "--skip-too-large",
}


@click.command(name="import")
@click.argument("source")
@click.option("--to", metavar="TOPIC", help="The topic to fill. Default: the name of the topic or queue.")
@click.option("--follow", is_flag=True, help="Go on with new records or messages until INT or TERM.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Kafka: a properties file with librdkafka's settings, for TLS and SASL.",
)
@click.option("--create", is_flag=True, help="Kafka: create the topic, with the partitions and settings of the source.")
@click.option(
    "--partitions",
    type=click.Choice([KEEP, REHASH]),
    default=KEEP,
    show_default=True,
    help="Kafka: keep the partition numbers, or let the key decide. Both keep the order of each key.",
)
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Kafka: move this group's offsets; repeatable.")
@click.option("--groups-may-go-back", is_flag=True, help="Kafka: also where the group has gone further in Penstock.")
@click.option("--from-beginning", is_flag=True, help="Kafka: begin at the oldest record; refused if a copy has begun.")
@click.option(
    "--from", "start_offsets", multiple=True, metavar="PARTITION=OFFSET", help="Kafka: begin a first copy here."
)
@click.option("--append", is_flag=True, help="Kafka: begin a first copy although the topic has records.")
@click.option("--skip-expired", is_flag=True, help="Kafka: go on behind records that the source has removed meanwhile.")
@click.option("--skip-too-large", is_flag=True, help="Kafka: leave out records that the topic cannot take.")
@click.option(
    "--until-empty", is_flag=True, help="SQS: end when the queue is empty. That is the default without --follow."
)
@service_command
def import_(service: Service, source: str, to: str | None, follow: bool, until_empty: bool, **options: Any) -> None:
    """Copy a Kafka topic, or drain an SQS queue, each record once.

    SOURCE is kafka://host:port/topic, with more brokers behind commas, or sqs://queue, a name or a URL.

    A killed import goes on where it was: run it again. Its progress is noted in the topic TOPIC.import.

    For example: penstock import kafka://broker:9092/orders --create
    """
    address = parse_address(source)
    if follow and until_empty:
        raise click.UsageError("give --follow or --until-empty, not both")
    if isinstance(address, QueueAddress):
        _check_queue_options(options)
        _drain(service, address, to or address.name.removesuffix(".fifo"), follows=follow)
        return
    if until_empty:
        raise click.UsageError("--until-empty is for sqs://; a copy of a Kafka topic ends at its present end anyway")
    _copy(service, address, to or address.topic, follow, options)


def _check_queue_options(options: Mapping[str, Any]) -> None:
    context = click.get_current_context()
    given = [
        flag
        for name, flag in _KAFKA_ONLY.items()
        if name in options and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: only for kafka://")


def _copy(service: Service, address: KafkaAddress, to: str, follow: bool, options: Mapping[str, Any]) -> None:
    start = StartSettings(
        offsets=parse_offsets(options["start_offsets"]),
        from_beginning=options["from_beginning"],
        appends=options["append"],
        skips_expired=options["skip_expired"],
    )
    properties = parse_properties(options["config"].read_text()) if options["config"] else {}
    admin = Admin(transport=service.transport)
    reader = _reader(address, properties)
    try:
        found = reader.describe()
        topic = find_or_create_topic(admin, to, found, reader) if options["create"] else find_topic(admin, to, found)
        settings = CopySettings(
            source=found,
            topic=topic,
            placement=placement_for(options["partitions"], found, topic),
            start=start,
            skips_too_large=options["skip_too_large"],
        )
        groups = GroupSettings(
            groups=options["groups"], topic=to, mode=options["partitions"], may_go_back=options["groups_may_go_back"]
        )
        with (
            Report(f"{address.topic} to {to}", as_json=service.as_json) as report,
            closing(Copier(reader, service.transport, settings, report)) as copier,
        ):
            copier.progress.create(admin)
            mover = GroupMover(admin, reader, copier.progress, groups)
            with stopped_by_signals(copier.rounds.stop):
                outcome = TopicImport(copier, reader, mover, report, follows=follow).run()
    finally:
        reader.close()
    _tell_copy(service, to, outcome, report.seconds)


def _reader(address: KafkaAddress, properties: Mapping[str, str]) -> TopicSource:
    try:
        from penstock_import.source.confluent import ConfluentSource  # SQS needs no librdkafka
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from error
    return ConfluentSource(address, properties)


def _tell_copy(service: Service, to: str, outcome: ImportOutcome, seconds: float) -> None:
    document = {
        "event": "finished",
        "topic": to,
        "records": outcome.records,
        "skipped": outcome.skipped,
        "seconds": round(seconds, 3),
        "is_complete": outcome.is_complete,
        "is_drained": outcome.is_drained,
        "groups": [group_json(each) for each in outcome.groups],
    }
    skipped = f", {outcome.skipped:,} were left out" if outcome.skipped else ""
    end = "" if outcome.is_drained else "; the source has more"
    stop = "" if outcome.is_complete else "interrupted: "
    service.say(document, f"{stop}{counted(outcome.records, 'record')} to {to} in {seconds:.1f} s{skipped}{end}")
    if not outcome.is_complete or _stayed(outcome.groups):
        sys.exit(1)


def _stayed(groups: Sequence[GroupMove]) -> bool:
    return any(each.refusal or each.waiting for each in groups)


def _drain(service: Service, address: QueueAddress, to: str, *, follows: bool) -> None:
    admin = Admin(transport=service.transport)
    admin.describe_topic(to)  # says so if there is no such topic, or no service
    queue = SqsQueue(sqs_client(address), address)
    settings = DrainSettings(topic=to, wait_ms=IMPORT_QUEUE_WAIT_MS, follows=follows)
    with (
        Report(f"{address.name} to {to}", as_json=service.as_json) as report,
        closing(Drain(queue, service.transport, settings, report)) as drain,
    ):
        drain.progress.create(admin)
        with stopped_by_signals(drain.rounds.stop):
            drain.run()
    left = queue.counts()
    document = {
        "event": "finished",
        "topic": to,
        "records": drain.records,
        "repeats": drain.repeats,
        "seconds": round(report.seconds, 3),
        "left": {"visible": left.visible, "in_flight": left.in_flight, "delayed": left.delayed},
    }
    stop = "interrupted: " if drain.rounds.is_stopped and not follows else ""
    rest = (
        f"; about {left.total:,} messages are left: {left.visible:,} to receive, {left.in_flight:,} in flight, "
        f"{left.delayed:,} delayed. Run it again"
        if left.total
        else ""
    )
    service.say(document, f"{stop}{counted(drain.records, 'record')} to {to} in {report.seconds:.1f} s{rest}")
    if (left.total and not follows) or stop:
        sys.exit(1)
