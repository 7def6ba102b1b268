"""The bytes of locks and waits in the share item, and the token of a lock in the lock id that a client gets.

All numbers are big-endian; a varint has 7 bits a byte, the lowest first, and the top bit says that more follow.

| field                      |                                                                                   |
|----------------------------|-----------------------------------------------------------------------------------|
| version                    | u8: 1                                                                             |
| until_ms, or available_ms  | 6 bytes                                                                           |
| deliveries                 | u16; stays at 65,535                                                              |
| flags                      | u8, of a wait only: 1 rejected, 2 dead, 3 dead with a reason, 4 suspect           |
| ranges                     | a varint of their number; for each two: the gap before it, and its length         |
| reason                     | of a wait with flag 1 only: a varint of its length, and UTF-8                     |
| hashes                     | 4 bytes for each record in order, or nothing                                      |

The offsets of a lock are relative to its base, those of a wait to its first offset. Equal entries have equal bytes, so
a condition compares entries whole.

A release of before 0.2 reads a wait with the flags 1 and 2 as a rejected one, which has the same fate while the group
has a dead-letter topic.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from functools import lru_cache

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.formats import unsupported
from penstock_core.ids import LockId, Offset
from penstock_core.limits import SHARE_TOKEN_BYTES_MAX
from penstock_core.log.ref import varint
from penstock_core.share.reasons import VERSION as REASON_VERSION
from penstock_core.share.reasons import Reason, check_reason_version
from penstock_core.share.record_set import Range, RecordSet
from penstock_core.share.share_state import Lock, Wait

VERSION = 1
DELIVERIES_MAX = 0xFFFF
_TIME_MAX = 2**48 - 1
_REJECTED, _DEAD, _SUSPECT = 1, 2, 4
_HASH_BYTES = 4
_VARINT_BYTES_MAX = 10
_TOKEN_SEPARATOR = "~"  # noqa: S105 - a separator, no password
_NUMBER_BYTES = 12  # of an offset as DynamoDB stores it, at most
_CODED_WAITS = 128  # that are remembered: one acquire meets each of them several times, some have 512 ranges
_ITEM_BYTES = 220  # of keys, names and numbers of an empty share item


def encode_lock(lock: Lock) -> bytes:
    """The lock without its base."""
    return b"".join((_fixed(lock.until_ms, lock.deliveries), _ranges(lock.records), _hashes(lock.records)))


def decode_lock(base: Offset, data: bytes) -> Lock:
    """The inverse of `encode_lock`. Raises UNSUPPORTED_FORMAT, and INTERNAL for bytes that are no lock."""
    reader = _Reader("share_lock", data)
    until_ms, deliveries = reader.fixed()
    return Lock(base, until_ms, deliveries, reader.records())


@lru_cache(maxsize=_CODED_WAITS)
def encode_wait(wait: Wait) -> bytes:
    """The wait without its first offset."""
    records = wait.records.shifted(-wait.records.start)
    reason = wait.reason.encode()
    has_reason = wait.is_rejected or (wait.is_dead and bool(reason))
    return b"".join(
        (
            _fixed(wait.available_ms, wait.deliveries),
            bytes((_REJECTED * has_reason | _DEAD * wait.is_dead | _SUSPECT * wait.is_suspect,)),
            _ranges(records),
            varint(len(reason)) + reason if has_reason else b"",
            _hashes(records),
        )
    )


@lru_cache(maxsize=_CODED_WAITS)
def decode_wait(first: Offset, data: bytes) -> Wait:
    """The inverse of `encode_wait`. Raises as `decode_lock`."""
    reader = _Reader("share_wait", data)
    available_ms, deliveries = reader.fixed()
    [flags] = reader.take(1)
    ranges = reader.ranges()
    try:
        reason = reader.take(reader.varint()).decode() if flags & _REJECTED else ""
    except UnicodeDecodeError as error:
        raise reader.corrupt() from error
    return Wait(
        available_ms,
        deliveries,
        reader.with_hashes(ranges).shifted(first),
        is_rejected=bool(flags & _REJECTED) and not flags & _DEAD,
        reason=reason,
        is_dead=bool(flags & _DEAD),
        is_suspect=bool(flags & _SUSPECT),
    )


def encode_reason(reason: Reason) -> bytes:
    """The reason of a release, as `reasons` lays it out."""
    return bytes((REASON_VERSION,)) + _ranges(RecordSet(reason.ranges)) + reason.text.encode()


def decode_reason(data: bytes) -> Reason:
    """The inverse of `encode_reason`. Raises as `decode_lock`."""
    reader = _Reader("share_reason", data)
    [version] = reader.take(1)
    check_reason_version(version)
    ranges = reader.ranges()
    try:
        return Reason(reader.rest().decode(), ranges)
    except UnicodeDecodeError as error:
        raise reader.corrupt() from error


def client_lock_id(lock_id: LockId, lock: Lock, generation: int) -> str:
    """The lock id that a client gets: with the lock's bytes behind it if they are short.

    With them, one write acknowledges the lock, without a read (`acknowledge.plan_blind`).
    """
    data = varint(generation) + varint(lock.base) + encode_lock(lock)
    if len(data) > SHARE_TOKEN_BYTES_MAX:
        return lock_id
    return f"{lock_id}{_TOKEN_SEPARATOR}{base64.urlsafe_b64encode(data).decode().rstrip('=')}"


def parse_client_lock_id(text: str) -> tuple[LockId, int, Lock | None]:
    """The lock's id, its generation, and the lock as it was handed out; None if the id does not tell it.

    Raises INVALID_REQUEST for a token that is damaged.
    """
    name, separator, token = text.partition(_TOKEN_SEPARATOR)
    if not separator:
        return LockId(name), 0, None
    try:
        reader = _Reader("share_lock", base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
        generation, base = reader.varint(), Offset(reader.varint())
        return LockId(name), generation, decode_lock(base, reader.rest())
    except (ValueError, binascii.Error, PenstockError) as error:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"lock_id={shown(text)}: is not as an acquire gave it: send it unchanged"
        ) from error


def entries_bytes(locks: Mapping[LockId, Lock], waits: Mapping[Offset, Wait]) -> int:
    """The size of a share item with these entries, as DynamoDB counts it, or a little more."""
    of_locks = sum(2 * (len(name) + 1) + _NUMBER_BYTES + len(encode_lock(lock)) for name, lock in locks.items())
    of_waits = sum(1 + len(str(first)) + len(encode_wait(wait)) for first, wait in waits.items())
    return _ITEM_BYTES + of_locks + of_waits


def _fixed(time_ms: int, deliveries: int) -> bytes:
    return bytes((VERSION,)) + min(max(time_ms, 0), _TIME_MAX).to_bytes(6) + min(deliveries, DELIVERIES_MAX).to_bytes(2)


def _ranges(records: RecordSet) -> bytes:
    out = bytearray(varint(len(records.ranges)))
    before = 0
    for start, end in records.ranges:
        for value in (start - before, end - start):
            if value > 0x7F:
                out += varint(value)
            else:
                out.append(value)
        before = end
    return bytes(out)


def _hashes(records: RecordSet) -> bytes:
    return b"".join(value.to_bytes(_HASH_BYTES) for value in records.hashes)


class _Reader:
    """Takes fields off the front of an entry's bytes."""

    def __init__(self, kind: str, data: bytes) -> None:
        self._kind = kind
        self._data = data
        self._at = 0

    def corrupt(self) -> PenstockError:
        """The error for bytes that are no such entry."""
        return PenstockError(ErrorCode.INTERNAL, f"{self._kind}: its {len(self._data)} bytes are damaged")

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise self.corrupt()
        self._at += count
        return self._data[self._at - count : self._at]

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def fixed(self) -> tuple[int, int]:
        [version] = self.take(1)
        if version != VERSION:
            raise unsupported(self._kind, version)
        return int.from_bytes(self.take(6)), int.from_bytes(self.take(2))

    def varint(self) -> int:
        value = 0
        for place in range(_VARINT_BYTES_MAX):
            [byte] = self.take(1)
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise self.corrupt()

    def records(self) -> RecordSet:
        return self.with_hashes(self.ranges())

    def ranges(self) -> tuple[Range, ...]:
        return tuple(self._each_range())

    def with_hashes(self, ranges: tuple[Range, ...]) -> RecordSet:
        """The records of the ranges. The rest of the bytes are their hashes."""
        records, data = RecordSet(ranges), self.rest()
        if data and len(data) != _HASH_BYTES * records.count:
            raise self.corrupt()
        places = range(0, len(data), _HASH_BYTES)
        return RecordSet(ranges, tuple(int.from_bytes(data[at : at + _HASH_BYTES]) for at in places))

    def _each_range(self) -> Iterator[Range]:
        before = 0
        for place in range(self.varint()):
            gap, length = self.varint(), self.varint()
            if not length or (place and not gap):
                raise self.corrupt()
            before += gap + length
            yield before - length, before
