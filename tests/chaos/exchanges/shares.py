"""Requests of share consumers: acquires, with the acknowledgements that ride on them, and acknowledgements alone."""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.http.http_message import Response
from penstock_core.records import frame
from penstock_core.records.codec import decode
from penstock_core.share.record_set import Ranges
from penstock_service.share.share_partitions import parse_marked_lock_id
from tests.chaos.clients.values import name_of
from tests.chaos.exchanges.exchange import Outcome, Planned
from tests.history.format import Acknowledge, AckResult, Acquired, Function, MicroOp, Nonce, Verb

DEFAULT_LOCK_MS = 3_000  # of all groups of a run: a renewal that names no time lasts so long


class ShareExchange:
    """POST /v1/share-groups/{group}/acquire or …/acknowledge."""

    def __init__(self, path: str, body: bytes) -> None:
        self._is_acquire = path.endswith("/acquire")
        document = json.loads(body)
        entries = document.get("acknowledge", [])
        self._asked = acknowledges(entries)
        self._lock_ids = [str(each["lock_id"]) for each in entries]
        function = Function.ACQUIRE if self._is_acquire else Function.ACKNOWLEDGE
        nonce = [Nonce(document["nonce"])] if self._is_acquire and document.get("nonce") else []
        self.planned = [Planned(function=function, ops=[*nonce, *self._asked], group=path.split("/")[3])]

    def outcomes(self, response: Response) -> Sequence[Outcome]:
        if not self._is_acquire:
            return [self._told(json.loads(response.body)["acknowledged"])]
        header, data = frame.decode(response.body)
        document: Any = header
        locks: list[MicroOp] = []
        start = 0
        for entry in document["partitions"]:
            end = start + entry.get("length", 0)
            if "error" not in entry:
                locks.append(_acquired(entry, data[start:end]))
            start = end
        return [[*self._told(document["acknowledged"]), *locks]]

    def _told(self, acknowledged: Sequence[Mapping[str, Any]]) -> list[MicroOp]:
        """The acknowledgements with their results. One of a lock's may have several, each for some of its offsets.

        The answer tells the results in the order of the request. Each acknowledgement has those that together are for
        its offsets: another one of the same lock may have other results for the same offsets.
        """
        left = deque(acknowledged)
        told: list[MicroOp] = []
        for asked, lock_id in zip(self._asked, self._lock_ids, strict=True):
            wanted = _offsets(_handed_out(lock_id) if asked.ranges is None else asked.ranges)
            seen: set[int] = set()
            while left and _is_of(asked, left[0]) and not (seen and seen == wanted):
                ranges = asked.ranges if left[0]["offsets"] is None else _as_ranges(left[0]["offsets"])
                if seen & _offsets(ranges or ()) or (wanted and not _offsets(ranges or ()) <= wanted):
                    break
                seen |= _offsets(ranges or ()) or wanted
                result = AckResult(left.popleft()["result"])
                told.append(Acknowledge(asked.where, asked.lock_id, asked.verb, ranges, result, asked.detail))
                if ranges is None:
                    break
        if left:
            raise AssertionError(f"the answer tells results that nobody asked for: {[*left]}")
        return told


def acknowledges(entries: Iterable[Mapping[str, Any]], verb: str | None = None) -> list[Acknowledge]:
    """The acknowledgements that a request asks for. In a transaction all have the same `verb`."""
    return [
        Acknowledge(
            (each["topic"], each["partition"]),
            _name_of(each["lock_id"]),
            _verb(verb or each["type"], each),
            None if each.get("offsets") is None else tuple((start, end) for start, end in each["offsets"]),
            None,
            _detail(verb or each["type"], each),
        )
        for each in entries
    ]


def _name_of(lock_id: str) -> str:
    """The lock's name. Behind it, a lock id tells the lock as it was, which changes with each part of it."""
    return lock_id.partition("~")[0]


def _verb(name: str, entry: Mapping[str, Any]) -> Verb:
    return Verb.GIVE_BACK if name == Verb.RELEASE and entry.get("uncounted") else Verb(name)


def _detail(name: str, entry: Mapping[str, Any]) -> str | int | None:
    if name == Verb.RENEW:
        return int(entry.get("lock_ms") or DEFAULT_LOCK_MS)
    return entry.get("reason") or None


def _is_of(asked: Acknowledge, told: Mapping[str, Any]) -> bool:
    return (told["topic"], told["partition"]) == asked.where and _name_of(told["lock_id"]) == asked.lock_id


def _handed_out(lock_id: str) -> Ranges:
    """The offsets that the lock had when it was handed out, () if the lock id does not tell them."""
    lock = parse_marked_lock_id(lock_id)[2]
    return () if lock is None else lock.held.ranges


def _offsets(ranges: Iterable[Sequence[int]]) -> set[int]:
    return {offset for start, end in ranges for offset in range(start, end)}


def _as_ranges(told: Iterable[Sequence[int]]) -> Ranges:
    return tuple((start, end) for start, end in told)


def _acquired(entry: Mapping[str, Any], data: memoryview) -> Acquired:
    """One lock of an answer. Its batches hold other consumers' records, too."""
    records = tuple(
        (record.offset, name_of(record.value))
        for record in decode(data)
        if any(start <= record.offset < end for start, end in entry["ranges"])
    )
    where = entry["topic"], entry["partition"]
    return Acquired(where, _name_of(entry["lock_id"]), entry["delivery_count"], entry["until_ms_left"], records)
