"""Calls of the stores that ship, on tables whose every single operation may meet a fault.

store --call--> client --operation--> send .. effect .. answer    each `..` lets other tasks run
                  '-- tries again, or gives up, as it does in the product

Observers want to hear of a call of a store when it takes effect. But a client may send several operations for it, and
it ends later than its effect. So each operation's effect asks: would the call end with this answer, and how? The
method runs once more, on a driver that repeats the answers of this call. If the method ends, observers hear its result.
If it wants a further answer, a later effect tells of it. A call that has not written is told when it ends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from penstock_core.errors import PenstockError
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, DriverError, NeverSentError, NoAnswerError
from penstock_service.adapters.dynamodb.table_stores import table_stores
from penstock_service.adapters.tables.tables import InterposedTables
from tests.simulation.engine.executor import Killed
from tests.simulation.engine.faults import Fault
from tests.simulation.engine.scheduler import Task
from tests.simulation.engine.time_and_chance import SimulatedEntropy
from tests.simulation.service.storage import SimulatedStorage
from tests.simulation.service.tables import Outcome, SimulatedTables

if TYPE_CHECKING:
    from tests.simulation.service.instance import SimulatedInstance

_READS = {"get_item", "batch_get_item", "query", "scan"}
_TRANSACT = "transact_write_items"
_THROTTLED = ("ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded")
_CANCELLING = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")
_GIVE_UP_MS = 1_000.0
_HANGS_MS = 5_000.0  # the read timeout of a driver
_LASTING = {Fault.REFUSED, Fault.LOST_REQUEST, Fault.LOST_REPLY}
_LASTING_RATE = 0.5


@dataclass(slots=True, kw_only=True)
class PortCall:
    """A call of a store, with the answers to its operations so far.

    `lasting` is a fault that all its further operations meet.
    """

    label: str
    method: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    answers: list[Any] = field(default_factory=list)
    lasting: Fault | None = None
    has_written: bool = False
    is_told: bool = False


class TableCalls:
    """The table stores of one function instance, and the operations that they send."""

    def __init__(self, instance: "SimulatedInstance", storage: SimulatedStorage, tables: SimulatedTables) -> None:
        self._instance = instance
        self._scheduler = instance.state.scheduler
        self._faults = instance.state.faults
        self._storage = storage
        self._tables = tables
        self._calls: dict[Task, PortCall] = {}
        driver = InterposedTables(tables.tables, self._operate)
        self.stores = table_stores(DynamoDbClient(driver, instance.clock, SimulatedEntropy(self._scheduler)))

    def call(self, label: str, method: str, run: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a method of a store."""
        task = self._scheduler.current
        self._instance.hold()
        self._instance.check_alive()
        self._scheduler.note(f"{label}.{method}", *arguments)
        call = self._calls[task] = PortCall(label=label, method=method, arguments=arguments, named=named)
        try:
            outcome = run(*arguments, **named)
        except PenstockError as error:
            outcome = error
        finally:
            del self._calls[task]
        if not call.is_told:
            self._storage.tell(label, method, arguments, outcome)
            self._instance.hold()
            self._instance.check_alive()
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome

    def _operate(self, operation: str, arguments: Mapping[str, Any], apply: Callable[[], Any]) -> Any:
        instance, faults, scheduler = self._instance, self._faults, self._scheduler
        call = self._calls[scheduler.current]
        instance.hold()
        instance.check_alive()
        fault = call.lasting or faults.draw(is_write=operation not in _READS, is_repeatable=True)
        if fault is not None:
            scheduler.note(f"{call.label}.{call.method}: {operation} ({fault.value})")
        if fault is Fault.KILLED_BEFORE:
            instance.kill()
        if fault in _LASTING and call.lasting is None and scheduler.random.random() < _LASTING_RATE:
            call.lasting = fault
        scheduler.pause(faults.slowness() if fault is Fault.SLOW else faults.latency(call.method))
        if instance.is_dead and scheduler.random.random() < 0.5:
            raise Killed  # the request never left
        answer = self._answer(call, operation, arguments, fault, apply)
        call.answers.append(answer)
        scheduler.pause(faults.latency())
        instance.nap_perhaps()
        instance.hold()
        instance.check_alive()
        if isinstance(answer, DriverError):
            raise answer
        return answer

    def _answer(
        self,
        call: PortCall,
        operation: str,
        arguments: Mapping[str, Any],
        fault: Fault | None,
        apply: Callable[[], Any],
    ) -> Any:
        scheduler, random = self._scheduler, self._scheduler.random
        effect = partial(self._take_effect, call, [*call.answers], operation, apply)
        if self._storage.trouble(call.label, _HANGS_MS) or fault is Fault.LOST_REQUEST:
            return _no_answer(random)
        if fault is Fault.REFUSED:
            is_in_part = operation.startswith("batch") and random.random() < 0.5
            return self._tables.throttling(effect) if is_in_part else _refusal(operation, arguments, random)
        if fault is Fault.LATE:
            scheduler.spawn(f"late {call.label}", effect, delay_ms=random.uniform(0.0, self._faults.late_ms))
            scheduler.pause(_GIVE_UP_MS)
            return _no_answer(random)
        answer = effect()
        if fault is Fault.KILLED_AFTER:
            self._instance.kill()
        if fault is Fault.REPEATED:  # by the client, which tries again if it may
            scheduler.pause(self._faults.slowness())
        return _no_answer(random) if fault in (Fault.LOST_REPLY, Fault.REPEATED) else answer

    def _take_effect(self, call: PortCall, before: Sequence[Any], operation: str, apply: Callable[[], Any]) -> Any:
        """Carry out an operation, and tell of its call if it ends with that. `before` are the answers before this one.

        A write that is applied tells of each of its attempts, a read or a refusal only of a call that was not told.
        """
        changes = self._storage.changes
        answer = self._tables.apply(apply)
        is_write = operation not in _READS
        call.has_written |= is_write
        is_applied = is_write and not isinstance(answer, DriverError)
        request = self._scheduler.current.request
        if is_applied and request is not None and self._storage.changes > changes:
            request.wrote(call.label, call.method, call.arguments)
        if is_applied or (call.has_written and not call.is_told):
            outcome = self._tables.replay(call.label, call.method, call.arguments, call.named, [*before, answer])
            if outcome is not Outcome.UNKNOWN:
                call.is_told = True
                self._storage.tell(call.label, call.method, call.arguments, outcome)
        return answer


