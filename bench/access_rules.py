"""Measures what access rules and quotas add to a warm produce: CPU, and calls to storage. It needs no stack.

Requests with and without checks go to one instance in turns, in one process, with the stores in memory. The stage
denies by default and has the most rules, of which one allows the request. The principal and the topic have quotas of
bytes and requests, which the requests are far below. The other sides run the same handler with checks taken out.
"""

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import click

from bench.report.recording import Report, reported
from penstock_core.acls.access import UNRESTRICTED
from penstock_core.acls.principal import iam_principal
from penstock_core.acls.rule import parse_rule
from penstock_core.acls.settings import AclSettings
from penstock_core.limits import ACL_AGE_MS_MAX, ACL_RULES_MAX
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_handlers import produce
from penstock_handlers.edge import entry
from penstock_handlers.router import dispatch
from penstock_service.acls.change_acls import change_acls
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.records.produce_within_quotas import produce_or_schedule
from penstock_service.topics.create_topic import create_topic

PRINCIPAL = "arn:aws:sts::111122223333:assumed-role/shop/i-0abc"
NOW_MS = 1_790_000_000_000
ADDED_MS_MAX = 0.2
WARM_UP = 20
WITH_BOTH, WITHOUT = "with rules and quotas", "without"
QUOTA = {"produce_bytes_per_s": 1_000_000_000, "produce_requests_per_s": 100_000}


@click.command(help=__doc__)
@reported("access_rules")
@click.option("--rounds", default=400, show_default=True, type=click.IntRange(10), help="Of each side.")
@click.option("--partitions", default=10, show_default=True, type=click.IntRange(1, 100), help="In one request.")
def main(report: Report, rounds: int, partitions: int) -> None:
    calls: Counter[str] = Counter()
    instance = _counted(_stage(partitions), calls)
    body = _request(partitions)

    def send() -> None:
        status, _, answer = dispatch("POST", "/v1/produce", {}, {}, body, instance, PRINCIPAL)
        assert status == 200, answer
        assert b"error" not in answer, answer

    costs: dict[str, list[float]] = {side: [] for side in SIDES}
    counted: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
    drawn = random.Random(1)
    started_s = time.monotonic()
    for number in range(-WARM_UP, rounds):
        # Each sixteenth append rolls heads and costs more: by chance, both sides get as many of them.
        for side in drawn.sample([*costs], len(costs)):
            calls.clear()
            with SIDES[side]():
                begin = time.process_time()
                send()
                cost_ms = (time.process_time() - begin) * 1_000
            if number >= 0:
                costs[side].append(cost_ms)
                counted[side] += calls
    medians = {side: statistics.median(each) for side, each in costs.items()}
    report.show(
        "warm produce",
        [
            {
                "side": side,
                "cpu_ms": round(medians[side], 3),
                "storage_calls": round(sum(counted[side].values()) / rounds, 2),
                "reads_of_rules": _calls_to("acls", counted[side]),
                "calls_for_quotas": round(_calls_to("quotas", counted[side]) / rounds, 3),
            }
            for side in costs
        ],
    )
    added = {side: medians[side] - medians[WITHOUT] for side in SIDES if side != WITHOUT}
    report.show(
        "added by the checks",
        [{"side": side, "cpu_ms": round(ms, 3), "bound_ms": ADDED_MS_MAX} for side, ms in added.items()],
    )
    begin = time.process_time()
    instance.acl_cache.forget()
    instance.acl_cache.access_of(iam_principal(PRINCIPAL))
    report.show("a look that finds other rules", [{"rules": ACL_RULES_MAX, "cpu_ms": _since(begin)}])
    looks = sum(_calls_to("acls", each) for each in counted.values())  # a request in ten seconds is not warm
    is_warm = looks <= (time.monotonic() - started_s) * 1_000 // ACL_AGE_MS_MAX
    report.judge(holds=max(added.values()) <= ADDED_MS_MAX and is_warm)


def _calls_to(store: str, calls: Counter[str]) -> int:
    return sum(count for name, count in calls.items() if name.startswith(f"{store}."))


@contextmanager
def _without_quotas() -> Iterator[None]:
    with patch.object(
        produce,
        "produce_within_quotas",
        lambda instance, _, entries, acks: produce_or_schedule(instance, entries, acks),
    ):
        yield


@contextmanager
def _checks_taken_out() -> Iterator[None]:
    with (
        _without_quotas(),
        patch.object(entry, "check_path", lambda *_: None),
        patch.object(entry, "access_of", lambda *_: UNRESTRICTED),
        patch.object(produce, "access_of", lambda *_: UNRESTRICTED),
    ):
        yield


SIDES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    WITH_BOTH: nullcontext,
    "with rules": _without_quotas,
    WITHOUT: _checks_taken_out,
}


def _since(begin: float) -> float:
    return round((time.process_time() - begin) * 1_000, 1)


def _stage(partitions: int) -> Instance:
    instance = memory_instance(acl_settings=AclSettings(allows_by_default=False))
    create_topic(instance, "orders", partitions, {})
    role = "arn:aws:iam::111122223333:role"
    rules = [parse_rule(f"{role}/shop", "write", "topic:orders")]
    rules += [parse_rule(f"{role}/app-{n}", "read", f"topic:t-{n}*") for n in range(ACL_RULES_MAX - len(rules))]
    change_acls(instance, rules, ())
    put_quota(instance, "principal", f"{role}/shop", QUOTA)
    put_quota(instance, "topic", "orders", QUOTA)
    return instance


class _Counted:
    """A store whose calls are counted."""

    def __init__(self, name: str, store: Any, calls: Counter[str]) -> None:
        self._name, self._store, self._calls = name, store, calls

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._store, method)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._calls[f"{self._name}.{method}"] += 1
            return found(*args, **kwargs)

        return call


def _counted(instance: Instance, calls: Counter[str]) -> Instance:
    ports = {
        each.name: _Counted(each.name, getattr(instance.stores, each.name), calls)
        for each in fields(instance.stores)
        if each.name not in ("zones", "fallback_zones", "inline_bytes_max")
    }
    zones = [_Counted("zone", zone, calls) for zone in instance.stores.zones]
    stores = replace(instance.stores, **ports, zones=zones)  # type: ignore[arg-type]
    return Instance.new(stores, instance.runtime, acl_settings=instance.acl_cache.settings)


def _request(partitions: int) -> bytes:
    data = encode([NewRecord(NOW_MS, None, b"v" * 100, [])])
    named = [{"topic": "orders", "partition": number, "length": len(data)} for number in range(partitions)]
    return frame.encode({"batches": named}, [data] * partitions)


if __name__ == "__main__":
    main()
