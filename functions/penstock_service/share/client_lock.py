"""The lock id that a client gets: the lock's id, its bytes as a token, and a mark of the group and the topic.

```
c8KqP2xA.0~AAQBAaIFyyNCAAEBAAY~5f1c
```
The mark tells a group or a topic from one that was made anew under its name. An acknowledgement of a lock in the old
one finds nothing in the new one, and must not be answered as if its records were finished.
"""

from penstock_core.ids import LockId
from penstock_core.records.partitioner import murmur2
from penstock_core.share.acquire import Grant
from penstock_core.share.share_codec import client_lock_id, parse_client_lock_id
from penstock_core.share.share_state import Lock, ShareKey

_SEPARATOR = "~"
_MARK_BITS = 16


def marked_lock_id(grant: Grant, key: ShareKey) -> str:
    """The lock id that the client gets for the grant."""
    return f"{client_lock_id(grant.lock_id, grant.lock, grant.generation)}{_SEPARATOR}{mark_of(key)}"


def parse_marked_lock_id(text: str) -> tuple[LockId, int, Lock | None, str]:
    """The lock's id, its generation, the lock as it was handed out if the id tells it, and the mark; "" for none.

    Raises INVALID_REQUEST for a token that is damaged.
    """
    rest, separator, mark = text.rpartition(_SEPARATOR)
    if not separator or len(mark) != _MARK_BITS // 4:
        rest, mark = text, ""
    return *parse_client_lock_id(rest), mark


def mark_of(key: ShareKey) -> str:
    """Four hexadecimal digits that follow from the share group's id and the topic's."""
    return f"{murmur2(f'{key.share_group_id}{key.topic_id}'.encode()) % 2**_MARK_BITS:04x}"
