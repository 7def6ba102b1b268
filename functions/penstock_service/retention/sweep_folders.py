"""The folders of keys that a sweep goes over, and the sweep of one of them.

A sweep never lists a bucket as a whole. It asks each bucket for its folders, and lists one folder at a time:

| bucket                     | a folder holds                        | folders that a sweep lists                     |
|----------------------------|---------------------------------------|------------------------------------------------|
| directory bucket           | one hour                              | those with objects, and none that is too young |
| directory bucket, old keys | a 256th of the segments with old keys | those with objects: none, once these are gone  |
| ordinary bucket            | a 256th of all segments               | those with objects                             |
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
from penstock_core.limits import SWEEP_FOLDERS_AT_ONCE
from penstock_core.storage.keys import HOUR_MS, KeyLayout, parse_folder, parse_segment_key
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import SegmentStore
from penstock_service.retention.mark_live import LiveSegments
from penstock_service.stores import Stores

Position = tuple[str, int]  # the value of a layout, and a folder's number: the hours sort before the digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder of keys, and the stores that have objects in it."""

    layout: KeyLayout
    number: int
    name: str
    stores: Sequence[SegmentStore]

    @property
    def position(self) -> Position:
        """The folder's place in a sweep."""
        return self.layout.value, self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSweepResult:
    """The counts of one folder of one store, and the live segments that it holds."""

    listed: int
    deleted: int
    foreign: int
    held: frozenset[SegmentId]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderList:
    """The folders of all stores by position, and the errors of the stores that could not tell theirs."""

    folders: Mapping[Position, Folder]
    errors: Sequence[PenstockError] = field(default=())

    def steps(self, start: Position) -> Iterator[list[Folder]]:
        """The folders from `start` on, as many together as are swept side by side: one hour, or a few of the 256."""
        due = [self.folders[position] for position in sorted(self.folders) if position >= start]
        for layout, some in groupby(due, key=lambda folder: folder.layout):
            group = list(some)
            size = 1 if layout is KeyLayout.BY_HOUR else SWEEP_FOLDERS_AT_ONCE
            yield from (group[at : at + size] for at in range(0, len(group), size))


def swept_stores(stores: Stores) -> list[SegmentStore]:
    """The stores that a sweep goes over: zones, zones by the keys of an earlier release, archive, and log table."""
    earlier = [zone.earlier for zone in stores.zones if zone.earlier is not None]
    return [*stores.zones, *earlier, stores.archive, stores.inline]


def find_folders(instance: Instance, cutoff_ms: int) -> FolderList:
    """The folders that may hold segments from before `cutoff_ms`. One list call for each store and 1,000 folders."""
    stores = swept_stores(instance.stores)
    places: dict[Position, tuple[str, list[SegmentStore]]] = {}
    errors: list[PenstockError] = []
    for store, found in zip(stores, instance.executor.map(lambda each: each.list_folders(), stores), strict=True):
        if isinstance(found, PenstockError):
            errors.append(found)
            continue
        for name in found:
            parsed = parse_folder(name)
            if parsed is None or parsed[0] is not store.layout:
                continue
            layout, number = parsed
            if layout is KeyLayout.SPREAD or number * HOUR_MS < cutoff_ms:
                places.setdefault((layout.value, number), (name, []))[1].append(store)
    return FolderList(
        folders={
            position: Folder(layout=KeyLayout(position[0]), number=position[1], name=name, stores=some)
            for position, (name, some) in places.items()
        },
        errors=errors,
    )


def sweep_folder(
    store: SegmentStore, folder: str, live: LiveSegments, *, is_dry_run: bool = False
) -> FolderSweepResult:
    """Lists one folder of one store and deletes the segments that are old and not live. A dry run only counts them.

    An object stays if its key is not a segment's, letter for letter. One list call for each 1,000 objects, and a delete
    for each call that finds dead ones.
    """
    listed, deleted, foreign, token = 0, 0, 0, None
    held: set[SegmentId] = set()
    while True:
        part = store.list_keys(folder, token)
        parsed = (parse_segment_key(key, store.layout) for key in part.keys)
        found = [segment_id for segment_id in parsed if segment_id is not None]
        dead = [segment_id for segment_id in found if live.is_ours(segment_id) and segment_id not in live.ids]
        if dead and not is_dry_run:
            store.delete(dead)
        held.update(segment_id for segment_id in found if segment_id in live.ids)
        listed += len(part.keys)
        deleted += len(dead)
        foreign += sum(live.is_foreign(segment_id) for segment_id in found)
        token = part.next_token
        if token is None:
            return FolderSweepResult(listed=listed, deleted=deleted, foreign=foreign, held=frozenset(held))
