"""Values as a sender encrypts them, and a reader decrypts them.

    header  penstock.encryption = {"v":1,"key":ID,"data_key":BASE64,"context":{"penstock:topic":TOPIC}}
    value   12 bytes of nonce | AES-256-GCM of (1 byte of form | content), with a tag of 16 bytes
    form    0: content is the value; 1: it is 4 bytes of length, and the value by zstd

Besides the value, the tag covers the header and the record's key. So a value cannot be moved to another key, nor
a header be changed. Topic, partition and offset of the place are not covered: a dead letter, a redriven, mirrored or
replayed record is a copy elsewhere, with the header and the key that it had. The context names the topic that the
record was sent to, and its right to decrypt goes with that topic.

All records of one data key have the same bytes in the header, so batches compress it away, and readers look the data
key up by it. A nonce is random: one data key encrypts 2^32 values at most, and much fewer by default.
"""

import base64
import copy
import hashlib
import json
import logging
import struct
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from penstock.arguments import check, check_number, check_whole
from penstock.encryption.keys import KEY_BYTES, NONCE_BYTES, Keys, aes_gcm
from penstock.errors import AccessDeniedError, CorruptError, InvalidError, LookUpFirst, UnavailableError
from penstock.system import monotonic_ms, random_bytes
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_DECODED_BYTES_MAX
from penstock_core.records.codec import Headers
from penstock_core.records.compression import compress, decompress_into
from penstock_core.records.record_batch import Compression

_log = logging.getLogger("penstock.encryption")

HEADER = "penstock.encryption"
TOPIC = "penstock:topic"
_VERSION = 1
_PLAIN, _ZSTD = b"\x00", b"\x01"
_LENGTH = struct.Struct(">I")
_SMALL = 64  # bytes of a value that zstd would only lengthen
_RECORDS_MAX = 2**32
_KNOWN_MAX = 10_000  # data keys that a reader remembers
_HEADER_BYTES_MAX = 16_384
_REFUSED_MS = 10_000  # a reader asks no more often for a data key that it may not have
_UNAVAILABLE_MS = 1_000  # nor for one of keys that do not answer, as does a sender
_RENEW_AFTER = 0.9  # of the age of a data key. The rest is for keys that do not answer
_RENEW_AGAIN = 0.01


class _Sealing:
    """The data key under which one topic's records are encrypted, and how much it has encrypted."""

    __slots__ = ("bytes_left", "cipher", "header", "records_left", "renew_ms", "until_ms")

    def __init__(self, header: bytes, cipher: Any, *, until_ms: int, renew_ms: int, records: int, size: int) -> None:
        self.header, self.cipher = header, cipher
        self.until_ms, self.renew_ms = until_ms, renew_ms
        self.records_left, self.bytes_left = records, size

    def is_usable(self, now_ms: int) -> bool:
        return now_ms < self.until_ms and self.records_left > 0 and self.bytes_left > 0

    def is_young(self, now_ms: int) -> bool:
        """It is usable, and the next one is not to be asked for yet."""
        return now_ms < self.renew_ms and self.is_usable(now_ms)


