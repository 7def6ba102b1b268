"""The injector carries a plan out: it decides for the proxy on each call, and counts the faults."""

import threading
import time
from collections import Counter
from collections.abc import Mapping

from tests.chaos.plan import Plan, PlannedStrike, Strike, ZoneFault, ZoneOutage
from tests.end_to_end.fault_proxy import (
    Call,
    Corrupt,
    Delay,
    Fault,
    Hang,
    Kill,
    Reset,
    dynamodb_error,
    s3_error,
)

_SLOW_S = 0.4


class Injector:
    """Decides on every call. It injects nothing before `start` and after `stop`. Several threads may use it."""

    def __init__(self, plan: Plan, zone_of_bucket: Mapping[str, str]) -> None:
        self._plan = plan
        self._zone_of_bucket = zone_of_bucket
        self._lock = threading.Lock()
        self._started_at: float | None = None
        self._waiting = list(reversed(plan.strikes))
        self._armed: list[tuple[PlannedStrike, int]] = []
        self._over = {outage: threading.Event() for outage in plan.outages}
        self._missing_zone: str | None = None
        self.injected: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def start(self) -> None:
        """Start the plan's time, and a thread that ends outages on time."""
        self._started_at = time.monotonic()

    def stop(self) -> None:
        """Inject no more faults, and release the calls that hang."""
        with self._lock:
            self._started_at = None
            for event in self._over.values():
                event.set()

    def elapsed_s(self) -> float:
        return 0.0 if self._started_at is None else time.monotonic() - self._started_at

    def end_outages_until(self, elapsed_s: float) -> None:
        """Release the calls that hang in outages that are over. Call it from time to time."""
        for outage, event in self._over.items():
            if outage.end_s <= elapsed_s:
                event.set()

    def lose(self, zone: str | None) -> None:
        """Let this zone's bucket not exist from now on, without any strikes. None brings every zone back."""
        self._missing_zone = zone

    def decide(self, call: Call) -> Fault | None:
        with self._lock:
            self.calls[f"{call.service} {call.operation}"] += 1
            if self._missing_zone is not None and self._zone_of_bucket.get(call.bucket) == self._missing_zone:
                return s3_error(404, "NoSuchBucket")
            if self._started_at is None:
                return None
            elapsed_s = time.monotonic() - self._started_at
            fault = self._strike(call, elapsed_s)
            return fault or self._outage(call, elapsed_s)

    def _outage(self, call: Call, elapsed_s: float) -> Fault | None:
        zone = self._zone_of_bucket.get(call.bucket) if call.service == "s3" else None
        for outage in self._plan.outages:
            if zone == outage.zone and outage.start_s <= elapsed_s < outage.end_s:
                fault = self._fault_of(outage, call)
                self.injected[outage.fault] += fault is not None
                return fault
        return None

    def _fault_of(self, outage: ZoneOutage, call: Call) -> Fault | None:
        match outage.fault:
            case ZoneFault.MISSING:
                return s3_error(404, "NoSuchBucket")
            case ZoneFault.REFUSING:
                return s3_error(503, "SlowDown")
            case ZoneFault.HANGING:
                return Hang(is_over=self._over[outage])
            case ZoneFault.SLOW:
                return Delay(seconds=_SLOW_S)
            case ZoneFault.CORRUPTING:
                return Corrupt() if call.operation == "GetObject" else None

    def _strike(self, call: Call, elapsed_s: float) -> Fault | None:
        while self._waiting and self._waiting[-1].at_s <= elapsed_s:
            planned = self._waiting.pop()
            self._armed.append((planned, planned.count))
        for index, (planned, left) in enumerate(self._armed):
            if _hits(planned, call):
                self._armed[index : index + 1] = [(planned, left - 1)] if left > 1 else []
                self.injected[planned.strike] += 1
                return _fault_of(planned.strike)
        return None


def _hits(planned: PlannedStrike, call: Call) -> bool:
    is_clients = planned.strike in (Strike.CLIENT_RESET, Strike.CLIENT_LOST_REPLY)
    if is_clients != (call.service == "api"):
        return False
    return call.operation.startswith(planned.operation) if is_clients else call.operation == planned.operation


def _fault_of(strike: Strike) -> Fault:
    match strike:
        case Strike.THROTTLED:
            return dynamodb_error(400, "ThrottlingException")
        case Strike.FAILED:
            return dynamodb_error(500, "InternalServerError")
        case Strike.FAILED_APPLIED:
            return dynamodb_error(500, "InternalServerError", is_applied=True)
        case Strike.CONFLICT:
            return dynamodb_error(400, "TransactionConflictException")
        case Strike.CANCELLED:
            reasons = [{"Code": "TransactionConflict", "Message": "injected"}, {"Code": "None"}]
            return dynamodb_error(400, "TransactionCanceledException", CancellationReasons=reasons)
        case Strike.KILL_BEFORE:
            return Kill(is_applied=False)
        case Strike.KILL_AFTER:
            return Kill(is_applied=True)
        case Strike.RESET | Strike.CLIENT_RESET:
            return Reset(is_applied=False)
        case Strike.LOST_REPLY | Strike.CLIENT_LOST_REPLY:
            return Reset(is_applied=True)
