"""Calls of the stores that are not tables: objects, queues, wake-ups and targets. Their faults are those of calls."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock_core.errors import ErrorCode, PenstockError
from tests.simulation.engine.executor import Killed
from tests.simulation.engine.faults import Fault

if TYPE_CHECKING:
    from tests.simulation.service.instance import SimulatedInstance

_GIVE_UP_MS = 1_000.0
_READS = {"get", "list_keys", "list_folders"}
# The adapters send these again after a lost answer.
_REPEATABLE = {
    *(f"zone.{method}" for method in ("put", "overwrite", "delete")),
    *(f"archive.{method}" for method in ("put", "upload", "delete")),
    "wake_ups.publish",
}


class SimulatedPort:
    """A store of one instance. Every call is sent, takes effect and is answered at three different times."""

    def __init__(self, port: Any, label: str, instance: "SimulatedInstance") -> None:
        self._port = port
        self._label = label
        self._kind = label.split()[0]
        self._instance = instance

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, method: str, effect: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        instance, storage = self._instance, self._instance.storage
        scheduler, faults = instance.state.scheduler, instance.state.faults
        instance.hold()
        instance.check_alive()
        if self._label in storage.sure:
            return storage.apply(self._label, method, partial(effect, *arguments, **named), arguments)
        is_write = method not in _READS
        if method == "upload":  # the instance reads the body before it sends it
            arguments = (arguments[0], [*arguments[1]])
            effect = getattr(self._port, method)
            instance.check_alive()
        put = None
        if self._kind == "zone" and method == "put":
            if arguments[0] not in storage.oracle.log.bodies:  # not a copy that a repair puts
                instance.check_states_of(arguments[0])
            put = storage.oracle.begin_put(instance.name, self._label, arguments[0])
        fault = faults.draw(is_write=is_write, is_repeatable=f"{self._kind}.{method}" in _REPEATABLE)
        scheduler.note(f"{self._label}.{method}" + (f" ({fault.value})" if fault else ""), *arguments)
        if fault is Fault.KILLED_BEFORE:
            instance.kill()
        scheduler.pause(faults.slowness() if fault is Fault.SLOW else faults.latency(method))
        if instance.is_dead and scheduler.random.random() < 0.5:
            raise Killed  # the request never left
        run = partial(storage.apply, self._label, method, partial(effect, *arguments, **named), arguments)
        if fault is Fault.REFUSED:
            outcome: Any = _refused(self._label, method, scheduler.random.random())
        elif fault is Fault.LOST_REQUEST:
            outcome = _lost(self._label, method, is_write=is_write)
        elif fault is Fault.LATE:
            delay_ms = scheduler.random.uniform(0.0, faults.late_ms)
            scheduler.spawn(f"late {self._label}", run, delay_ms=delay_ms)
            scheduler.pause(_GIVE_UP_MS)
            outcome = _lost(self._label, method, is_write=is_write)
        else:
            outcome = run()
            if fault is Fault.REPEATED:
                scheduler.pause(faults.slowness())
                outcome = run()
            elif fault is Fault.LOST_REPLY:
                outcome = _lost(self._label, method, is_write=is_write)
            elif fault is Fault.KILLED_AFTER:
                instance.kill()
        scheduler.pause(faults.latency())
        if put is not None and not isinstance(outcome, PenstockError):
            put.confirmed_ms = scheduler.now_ms
        instance.nap_perhaps()
        instance.hold()
        instance.check_alive()
        if isinstance(outcome, PenstockError):
            raise outcome
        return list(outcome) if isinstance(outcome, Iterator) else outcome


def _refused(label: str, method: str, chance: float) -> PenstockError:
    code = ErrorCode.THROTTLED if chance < 0.5 else ErrorCode.STORAGE_UNAVAILABLE
    return PenstockError(code, f"simulated: {label}.{method} was refused")


def _lost(label: str, method: str, *, is_write: bool) -> PenstockError:
    message = f"simulated: {label}.{method} was not answered"
    # The caller of a put owns the segment's id, so it may treat an unconfirmed put as never applied.
    maybe_applied = is_write and not label.startswith(("zone", "archive"))
    return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, message, maybe_applied=maybe_applied)
