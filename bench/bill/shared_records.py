"""Bills a share group: records that a busy worker acquires and accepts, and a worker that gets nothing."""

import json
from collections.abc import Mapping
from typing import Any

from bench.bill.deployment import Bill, BilledDeployment, BilledProfile, BillError
from bench.bill.requests import HOUR_MS, TOPIC, BilledOperation, bill_operations, subscribe_all, with_topic
from penstock import Admin, Producer, prices
from penstock.share.waiting import ShareWaiting
from penstock_core.ids import LockNonce
from penstock_core.records import frame
from penstock_service.share.acquire.fresh_window import strays

BATCHES = (1, 100)  # records of one acquire
_GROUP = "workers"
_ROUNDS = 16
_CHANCE = 0.5
_LOOKS_TO_SETTLE = 4  # a worker that gets nothing has armed its partitions by then
IDLE_PARTITIONS = 6


def bill_all_operations(profile: BilledProfile) -> list[BilledOperation]:
    """All single operations that are billed: appends and fetches, and then the calls of a share group."""
    return [*bill_operations(profile), *bill_shared_records(profile)]


def bill_shared_records(profile: BilledProfile) -> list[BilledOperation]:
    """An acquire that accepts the records of the one before, with 1 and with 100 records of 1 KB."""
    operations = []
    for size in BATCHES:
        with with_topic(profile) as deployment:
            _fill(deployment, size)
            first, *others = _nonces()
            held = _acquire(deployment, size, [], first)
            deployment.take()
            for nonce in others:
                held = _acquire(deployment, size, held, nonce)
            bill = deployment.take()
        name = f"acquire and accept {size} of 1 KB"
        operations.append(BilledOperation(name=name, profile=profile.name, bill=bill, count=_ROUNDS))
    return operations


def bill_waiting_worker(profile: BilledProfile) -> Bill:
    """An hour of a share consumer of six partitions that waits for wake-ups and gets none.

    Its connection and its subscriptions are there already.
    """
    with with_topic(profile, IDLE_PARTITIONS) as deployment:
        _make_group(deployment)
        waiting = ShareWaiting(0, is_woken=True)
        for _ in range(_LOOKS_TO_SETTLE):
            _look(deployment, waiting)
        deployment.take()
        until_ms = deployment.clock.passed_ms + HOUR_MS
        while deployment.clock.passed_ms < until_ms:
            _look(deployment, waiting)
        bill = deployment.take()
    bill.lines["wake-ups"] += prices.APPSYNC_MINUTES.of(HOUR_MS / 60_000)
    return bill


def _make_group(deployment: BilledDeployment) -> None:
    with Admin(transport=deployment) as admin:
        admin.create_share_group(_GROUP, [TOPIC])


def _fill(deployment: BilledDeployment, size: int) -> None:
    """Records of 1 KB, so many in each batch as an acquire asks for."""
    _make_group(deployment)
    with Producer(transport=deployment, linger_ms=60_000, compression_type="none") as producer:
        for _ in range(_ROUNDS + 1):
            for _ in range(size):
                producer.send(TOPIC, b"x" * 1_000)
            producer.flush()


def _nonces() -> list[str]:
    """One for each acquire. One in sixteen strays, as it does among many."""
    names = [LockNonce(f"bill-{number:04}") for number in range(1_000)]
    straying = [name for name in names if strays(name)]
    return [*[name for name in names if not strays(name)][:_ROUNDS], straying[0]]


def _acquire(
    deployment: BilledDeployment, count: int, held: list[Mapping[str, Any]], nonce: str
) -> list[Mapping[str, Any]]:
    """One call: it accepts the locks of the one before, and answers with its own."""
    accepted = [
        {**{name: lock[name] for name in ("topic", "partition", "lock_id")}, "type": "accept", "offsets": None}
        for lock in held
    ]
    header = _call(deployment, {"nonce": nonce, "max_records": count, "acknowledge": accepted})
    locks: list[Mapping[str, Any]] = header["partitions"]
    found = sum(end - start for lock in locks for start, end in lock["ranges"])
    if found != count:
        raise BillError(f"{found} of {count} records were acquired")
    return locks


def _look(deployment: BilledDeployment, waiting: ShareWaiting) -> None:
    """One acquire that finds nothing, when the consumer would send it."""
    subscribe_all(waiting.watch)
    deployment.clock.sleep_ms(max(1, waiting.due_ms() - deployment.clock.passed_ms))
    now_ms = int(deployment.clock.passed_ms)
    header = _call(deployment, {"max_records": 10, **waiting.ask(now_ms)})
    if header["partitions"]:
        raise BillError("an idle worker got records")
    waiting.answered(header, has_records=False, now_ms=now_ms, chance=_CHANCE)


def _call(deployment: BilledDeployment, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    body = json.dumps(fields).encode()
    response = deployment.call("POST", f"/v1/share-groups/{_GROUP}/acquire", {}, {}, body)
    if response.status != 200:
        raise BillError(f"the acquire failed: {response.body!r}")
    header, _ = frame.decode(response.body)
    return header