class TablePort:
    """A table store of one instance."""

    def __init__(self, port: Any, label: str, calls: TableCalls) -> None:
        self._port = port
        self._label = label
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return partial(self._calls.call, self._label, name, found) if callable(found) else found


def _no_answer(random: Random) -> DriverError:
    """The request or its answer was lost, or DynamoDB says that it failed and not when."""
    if random.random() < 0.5:
        return NoAnswerError("simulated: no answer")
    return AnsweredError("InternalServerError", "simulated", status=500)


def _refusal(operation: str, arguments: Mapping[str, Any], random: Random) -> DriverError:
    """DynamoDB does nothing, and says so. Or the request did not leave the machine."""
    kind = random.choice(["throttled", "throttled", "in conflict", "never sent"])
    if kind == "never sent":
        return NeverSentError("simulated: not sent")
    if kind == "in conflict" and operation == _TRANSACT:
        codes = ["None"] * len(arguments["TransactItems"])
        codes[random.randrange(len(codes))] = random.choice(_CANCELLING)
        return AnsweredError("TransactionCanceledException", "simulated", reasons=[{"Code": code} for code in codes])
    if kind == "in conflict" and operation not in _READS:
        return AnsweredError("TransactionConflictException", "simulated")
    return AnsweredError(random.choice(_THROTTLED), "simulated")
