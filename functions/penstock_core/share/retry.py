"""The pause before records are handed out again.

The pause doubles with each delivery. Its jitter follows from the lock's id. So all acquirers compute the same time for
a lock that has ended, and a repeat computes the same as the first try.
"""

from penstock_core.ids import LockId
from penstock_core.records.partitioner import murmur2
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock

_DOUBLINGS_MAX = 30


def backoff_ms(config: ShareGroupConfig, deliveries: int, lock_id: LockId) -> int:
    """The pause after so many deliveries: between half of the doubled time and all of it."""
    doubled = config.retry_backoff_ms_min << min(max(deliveries - 1, 0), _DOUBLINGS_MAX)
    longest = min(config.retry_backoff_ms_max, doubled)
    return longest // 2 + (longest - longest // 2) * murmur2(lock_id.encode()) // 2**32


def available_ms(config: ShareGroupConfig, lock_id: LockId, lock: Lock) -> int:
    """From when another acquire may take the records of the lock: after its end, and the pause.

    Records on their last delivery have no pause: they go to the dead-letter topic.
    """
    if is_last_delivery(config, lock.deliveries):
        return lock.until_ms
    return lock.until_ms + backoff_ms(config, lock.deliveries, lock_id)


def is_last_delivery(config: ShareGroupConfig, deliveries: int) -> bool:
    """True if a record that was handed out so often goes to the dead-letter topic when it comes back."""
    return config.deliveries_max is not None and deliveries >= config.deliveries_max
