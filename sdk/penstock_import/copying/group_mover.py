"""The offsets of groups: read at the source, translated by the notes, committed in Penstock.

A group that has members in Penstock stays where it is. So does an offset that is further than its translation. The
service refuses both by itself, whatever happens between a look and a commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.admin.admin import Admin
from penstock.errors import AccessDeniedError, NotFoundError
from penstock.model import TopicPartition
from penstock_core.errors import ErrorCode, PenstockError
from penstock_import.copying.starts import KEEP
from penstock_import.progress.chunk_note import ChunkNote, Translation, translate_kept, translate_rehashed
from penstock_import.progress.progress_topic import ProgressTopic
from penstock_import.source.records import TopicSource


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """The outcome for a group. `further` are partitions in which it had gone further already."""

    group: str
    offsets: Mapping[int, int] = field(default_factory=dict)
    further: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The groups to move in `topic`, and whether their offsets may go back."""

    groups: Sequence[str]
    topic: str
    mode: str
    may_go_back: bool = False


class GroupMover:
    """Moves the groups as often as it is asked; it commits what has changed since."""

    def __init__(self, admin: Admin, reader: TopicSource, progress: ProgressTopic, settings: GroupSettings) -> None:
        self._admin = admin
        self._reader = reader
        self._progress = progress
        self._settings = settings
        self._done: dict[str, tuple[Mapping[int, int], Translation]] = {}

    def move(self, reached: Mapping[int, int]) -> list[GroupMove]:
        """Move all groups. `reached` tells how far each partition of the source is copied."""
        return [self._move(group, reached) for group in self._settings.groups]

    def _move(self, group: str, reached: Mapping[int, int]) -> GroupMove:
        wanted = self._reader.committed(group)
        if not wanted:
            return GroupMove(group=group, refusal="it has committed no offset of the topic at the source")
        if self._has_members(group):
            return GroupMove(group=group, refusal="it has members in Penstock: stop them, and run the import again")
        found = self._translated(group, wanted, reached)
        before = self._done[group][1].offsets if group in self._done else {}
        further = self._commit(group, {each: at for each, at in found.offsets.items() if before.get(each) != at})
        if isinstance(further, str):
            return GroupMove(group=group, refusal=further)
        self._done[group] = (dict(wanted), found)
        offsets = {each: at for each, at in found.offsets.items() if each not in further}
        return GroupMove(group=group, offsets=offsets, further=further, waiting=found.waiting)

    def _translated(self, group: str, wanted: Mapping[int, int], reached: Mapping[int, int]) -> Translation:
        if self._settings.mode != KEEP:
            return translate_rehashed(wanted, self._notes(0))
        earlier, translation = self._done.get(group, ({}, None))
        is_later = all(at >= earlier.get(each, at + 1) for each, at in wanted.items())
        first = translation.first_note if is_later and translation is not None else None
        return translate_kept(wanted, reached, self._notes(first or 0))

    def _notes(self, start_offset: int) -> Iterator[tuple[int, ChunkNote]]:
        for offset, value in self._progress.notes(self._admin, start_offset):
            yield offset, ChunkNote.decode(value)

    def _has_members(self, group: str) -> bool:
        try:
            return bool(self._admin.describe_group(group).members)
        except (NotFoundError, AccessDeniedError):
            return False  # without the right to look, the service refuses offsets that members own

    def _commit(self, group: str, offsets: Mapping[int, int]) -> tuple[int, ...] | str:
        """The partitions in which the group is further already, or the reason of a refusal."""
        further = []
        for partition, offset in sorted(offsets.items()):
            try:
                self._admin.commit_group_offsets(
                    group,
                    {TopicPartition(self._settings.topic, partition): offset},
                    metadata="penstock import",
                    may_go_back=self._settings.may_go_back,
                )
            except PenstockError as error:
                if error.code is ErrorCode.OFFSET_BEHIND:
                    further.append(partition)
                elif error.code is ErrorCode.LEASE_HELD:
                    return "a member has joined it in Penstock: stop it, and run the import again"
                else:
                    raise
        return tuple(further)
