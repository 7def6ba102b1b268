"""Copies from a memory source to a memory service."""

from collections.abc import Mapping, Sequence

from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from penstock_core.errors import PenstockError
from penstock_import.copying.copier import Copier, CopySettings
from penstock_import.copying.group_mover import GroupMove, GroupMover, GroupSettings
from penstock_import.copying.starts import StartSettings, placement_for
from penstock_import.copying.topic_import import ImportOutcome, TopicImport
from penstock_import.source.records import SourceRecord
from tests.importer.memory_source import MemorySource


class Told:
    """A report that remembers."""

    def __init__(self) -> None:
        self.firsts: list[bool] = []
        self.errors: list[PenstockError] = []
        self.ends = 0
        self.moves: list[GroupMove] = []

    def resumed(self, positions: Mapping[int, int], *, is_first: bool) -> None:
        self.firsts.append(is_first)

    def copied(self, records: int, skipped: int, lag: int) -> None:
        pass

    def waits(self, error: PenstockError, seconds: float) -> None:
        self.errors.append(error)

    def drained(self) -> None:
        self.ends += 1

    def moved(self, moves: Sequence[GroupMove]) -> None:
        self.moves += moves


def copier_of(
    source: MemorySource,
    service: MemoryPenstock,
    *,
    transport: Transport | None = None,
    mode: str = "keep",
    start: StartSettings | None = None,
    skips_too_large: bool = False,
    report: Told | None = None,
) -> Copier:
    admin = service.admin()
    topic = admin.describe_topic("orders").topic
    found = source.describe()
    settings = CopySettings(
        source=found,
        topic=topic,
        placement=placement_for(mode, found, topic),
        start=start or StartSettings(),
        skips_too_large=skips_too_large,
    )
    copier = Copier(source, transport or service.transport, settings, report or Told())
    copier.progress.create(admin)
    return copier


def copy(source: MemorySource, service: MemoryPenstock, *groups: str, **options: object) -> ImportOutcome:
    """Copy to the source's present end, in a process of its own."""
    report = Told()
    copier = copier_of(source, service, report=report, **options)  # type: ignore[arg-type]
    mode = str(options.get("mode", "keep"))
    settings = GroupSettings(groups=groups, topic="orders", mode=mode)
    mover = GroupMover(service.admin(), source, copier.progress, settings)
    try:
        return TopicImport(copier, source, mover, report, follows=False).run()
    finally:
        copier.close()


def held(service: MemoryPenstock) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """What the topic holds: partition, time, key and value, partition by partition in order."""
    return [(each.partition, each.timestamp_ms, each.key, each.value) for each in service.records("orders")]


def sent(source: MemorySource) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """What it should hold."""

    def row(record: SourceRecord) -> tuple[int, int, bytes | None, bytes | None]:
        return record.partition, record.timestamp_ms or 0, record.key, record.value

    return [row(each) for partition in source.records for each in partition]
