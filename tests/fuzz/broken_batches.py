"""Batches as a hostile or faulty producer may build them: the CRC is right, and little else need be."""

import random
import struct

from crc32c import crc32c

from penstock_core.records.compression import compress
from penstock_core.records.record_batch import BATCH_HEADER_BYTES, Compression

NOW_MS = 1_790_000_000_000
_ODD = 0.02  # the chance of each field to be odd: most batches then have one or two odd fields
_LENGTHS = (-(2**31), -3, -2, -1, 0, 1, 5, 100, 2**31 - 1, 2**40, 2**62)
_NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 127, 2**31 - 1, 2**31, 2**62, 2**63 - 1)


def varint(value: int, extra_bytes: int = 0) -> bytes:
    """The integer as Kafka writes it, with needless bytes at its end on request."""
    raw = (value << 1) ^ (value >> 63)
    digits = bytearray()
    while raw >= 0x80 or extra_bytes > len(digits):
        digits.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*digits, raw])


class BatchFuzzer:
    """Makes batches from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def batches(self) -> bytes:
        """One to three batches, with consecutive base offsets as the log gives them, or all at 0."""
        return b"".join(self.batch() for _ in range(self._random.choice((1, 1, 1, 2, 3))))

    def batch(self) -> bytes:
        """A batch that passes `check_stored`: whole, its CRC right, its span not negative."""
        rng = self._random
        count = rng.choice((1, 1, 1, 2, 2, 3, 3, 10, 10, 200))
        payload = b"".join(self._record(index) for index in range(count))
        if rng.random() < 0.1:
            payload = self._mutated(payload)
        if rng.random() < 0.02:
            payload = rng.choice((b"\xff", b"\x80", b"\x00", b"\xfe")) * rng.choice((1, 11, 40, 3_000))
        compression = rng.choice((Compression.NONE, Compression.NONE, *Compression))
        stored = payload if compression is Compression.NONE else compress(payload, compression)
        if rng.random() < 0.03:
            stored = self._mutated(stored)
        attributes = int(compression)
        if self._is_odd():
            attributes ^= rng.choice((0x01, 0x04, 0x07, 0x08, 0x10, 0x20, 0x40, 0x4000))
        claimed = count if not self._is_odd() else max(0, rng.choice((0, count - 1, count + 1, 1_000_000, 2**31 - 1)))
        delta = max(0, count - 1 if not self._is_odd() else rng.choice((0, count, count + 50, 2**31 - 1)))
        first_ms = NOW_MS if not self._is_odd() else rng.choice(_NUMBERS)
        max_ms = NOW_MS + 1_000 if not self._is_odd() else rng.choice(_NUMBERS)
        length = BATCH_HEADER_BYTES + len(stored) - 12
        header = struct.pack(
            ">qiibIhiqqqhii", 0, length, 0, 2, 0, attributes, delta, first_ms, max_ms, -1, -1, -1, claimed
        )
        data = bytearray(header + stored)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        return bytes(data)

    def _record(self, index: int) -> bytes:
        rng = self._random
        body = bytes([0]) if not self._is_odd() else bytes([rng.randrange(256)])
        body += self._varint(rng.randrange(1_000), _NUMBERS)
        body += self._varint(index, _NUMBERS)
        body += self._bytes(rng.choice((None, b"", b"key", b"\xff\x00")))
        body += self._bytes(rng.choice((None, b"", b"value", bytes(rng.randrange(200)))))
        headers = rng.choice((0, 0, 0, 1, 2, 5))
        body += self._varint(headers, (-1, 0, 1, 3, 2**31, 2**40))
        for _ in range(headers):
            name = b"name" if not self._is_odd() else rng.choice((b"\xff\xfe", b"", b"\xed\xa0\x80", b"n\x00"))
            body += self._bytes(name) + self._bytes(rng.choice((None, b"", b"\xff", b"text")))
        length = len(body) if not self._is_odd() else rng.choice((len(body) + 1, len(body) - 1, *_LENGTHS))
        return self._varint(length, ()) + body

    def _bytes(self, content: bytes | None) -> bytes:
        if content is None:
            return self._varint(-1, _LENGTHS)
        return self._varint(len(content), _LENGTHS) + content

    def _varint(self, value: int, others: tuple[int, ...]) -> bytes:
        """Mostly the value; sometimes another one, or the value in more bytes than it needs."""
        if others and self._is_odd(0.2):
            value = self._random.choice(others)
        return varint(value, self._random.choice((4, 5, 8, 9, 10, 11)) if self._is_odd(0.2) else 0)

    def _mutated(self, data: bytes) -> bytes:
        rng, changed = self._random, bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(changed) + 1)
            match rng.randrange(3):
                case 0 if at < len(changed):
                    changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
                case 1:
                    del changed[at : at + rng.choice((1, 1, 3, 20))]
                case _:
                    changed[at:at] = rng.randbytes(rng.choice((1, 2, 12)))
        return bytes(changed)

    def _is_odd(self, factor: float = 1.0) -> bool:
        return self._random.random() < _ODD * factor
