"""A transport that writes a ledger: what the calls of a share group locked, acknowledged and cost."""

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from bench.meters.counting import storage_calls_of
from bench.share_groups.facts import LETS_GO, SENT, UNCLEAR, Acknowledged, Called, Fact, Ledger, Ranges, Took, lock_of
from penstock.http.client import Client
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock_core.records import frame

_CALLS = ("acquire", "acknowledge")
READS = ("dynamodb.GetItem", "dynamodb.BatchGetItem", "dynamodb.Query")
WRITES = ("dynamodb.UpdateItem", "dynamodb.PutItem", "dynamodb.DeleteItem", "dynamodb.TransactWriteItems")


class LedgerTransport:
    """Passes requests on to `inner`. It writes what an answer says before the worker sees the answer.

    A worker that is killed may have released records by then, so it writes down before that it will.
    """

    def __init__(self, inner: Transport, ledger: Ledger) -> None:
        self._inner = inner
        self._ledger = ledger
        self._taken: dict[str, Ranges] = {}

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        call = path.rpartition("/")[2]
        if call not in _CALLS:
            return self._inner.call(method, path, query, headers, body)
        entries: Sequence[Mapping[str, Any]] = json.loads(body).get("acknowledge") or ()
        sent_ns = time.time_ns()
        sent = [self._acknowledged(entry, entry, SENT, (sent_ns, sent_ns)) for entry in entries]
        self._ledger.write(fact for fact in sent if fact.verb in LETS_GO)
        answer = self._inner.call(method, path, query, headers, body)
        if answer.status == 200:
            header: Mapping[str, Any] = frame.decode(answer.body)[0] if call == "acquire" else json.loads(answer.body)
            times = (sent_ns, time.time_ns())
            took = took_of(self._ledger.worker, header.get("partitions", ()), times)
            self._taken.update((fact.lock, fact.ranges) for fact in took)
            results = results_of(entries, header.get("acknowledged", ()))
            facts: list[Fact] = [*took, *(self._acknowledged(*each, times) for each in results)]
            self._ledger.write([*facts, self._called(call, answer, took, len(entries))])
        return answer

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        return Client(self._inner).event_headers(host, body)

    def close(self) -> None:
        self._inner.close()

    def _acknowledged(
        self, entry: Mapping[str, Any], told: Mapping[str, Any], result: str, times_ns: tuple[int, int]
    ) -> Acknowledged:
        """`told` has the offsets. Without any, it is for all that the lock was made for."""
        lock = lock_of(entry["lock_id"])
        ranges = told["offsets"] or entry["offsets"] or self._taken.get(lock, ())
        return Acknowledged(
            worker=self._ledger.worker,
            lock=lock,
            ranges=tuple((start, end) for start, end in ranges),
            verb=entry["type"],
            result=result,
            sent_ns=times_ns[0],
            answered_ns=times_ns[1],
        )

    def _called(self, call: str, answer: Response, took: Sequence[Took], acknowledgements: int) -> Called:
        calls = storage_calls_of(answer)
        return Called(
            worker=self._ledger.worker,
            call=call,
            records=sum(end - start for fact in took for start, end in fact.ranges),
            acknowledgements=acknowledgements,
            reads=sum(calls[name] for name in READS),
            writes=sum(calls[name] for name in WRITES),
            gets=calls["s3.GetObject"],
        )


def took_of(worker: str, partitions: Sequence[Mapping[str, Any]], times_ns: tuple[int, int]) -> list[Took]:
    """The locks in the header of an acquire's answer."""
    sent_ns, answered_ns = times_ns
    return [
        Took(
            worker=worker,
            lock=lock_of(each["lock_id"]),
            ranges=tuple((start, end) for start, end in each["ranges"]),
            deliveries=each["delivery_count"],
            sent_ns=sent_ns,
            answered_ns=answered_ns,
            ends_ns=sent_ns + each["until_ms_left"] * 1_000_000,
        )
        for each in partitions
        if "error" not in each
    ]


def results_of(
    entries: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any], str]]:
    """Each entry with an answer for some of its offsets, or all, and the result.

    An entry whose offsets have different results has several answers. If a lock has several such entries, it is
    `UNCLEAR` which answer is for which of them.
    """
    by_lock: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    told: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in entries:
        by_lock[entry["lock_id"]].append(entry)
    for answer in answers:
        told[answer["lock_id"]].append(answer)
    found: list[tuple[Mapping[str, Any], Mapping[str, Any], str]] = []
    for lock_id, mine in by_lock.items():
        if len(mine) == 1:
            found += [(mine[0], each, each["result"]) for each in told[lock_id]]
        elif len(mine) == len(told[lock_id]):
            found += [(entry, each, each["result"]) for entry, each in zip(mine, told[lock_id], strict=True)]
        else:
            found += [(entry, entry, UNCLEAR) for entry in mine]
    return found
