"""The items of a target assignment: chunks of its bytes, since an item holds 400 KB at most.

```
groups table   pk group name   sk "target#<epoch, 10 digits>#<target id>#<chunk, 3 digits>"
target   B   one chunk of `encode_target`'s bytes (groups/group_target.py), 300 KiB at most
```
A writer stores all chunks before the group's item names their epoch and id. So two writers of one epoch never mix.
"""

from penstock_core.ids import GroupName
from penstock_core.storage.item import Item

TARGET_PREFIX = "target#"


def target_item(group: GroupName, epoch: int, target_id: str, chunk: int, data: bytes) -> Item:
    """The item of one chunk; `chunk` counts from 0."""
    return {"pk": {"S": group}, "sk": {"S": target_key(epoch, target_id, chunk)}, "target": {"B": data}}


def target_key(epoch: int, target_id: str, chunk: int) -> str:
    """Sort key of one chunk."""
    return f"{target_prefix(epoch)}{target_id}#{chunk:03d}"


def target_prefix(epoch: int) -> str:
    """The prefix of all sort keys of a group epoch's targets. Keys of earlier epochs sort below it."""
    return f"{TARGET_PREFIX}{epoch:010d}#"
