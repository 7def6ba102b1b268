"""Which acquires take records that came back, while there are fresh ones.

An update that takes waits, splits them or merges them expects them as they were read. If each acquire did so, twenty
workers on one partition would refuse each other, and a refused update costs as many write units as another. So one
acquire of `_TENDERS` does it, as its nonce tells. The longer a record has been due, the more acquires do, and soon
all of them. So no record waits for long, also where one slow worker is alone.
"""

from penstock_core.ids import LockNonce
from penstock_core.records.partitioner import murmur2

_TENDERS = 8
_PATIENCE_MS = 250  # after each of these, twice as many acquires take what is due


def tends(nonce: LockNonce, overdue_ms: int) -> bool:
    """True if the acquire takes records that came back. The longest of them has been due for `overdue_ms`."""
    halvings = min(max(overdue_ms, 0) // _PATIENCE_MS, _TENDERS.bit_length() - 1)
    return murmur2(b"tend" + nonce.encode()) % (_TENDERS >> halvings) == 0
