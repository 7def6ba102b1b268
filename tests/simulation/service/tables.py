"""The tables of one run, and the stores on them, as they ship."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from penstock_core.errors import PenstockError
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.driver_errors import DriverError
from penstock_service.adapters.dynamodb.table_stores import table_stores
from penstock_service.adapters.tables.store import Place
from penstock_service.adapters.tables.tables import Change, Strain, Tables
from tests.simulation.engine.faults import FaultPlan
from tests.simulation.engine.scheduler import Scheduler
from tests.simulation.engine.time_and_chance import SchedulerClock, SimulatedEntropy
from tests.simulation.oracle.violation import expect

_NEVER_VALID = {"ValidationException", "ValidationError", "IdempotentParameterMismatchException"}
_THROTTLED_RATE = 0.5


class Outcome(Enum):
    """`UNKNOWN`: the call has not ended."""

    UNKNOWN = "unknown"


class SimulatedTables:
    """The tables. Transactions take up to `transaction_ms`, and reads that do not ask for consistency may be stale.

    Operations of the bare stores meet nothing of that. They may meet a transaction that holds their item.
    """

    def __init__(
        self, scheduler: Scheduler, faults: FaultPlan, transaction_ms: float, observe: Callable[[Change], None]
    ) -> None:
        self._scheduler = scheduler
        self._faults = faults
        self._transaction_ms = transaction_ms
        self._is_bare = True  # the operation that runs now is of the bare stores
        self._is_throttling = False
        clock = SchedulerClock(scheduler)
        strain = Strain(hold=self._hold, is_throttled=self._is_throttled, stale=self._stale)
        self.tables = Tables(clock.now_ms, observe, strain)
        self.bare_stores = table_stores(DynamoDbClient(self.tables, clock, SimulatedEntropy(scheduler)))
        self._recorded = _RecordedAnswers()
        replayed = table_stores(DynamoDbClient(self._recorded, _StillClock(), _NoEntropy()))
        self._replayed: Mapping[str, object] = replayed

    def apply(self, operation: Callable[[], Any]) -> Any:
        """Carry out an operation of an instance. Returns the error in place of an answer."""
        self._is_bare = False
        try:
            return operation()
        except DriverError as error:
            codes = {reason["Code"] for reason in getattr(error, "reasons", ())} | {getattr(error, "code", "")}
            expect(codes.isdisjoint(_NEVER_VALID), f"DynamoDB would never take this: {error}")
            return error
        finally:
            self._is_bare = True

    def throttling(self, effect: Callable[[], Any]) -> Any:
        """Carry out an effect while DynamoDB throttles some items."""
        self._is_throttling = True
        try:
            return effect()
        finally:
            self._is_throttling = False

    def replay(
        self, label: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any], answers: Sequence[Any]
    ) -> Any:
        """What the call returns, or its error, if these are the answers to its operations; UNKNOWN if it wants more."""
        self._recorded.answers = iter(answers)
        try:
            return getattr(self._replayed[label], method)(*arguments, **named)
        except PenstockError as error:
            return error
        except _NoMoreError:
            return Outcome.UNKNOWN

    def _hold(self) -> None:
        if not self._is_bare and self._transaction_ms and not self._faults.is_calm:
            self._is_bare = True
            self._scheduler.pause(self._transaction_ms * self._scheduler.random.random())

    def _is_throttled(self, _: Place) -> bool:
        return self._is_throttling and not self._is_bare and self._scheduler.random.random() < _THROTTLED_RATE

    def _stale(self, images: int) -> int:
        return 0 if self._is_bare or images == 1 else self._scheduler.random.randrange(images)


class _NoMoreError(BaseException):
    """A replayed call wants an answer that has not come yet. No store catches this."""


class _RecordedAnswers:
    """A driver that gives recorded answers."""

    answers: Iterator[Any]

    def __getattr__(self, _: str) -> Callable[..., Any]:
        return self._next

    def _next(self, **_: Any) -> Any:
        for answer in self.answers:
            if isinstance(answer, DriverError):
                raise answer
            return answer
        raise _NoMoreError


class _StillClock:
    """A clock that does not wait."""

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return 0.0

    def sleep_ms(self, duration_ms: float) -> None:
        pass


class _NoEntropy:
    def random_bytes(self, count: int) -> bytes:
        return bytes(count)
