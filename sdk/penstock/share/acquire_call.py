"""The acquire and acknowledge calls: one try each, which never raises an error. share_core.py decides about a retry.

An acquire's answer is a frame. Its header tells the locks, and its body holds the batches as they are stored, so also
records that other consumers hold: only the offsets in a lock's `ranges` count. Compaction leaves gaps inside batches:
the consumer accepts these offsets, because only a reader that decodes sees that they are gone.
"""

import json
import logging
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import UnavailableError, as_sdk_error
from penstock.http.http_message import (
    BATCHES_TYPE,
    JSON_TYPE,
    HttpRequest,
    Response,
    framed_answer,
    json_document,
)
from penstock.model.share import ShareRecord
from penstock.schemas.serialization import Reading
from penstock.share.acknowledgements import Acknowledgement, LockKey
from penstock.share.held_locks import AcquiredLock, Moment
from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_core.limits import READ_DECODED_BYTES_MAX
from penstock_core.records.codec import Record
from penstock_core.records.record_batch import walk
from penstock_core.records.record_check import DecodeBudget
from penstock_core.records.undecodable import is_undecodable

_log = logging.getLogger("penstock.share")


@dataclass(slots=True, kw_only=True)
class ShareCall:
    """A request to send. `sent` is the time of its first try: a lock may have begun then."""

    path: str
    body: Mapping[str, Any]
    entries: Sequence[Acknowledgement]
    is_acquire: bool
    sent: Moment
    sent_last: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAnswer:
    """The answer's document, and the locks of an acquire. `error` says why some of their records were not read."""

    document: Mapping[str, Any]
    locks: Sequence[AcquiredLock] = ()
    error: PenstockError | None = None


def send(call: ShareCall) -> Generator[HttpRequest, Response, ShareAnswer | PenstockError]:
    """The answer, or the failure of the request."""
    try:
        request = _request(call)
        response = yield request
        if not call.is_acquire:
            return ShareAnswer(document=json_document(request, response))
        return _acquired(call, request, response)
    except PenstockError as error:
        if error.code.is_retriable:
            _log.warning("%s will be tried again: %s", call.path, error)
        return error
    except Exception as error:  # the driver's edge: a defect must not leave the consumer waiting for ever
        _log.exception("%s failed in an unexpected way", call.path)
        return UnavailableError(ErrorCode.INTERNAL, f"{call.path} failed: {error!r}", maybe_applied=True)


def read_values(answer: ShareAnswer, reading: Reading) -> ShareAnswer:
    """The answer with the values that its producers sent, while memory lasts: a small value may hide a large one.

    It may ask for data keys and schemas, so call it without the lock.
    """
    locks: list[AcquiredLock] = []
    error: PenstockError | None = None
    bytes_left = READ_DECODED_BYTES_MAX
    for lock in answer.locks:
        records: list[ShareRecord] = []
        unreadable, locked_up, why = [*lock.unreadable], [*lock.locked_up], lock.why_unreadable
        left_out = [*lock.left_out]
        for record in lock.records:
            if bytes_left <= 0:
                left_out.append(record.offset)
                continue
            try:
                stored, headers = record.value, record.headers
                if reading.encryption is not None:
                    stored, left = reading.encryption.decrypt(stored, key=record.key, headers=headers)
                    headers = tuple(left)
                value, key = reading.deserializers.deserialize_waiting(record.topic, stored, record.key, headers)
                records.append(record._replace(key=key, value=value, headers=headers))
                bytes_left -= len(stored or b"")
            except Exception as caught:  # an edge: the keys may be an object of the application's
                failure = caught if isinstance(caught, PenstockError) else _unexpected(caught)
                told = f"offset {record.offset} of {record.topic}[{record.partition}]: {failure.message}"
                if failure.code.category is Category.CORRUPT:
                    unreadable.append(record.offset)
                    why = told
                else:
                    locked_up.append(record.offset)
                    facts = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
                    error = error or as_sdk_error(PenstockError(failure.code, told, **{**failure.facts, **facts}))
        locks.append(
            replace(
                lock,
                records=records,
                unreadable=unreadable,
                why_unreadable=why,
                locked_up=locked_up,
                left_out=left_out,
            )
        )
    return replace(answer, locks=locks, error=error)


def _unexpected(caught: Exception) -> PenstockError:
    _log.error("a value was not read", exc_info=caught)
    return UnavailableError(ErrorCode.INTERNAL, f"its data key or schema could not be asked for: {caught!r:.200}")


def _request(call: ShareCall) -> HttpRequest:
    return HttpRequest(
        method="POST",
        path=call.path,
        headers={"Content-Type": JSON_TYPE, "Accept": BATCHES_TYPE if call.is_acquire else JSON_TYPE},
        body=json.dumps(call.body, separators=(",", ":")).encode(),
        is_repeatable=True,
    )


def _acquired(call: ShareCall, request: HttpRequest, response: Response) -> ShareAnswer:
    header, batches = framed_answer(request, response)
    locks: list[AcquiredLock] = []
    at, budget = 0, DecodeBudget(READ_DECODED_BYTES_MAX)
    for each in header["partitions"]:
        length = int(each.get("length", 0))
        if "error" in each:
            _log.warning("%s[%s] gave no records: %s", each.get("topic"), each.get("partition"), each["error"])
        else:
            locks.append(_lock(call, header, each, (batches[at : at + length], budget)))
        at += length
    return ShareAnswer(document=header, locks=locks)


def _lock(
    call: ShareCall, header: Mapping[str, Any], entry: Mapping[str, Any], read: tuple[memoryview, DecodeBudget]
) -> AcquiredLock:
    """One lock with its records, while the budget lasts. Its time counts from before the request was sent."""
    batches, budget = read
    key = LockKey(entry["topic"], entry["partition"], entry["lock_id"])
    left_ms = entry.get("until_ms_left")
    sent, lasts_ms = (call.sent, header["lock_ms"]) if left_ms is None else (call.sent_last, left_ms)
    ranges = [range(start, end) for start, end in entry["ranges"]]
    records: list[ShareRecord] = []
    unreadable: list[int] = []
    missing: list[int] = []
    left_out: list[int] = []
    why = ""
    for position, batch in walk(batches):
        wanted = [
            range(max(each.start, batch.base_offset), min(each.stop, batch.next_offset))
            for each in ranges
            if each.start < batch.next_offset and batch.base_offset < each.stop
        ]
        if not wanted:
            continue
        offsets = [offset for each in wanted for offset in each]
        if budget.is_spent:
            left_out += offsets
            continue
        try:
            found = _records(budget.decode(batches[position : position + batch.length], batch), wanted, entry)
        except PenstockError as error:
            if not is_undecodable(error):
                raise UnavailableError(ErrorCode.INTERNAL, f"the records came changed: {error.message}") from error
            why = str(error)
            unreadable += offsets
        else:
            records += found
            missing += sorted(set(offsets) - {record.offset for record in found})
    return AcquiredLock(
        key=key,
        records=records,
        missing=missing,
        unreadable=unreadable,
        why_unreadable=why,
        left_out=left_out,
        sent=sent,
        lasts_ms=int(lasts_ms),
    )


def _records(records: Iterable[Record], wanted: Sequence[range], entry: Mapping[str, Any]) -> list[ShareRecord]:
    topic, partition = entry["topic"], entry["partition"]
    count, lock_id = entry["delivery_count"], entry["lock_id"]
    return [
        ShareRecord(
            topic,
            partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple(record.headers),
            count,
            lock_id,
        )
        for record in records
        if any(record.offset in each for each in wanted)
    ]
