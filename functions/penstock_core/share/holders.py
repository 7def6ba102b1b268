"""The consumers that hold locks of a partition, by the names in their nonces.

```
 worker-1   --   k3J_x9Qa
 name       two  48 random bits
```
The service keeps no members of share groups, and stores nothing for these names: each lock's id has the nonce of its
acquire anyway. A name is what a client says of itself. It helps operators, and no decision may depend on it.
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock_core.ids import LockId, LockNonce, Offset
from penstock_core.limits import SHARE_HOLDERS_MAX, SHARE_LOCK_NAME_LENGTH_MAX
from penstock_core.share.share_state import ShareState

RANDOM_BYTES = 6

_RANDOM_LENGTH = 8  # in base64
_SEPARATOR = "--"
_OTHERS = re.compile(r"[^A-Za-z0-9_]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A consumer with locks whose time is not over, or all those without a name together.

    `consumer` is the end of its name. `until_ms` is when the last of its locks ends.
    """

    consumer: str
    locks: int
    records: int
    until_ms: int


def named_nonce(consumer_id: str, random: bytes) -> LockNonce:
    """A nonce with the end of the consumer's name. `random` has `RANDOM_BYTES` bytes."""
    assert len(random) == RANDOM_BYTES
    name = _OTHERS.sub("-", consumer_id)[-SHARE_LOCK_NAME_LENGTH_MAX:].strip("-")
    drawn = base64.urlsafe_b64encode(random).decode()
    return LockNonce(f"{name}{_SEPARATOR}{drawn}" if name else drawn)


def name_of(lock_id: LockId) -> str:
    """The end of the name of the consumer that holds the lock; empty for a nonce that tells none."""
    nonce = lock_id.rpartition(".")[0]
    name = nonce[:-_RANDOM_LENGTH]
    return name.removesuffix(_SEPARATOR) if name.endswith(_SEPARATOR) else ""


def holders_of(state: ShareState, start: Offset, now_ms: int) -> tuple[Sequence[Holder], int]:
    """Up to `SHARE_HOLDERS_MAX` holders of records from `start` on, and the number of further ones.

    The holder of the most records comes first.
    """
    found: dict[str, Holder] = {}
    for lock_id, lock in state.locks.items():
        count = lock.held.minus(((0, start),)).count
        if lock.until_ms <= now_ms or not count:
            continue
        name = name_of(lock_id)
        seen = found.get(name) or Holder(consumer=name, locks=0, records=0, until_ms=0)
        found[name] = replace(
            seen,
            locks=seen.locks + 1,
            records=seen.records + count,
            until_ms=max(seen.until_ms, lock.until_ms),
        )
    ordered = sorted(found.values(), key=lambda each: (-each.records, each.consumer))
    return ordered[:SHARE_HOLDERS_MAX], max(0, len(ordered) - SHARE_HOLDERS_MAX)