class Encryption:
    """Encrypts values before they are sent, and decrypts them after they were read. Several clients may share one.

        encryption = Encryption(KmsKeys("arn:aws:kms:eu-west-1:111122223333:key/…"))
        Producer(encryption=encryption), Consumer("orders", encryption=encryption)

    A data key serves one topic for `max_age_s` seconds, `max_records` records and `max_bytes` bytes of values. The next
    one is asked for after 90 % of the time: one call to KMS. If that fails, the data key serves to its end. A reader
    asks once for each data key that it meets. Values are compressed one by one before they are encrypted, because
    batches of them no longer shrink; `compress=False` leaves that out where the length of a value could tell a stranger
    something. `now_ms` is a clock that never goes back.

    `context` is bound to each data key, on top of the topic; KMS's policies and logs see it. A reader with a context
    takes a value whose data key lacks a part of it for corrupt. It passes plain values on; with `requires=True` it
    takes them for corrupt, too. Tombstones always pass.

    Keys and headers of records stay plain, so that filters, tags, compaction and orders by key work as before. A value
    of None is a tombstone, and stays one. Raises InvalidError for an option, and NotConfiguredError without the
    package.
    """

    def __init__(
        self,
        keys: Keys,
        *,
        context: Mapping[str, str] | None = None,
        max_age_s: float = 3_600,
        max_records: int = 10_000_000,
        max_bytes: int = 10 * 2**30,
        compress: bool = True,
        requires: bool = False,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        check(
            hasattr(keys, "new_data_key") and hasattr(keys, "unwrap"),
            f"keys is of type {type(keys).__name__}: give KmsKeys(ARN), LocalKeys({{name: bytes}}), or an object "
            "with their methods",
        )
        check_number("max_age_s", max_age_s, 1)
        check_whole("max_records", max_records, 1)
        check(max_records <= _RECORDS_MAX, f"max_records={max_records}: use 1 to {_RECORDS_MAX}")
        check_whole("max_bytes", max_bytes, 1)
        added = dict(context or {})
        is_text = all(isinstance(each, str) for pair in added.items() for each in pair)
        check(is_text and TOPIC not in added, f"context={context!r:.200}: give texts, and no {TOPIC!r}")
        aes_gcm(bytes(32))  # raises where the package is missing
        self._keys = keys
        self._context = added
        self._max_age_ms = int(max_age_s * 1_000)
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._compresses = compress
        self._requires = requires
        self._now_ms = now_ms
        self._asking: dict[str, threading.Lock] = {}  # one caller asks for a topic's next data key
        self._sealings: dict[str, _Sealing] = {}
        self._outages: dict[str, tuple[PenstockError, int]] = {}  # by topic
        self._changing = threading.Lock()
        self._ciphers: dict[bytes, Any] = {}  # by header
        self._refusals: dict[bytes, tuple[PenstockError, int]] = {}  # by the header's digest

    def encrypt(
        self, topic: str, value: bytes | str | None, *, key: bytes | str | None = None, headers: Headers = ()
    ) -> tuple[bytes | None, Headers]:
        """The value and the headers to send, for a record with this key. It may ask for a data key.

        Raises InvalidError for a record that is encrypted already, AccessDeniedError without the right to use the key,
        and UnavailableError. If it raises, nothing was sent.
        """
        if value is None:
            return None, headers
        plain, key_bytes = _bytes("value", value), None if key is None else _bytes("key", key)
        try:
            is_sealed = any(name == HEADER for name, _ in headers)
        except (TypeError, ValueError) as error:
            why = f"headers={headers!r:.100}: give (str, bytes or None) pairs"
            raise InvalidError(ErrorCode.INVALID_REQUEST, why) from error
        if is_sealed:
            raise InvalidError(
                ErrorCode.INVALID_RECORD,
                f"a record for topic {topic!r:.100} is encrypted already, by its header {HEADER}: send it without "
                "encryption, or read it with",
            )
        sealing = self._sealings.get(topic)
        if sealing is None or not sealing.is_young(self._now_ms()):
            sealing = self.prepare(topic)
        sealing.records_left -= 1
        sealing.bytes_left -= len(plain)
        nonce = random_bytes(NONCE_BYTES)
        sealed: bytes = sealing.cipher.encrypt(nonce, self._formed(plain), _covered(sealing.header, key_bytes))
        return nonce + sealed, (*headers, (HEADER, sealing.header))

    def decrypt(
        self, value: bytes | None, *, key: bytes | None = None, headers: Headers = ()
    ) -> tuple[bytes | None, Headers]:
        """The value and the headers of a record as its sender had them. It may ask KMS to unwrap a data key.

        For records that come by another way than this SDK's consumers: a webhook, a queue, Spark, a Kafka client. A
        record without the header is returned as it is, or is corrupt with `requires`. Raises AccessDeniedError without
        the right to use the key, CorruptError if value, key or header were changed, and UnavailableError.
        """
        try:
            return self.decrypt_now(value, key, headers)
        except LookUpFirst as missing:
            missing.look_up()
            return self.decrypt_now(value, key, headers)

    def decrypt_now(self, value: bytes | None, key: bytes | None, headers: Headers) -> tuple[bytes | None, Headers]:
        """As `decrypt`, but it asks nobody: raises LookUpFirst instead."""
        found = [told for name, told in headers if name == HEADER]
        if not found and value is not None and self._requires:
            raise CorruptError(ErrorCode.CORRUPT_BATCH, "the value is not encrypted, and the option requires= is set")
        if not found or value is None:
            return value, headers
        header = found[0] or b""
        cipher = self._ciphers.get(header)
        if cipher is None:
            _check_size(header)
            refusal = self._refusal_of(header)
            if refusal is None or isinstance(refusal, UnavailableError):  # `learn` raises it, or asks again
                raise LookUpFirst(partial(self.learn, bytes(header)))
            raise refusal
        from cryptography.exceptions import InvalidTag

        try:
            formed = cipher.decrypt(value[:NONCE_BYTES], value[NONCE_BYTES:], _covered(header, key))
        except (InvalidTag, ValueError) as error:
            raise CorruptError(
                ErrorCode.CORRUPT_BATCH, "the value does not decrypt: it, the record's key or its header was changed"
            ) from error
        return _value_of(formed), tuple(pair for pair in headers if pair[0] != HEADER)

    def has_data_key(self, topic: str) -> bool:
        """True if the next record of the topic needs no call to KMS."""
        sealing = self._sealings.get(topic)
        return sealing is not None and sealing.is_young(self._now_ms())

    def prepare(self, topic: str) -> _Sealing:
        """The data key for the topic's next record. It asks for the next one, unless there is a young one.

        While another caller asks, and if the keys fail, an old one serves. Raises as `encrypt`.
        """
        with self._changing:
            if topic not in self._asking:
                _bound_to(self._asking, _KNOWN_MAX)
            asking = self._asking.setdefault(topic, threading.Lock())
        spare = self._sealings.get(topic)
        if spare is None or not spare.is_usable(self._now_ms()):
            with asking:
                return self._next(topic)
        if not asking.acquire(blocking=False):
            return spare
        try:
            return self._next(topic)
        finally:
            asking.release()

    def _next(self, topic: str) -> _Sealing:
        """Under the topic's lock: as `prepare`."""
        now_ms, old = self._now_ms(), self._sealings.get(topic)
        if old is not None and old.is_young(now_ms):
            return old
        try:
            outage = self._outages.get(topic)
            if outage is not None and now_ms < outage[1]:
                raise copy.copy(outage[0])
            made = self._new(topic)
        except PenstockError as error:
            now_ms = self._now_ms()
            if old is not None and old.is_usable(now_ms):
                old.renew_ms = now_ms + max(_UNAVAILABLE_MS, int(self._max_age_ms * _RENEW_AGAIN))
                _log.warning("the data key of topic %r is not renewed yet, and serves on: %s", topic, error)
                return old
            if isinstance(error, UnavailableError) and (outage is None or now_ms >= outage[1]):
                with self._changing:
                    _bound_to(self._outages, _KNOWN_MAX)
                    self._outages[topic] = copy.copy(error), now_ms + _UNAVAILABLE_MS
            raise
        with self._changing:
            _bound_to(self._sealings, _KNOWN_MAX)
            self._sealings[topic] = made
            self._outages.pop(topic, None)
        return made

    def _new(self, topic: str) -> _Sealing:
        context = {TOPIC: topic, **self._context}
        made = self._keys.new_data_key(context)
        header = _header_of(made.key_id, made.wrapped, context)
        check(
            len(header) <= _HEADER_BYTES_MAX,
            f"header {HEADER} takes {len(header)} bytes, and {_HEADER_BYTES_MAX} are the most: give less context",
        )
        cipher = aes_gcm(made.plaintext)
        self._remember(header, cipher)  # this process may read what it writes
        now_ms = self._now_ms()
        return _Sealing(
            header,
            cipher,
            until_ms=now_ms + self._max_age_ms,
            renew_ms=now_ms + int(self._max_age_ms * _RENEW_AFTER),
            records=self._max_records,
            size=self._max_bytes,
        )

    def learn(self, header: bytes) -> None:
        """Unwrap the data key of a header. A refusal is remembered, and raised for each value that needs the key.

        Raises UnavailableError if KMS could not be asked, and for a second after that without asking.
        """
        refusal = self._refusal_of(header)
        if isinstance(refusal, UnavailableError):
            raise refusal
        try:
            key_id, wrapped, context = _parse_header(header)
            if not self._context.items() <= context.items():
                told = f"the value has the context {context!r:.200}"
                why = f"{told}, and this reader takes those with {self._context!r:.200}"
                raise CorruptError(ErrorCode.CORRUPT_BATCH, why)
            cipher = _cipher_of(self._keys.unwrap(key_id, wrapped, context), key_id)
        except (AccessDeniedError, CorruptError) as error:
            self._refuse(header, error, _REFUSED_MS)
            return
        except UnavailableError as error:
            self._refuse(header, error, _UNAVAILABLE_MS)
            raise
        self._remember(header, cipher)

    def _refusal_of(self, header: bytes) -> PenstockError | None:
        """A copy to raise: an error that was raised keeps its stack alive."""
        refusal = self._refusals.get(_digest(header))
        return None if refusal is None or self._now_ms() >= refusal[1] else copy.copy(refusal[0])

    def _refuse(self, header: bytes, error: PenstockError, lasts_ms: int) -> None:
        with self._changing:
            _bound_to(self._refusals, _KNOWN_MAX)
            self._refusals[_digest(header)] = copy.copy(error), self._now_ms() + lasts_ms

    def _remember(self, header: bytes, cipher: Any) -> None:
        with self._changing:
            _bound_to(self._ciphers, _KNOWN_MAX)
            self._ciphers[header] = cipher
            self._refusals.pop(_digest(header), None)

    def _formed(self, value: bytes) -> bytes:
        if self._compresses and _SMALL < len(value) <= BATCH_DECODED_BYTES_MAX:  # what a reader takes
            small = compress(value, Compression.ZSTD)
            if len(small) + _LENGTH.size < len(value):
                return _ZSTD + _LENGTH.pack(len(value)) + small
        return _PLAIN + value


def check_encryption(given: object) -> None:
    """Raises InvalidError for an option of a client that is no Encryption."""
    is_one = given is None or isinstance(given, Encryption)
    check(
        is_one,
        f"encryption is of type {type(given).__name__}: give an Encryption(KmsKeys(ARN)), of penstock.encryption",
    )


def _value_of(formed: bytes) -> bytes:
    if formed[:1] == _PLAIN:
        return formed[1:]
    try:
        if formed[:1] != _ZSTD:
            raise ValueError(f"its form {formed[:1]!r} is one of a newer release")
        [length] = _LENGTH.unpack_from(formed, 1)
        if length > BATCH_DECODED_BYTES_MAX:
            raise ValueError(f"it has {length} bytes, and {BATCH_DECODED_BYTES_MAX} are the most")
        value = bytearray(length)
        decompress_into(memoryview(formed)[1 + _LENGTH.size :], Compression.ZSTD, memoryview(value))
        return bytes(value)
    except (ValueError, struct.error, PenstockError) as error:
        raise CorruptError(ErrorCode.CORRUPT_BATCH, f"a decrypted value cannot be read: {error}") from error


def _header_of(key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytes:
    document = {"v": _VERSION, "key": key_id, "data_key": base64.b64encode(wrapped).decode(), "context": context}
    return json.dumps(document, separators=(",", ":")).encode()


def _check_size(header: bytes) -> None:
    if len(header) > _HEADER_BYTES_MAX:
        raise CorruptError(
            ErrorCode.CORRUPT_BATCH, f"header {HEADER} has {len(header)} bytes, and {_HEADER_BYTES_MAX} are the most"
        )


def _digest(header: bytes) -> bytes:
    """What stands for a header that a stranger may have written, and so may be large."""
    return hashlib.sha256(header).digest()


def _cipher_of(plaintext: bytes, key_id: str) -> Any:
    if len(plaintext) != KEY_BYTES:
        why = f"the data key of the value, wrapped by {key_id!r:.200}, has {len(plaintext)} bytes and not {KEY_BYTES}"
        raise CorruptError(ErrorCode.CORRUPT_BATCH, why)
    return aes_gcm(plaintext)


def _parse_header(header: bytes) -> tuple[str, bytes, dict[str, str]]:
    """Raises CorruptError for whatever a stranger may have written there."""
    try:
        _check_size(header)
        document = json.loads(header)
        if document["v"] != _VERSION:
            raise ValueError(f"its version is {document['v']!r:.20}, and this release reads {_VERSION}")
        context = {str(name): str(each) for name, each in document["context"].items()}
        key_id = str(document["key"])
        json.dumps([key_id, context], ensure_ascii=False).encode()  # JSON may name half a character, and UTF-8 not
        return key_id, base64.b64decode(document["data_key"], validate=True), context
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"header {HEADER}={header!r:.100} cannot be read: {error!r:.100}"
        raise CorruptError(ErrorCode.CORRUPT_BATCH, why) from error


def _covered(header: bytes, key: bytes | None) -> bytes:
    """The bytes that the tag covers besides the value. The length keeps header and key apart."""
    return _LENGTH.pack(len(header)) + header + (b"\x00" if key is None else b"\x01" + key)


def _bytes(name: str, given: object) -> bytes:
    if isinstance(given, str):
        return given.encode()
    is_bytes = isinstance(given, bytes | bytearray | memoryview)
    check(is_bytes, f"{name} is of type {type(given).__name__}: give bytes, str or None")
    return bytes(given)  # type: ignore[call-overload,no-any-return]  # it is bytes


def _bound_to(memory: dict[Any, Any], most: int) -> None:
    """Forget the oldest, if the memory is full."""
    while len(memory) >= most:
        del memory[next(iter(memory))]
