"""The import of a topic from begin to end: the copy, the look at its end, and the groups.

The topic that takes the records: found, or created with the settings of the source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.admin.admin import Admin
from penstock.errors import NotFoundError, UnknownTopicError
from penstock.model import Topic
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import IMPORT_GROUPS_MS, UNLIMITED
from penstock_core.log.topic import CLEANUP_POLICIES, TOPIC_BOUNDS
from penstock_import.copying.copier import Copier, CopyReport
from penstock_import.copying.group_mover import GroupMove, GroupMover
from penstock_import.source.records import SourceTopic, TopicSource

_NAMES = {  # of settings that mean the same: Kafka's and ours
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "delete.retention.ms": "delete_retention_ms",
    "max.message.bytes": "max_batch_bytes",
}


class ImportReport(CopyReport, Protocol):
    """The one to tell of the copy, its end, and the groups."""

    def drained(self) -> None:
        """The copy has reached the end of the source, which was asked after the last chunk."""

    def moved(self, moves: Sequence[GroupMove]) -> None:
        """Groups were moved, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOutcome:
    """The end of an import. If `is_complete`, it has copied the records that the source held when it began.

    If `is_drained`, it has copied all that the source held, in all its partitions, when the import asked at its end.
    """

    records: int
    skipped: int
    is_complete: bool
    is_drained: bool
    groups: Sequence[GroupMove]


class TopicImport:
    """Runs a copier until the source's present end, or with `follows` until it is stopped."""

    def __init__(
        self, copier: Copier, reader: TopicSource, mover: GroupMover, report: ImportReport, *, follows: bool
    ) -> None:
        self._copier = copier
        self._reader = reader
        self._mover = mover
        self._report = report
        self._follows = follows
        self._goal: Mapping[int, int] | None = None
        self._was_drained = False
        self._next_look_ms = monotonic_ms() + IMPORT_GROUPS_MS
        self._moves: Sequence[GroupMove] = ()

    def run(self) -> ImportOutcome:
        """Copy, and move the groups at the end. With `follows` they are moved again and again."""
        self._copier.run(self._look)
        self._move()
        positions = self._copier.positions
        return ImportOutcome(
            records=self._copier.records,
            skipped=self._copier.skipped,
            is_complete=self._follows or self._is_at_goal(positions),
            is_drained=bool(positions) and self._is_drained_now(),
            groups=self._moves,
        )

    def _look(self, positions: Mapping[int, int]) -> bool:
        """Between two chunks: tell of the end, move groups when it is time. True if the import is over."""
        if not self._follows:
            if self._goal is None:
                self._goal = {each: bounds.end for each, bounds in self._reader.bounds().items()}
            return self._is_at_goal(positions)
        if monotonic_ms() >= self._next_look_ms:
            self._look_at_source()
        is_drained = self._copier.has_read and self._copier.lag == 0
        if is_drained and not self._was_drained:
            is_drained = self._copier.is_at_end()
            if is_drained:
                self._report.drained()
        self._was_drained = is_drained
        return False

    def _is_at_goal(self, positions: Mapping[int, int]) -> bool:
        return self._goal is not None and all(positions.get(each, 0) >= end for each, end in self._goal.items())

    def _is_drained_now(self) -> bool:
        """Ask the source once more. False, too, if it does not answer."""
        try:
            return self._copier.is_at_end()
        except PenstockError:
            return False

    def _look_at_source(self) -> None:
        """Each `IMPORT_GROUPS_MS`: find partitions that are new there, and move the groups."""
        try:
            self._copier.is_at_end()
            self._move()
        except PenstockError as error:
            if not error.code.is_retriable:
                raise
            self._report.waits(error, IMPORT_GROUPS_MS / 1_000)
        self._next_look_ms = monotonic_ms() + IMPORT_GROUPS_MS

    def _move(self) -> None:
        moves = self._mover.move(self._copier.positions)
        if moves and moves != self._moves:
            self._report.moved(moves)
        self._moves = moves


def find_topic(admin: Admin, name: str, source: SourceTopic) -> Topic:
    """The topic. Raises NotFoundError, with the ways to create it."""
    try:
        return admin.describe_topic(name).topic
    except UnknownTopicError as error:
        raise NotFoundError(
            ErrorCode.UNKNOWN_TOPIC,
            f"there is no topic {shown(name)}: add --create, or run `penstock topics create {name} --partitions "
            f"{source.partitions}`",
        ) from error


def find_or_create_topic(admin: Admin, name: str, source: SourceTopic, reader: TopicSource) -> Topic:
    """The topic; if there is none, one with the partitions and the settings of the source."""
    try:
        return admin.describe_topic(name).topic
    except UnknownTopicError:
        return admin.create_topic(name, source.partitions, settings_from(reader.topic_settings()))


def settings_from(kafka: Mapping[str, str]) -> Mapping[str, Any]:
    """Kafka's settings of a topic as ours. Each is brought into our bounds."""
    settings: dict[str, Any] = {}
    for name, own in _NAMES.items():
        if name in kafka:
            low, high = TOPIC_BOUNDS[own]
            value = int(kafka[name])
            settings[own] = UNLIMITED if value == UNLIMITED else min(max(value, low), high)
    policy = ",".join(sorted(each.strip() for each in kafka.get("cleanup.policy", "").split(",")))
    if policy in CLEANUP_POLICIES:
        settings["cleanup_policy"] = policy
    return settings
