"""ShareStore in memory, as faithful as the one on DynamoDB."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from penstock_core.groups.sessions import concurrent_update
from penstock_core.ids import GroupName, Offset
from penstock_core.share.share_group import HIDDEN_PREFIX, ShareGroup, deletion_note
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.share.share_update import ShareOutcome, ShareUpdate, apply
from penstock_core.storage.dynamodb_limits import check_actions, check_item, check_update
from penstock_core.storage.share.share_state_item import share_item, share_update
from penstock_service.adapters.memory.contention import Contention


class MemoryShareStore:
    """ShareStore: the port documents its methods."""

    def __init__(self, contention: Contention | None = None) -> None:
        self._lock = threading.RLock()
        self._contention = contention
        self._groups: dict[GroupName, ShareGroup] = {}
        self._states: dict[ShareKey, ShareState] = {}

    def held(self) -> AbstractContextManager[object]:
        """A context in which no other thread changes this store."""
        return self._lock

    def get_group(self, group: GroupName) -> ShareGroup | None:
        return self._groups.get(group)

    def change_group(self, old: ShareGroup | None, new: ShareGroup) -> None:
        with self._lock:
            if _version(self._groups.get(new.name)) != _version(old):
                raise concurrent_update(f"share group {new.name}")
            self._groups[new.name] = new

    def delete_group(self, seen: ShareGroup) -> None:
        with self._lock:
            if _version(self._groups.get(seen.name)) != _version(seen):
                raise concurrent_update(f"share group {seen.name}")
            del self._groups[seen.name]
            note = deletion_note(seen)
            self._groups[note.name] = note

    def forget_group(self, hidden: ShareGroup) -> None:
        with self._lock:
            self._groups.pop(hidden.name, None)

    def hidden_groups(self, after: str, limit: int) -> Sequence[ShareGroup]:
        with self._lock:
            names = sorted(name for name in self._groups if name > after and name.startswith(HIDDEN_PREFIX))
            return [self._groups[name] for name in names[:limit]]

    def list_groups(self, after: str, limit: int) -> Sequence[ShareGroup]:
        with self._lock:
            names = sorted(name for name in self._groups if name > after and not name.startswith(HIDDEN_PREFIX))
            return [self._groups[name] for name in names[:limit]]

    def find_states(self, keys: Sequence[ShareKey]) -> Mapping[ShareKey, ShareState]:
        with self._lock:
            return {key: self._states[key] for key in keys if key in self._states}

    def create_state(self, key: ShareKey, position: Offset) -> ShareState:
        with self._lock:
            return self._states.setdefault(key, ShareState(position=position))

    def begin_state(self, group: GroupName, key: ShareKey, position: Offset) -> ShareState | None:
        with self._lock:
            found = self._groups.get(group)
            if found is None or found.share_group_id != key.share_group_id:
                return None
            return self.create_state(key, position)

    def begin_states(self, group: GroupName, begins: Mapping[ShareKey, Offset]) -> bool:
        check_actions(1 + len(begins))
        with self._lock:
            return None not in [self.begin_state(group, key, position) for key, position in begins.items()]

    def update(self, key: ShareKey, update: ShareUpdate) -> ShareOutcome:
        check_update(share_update(key, update))
        if self._contention is not None:
            self._contention.write(key)
        with self._lock:
            return self.update_held(key, update)

    def update_held(self, key: ShareKey, update: ShareUpdate) -> ShareOutcome:
        """As `update`, for a caller that holds this store."""
        before = self._states.get(key)
        after = apply(before, update)
        if after is not None:
            check_item(share_item(key, after))
            self._states[key] = after
        return ShareOutcome(before=before, after=after)

    def reset(self, key: ShareKey, seen: ShareState, position: Offset) -> bool:
        with self._lock:
            stored = self._states.get(key)
            if stored is None or stored.generation != seen.generation:
                return False
            self._states[key] = ShareState(
                generation=seen.generation + 1, position=position, waiter_ms=stored.waiter_ms
            )
            return True

    def delete_state(self, key: ShareKey) -> None:
        with self._lock:
            self._states.pop(key, None)


def _version(group: ShareGroup | None) -> tuple[str, int] | None:
    return None if group is None else (group.share_group_id, group.version)
