"""The stores of one run, where every call takes effect and is observed."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.stores import Stores
from tests.simulation.engine.run_state import RunState
from tests.simulation.oracle.oracle import Oracle, head_appended_to
from tests.simulation.service.deliveries import StreamedHead


class SimulatedStorage:
    """The bare stores, the oracle and the observers that see every effect, and the stream of the log table."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self.oracle = Oracle(state)
        self.zone_trouble: dict[str, str] = {}
        self.observers: list[Callable[[str, str, tuple[Any, ...], Any], None]] = []  # of every effect
        self.sure: set[str] = set()  # the labels of stores that meet no fault and take no time
        self.stream: list[StreamedHead] = []  # the records of the log table's stream that `replicate` has not handled
        self._stream_number = 0

    def apply(self, label: str, method: str, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Let a storage call take effect, and return its result, or the error that the store answers."""
        trouble = self.zone_trouble.get(label)
        if trouble is not None:
            self._state.count(f"zone {trouble}")
            if trouble == "hangs":
                self._state.scheduler.pause(self._state.scheduler.random.uniform(1_000.0, 10_000.0))
            return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"simulated: {label} {trouble}")
        try:
            outcome = effect()
        except PenstockError as error:
            outcome = error
        self.oracle.observe(label, method, arguments, outcome)
        for observe in self.observers:
            observe(label, method, arguments, outcome)
        if label == "transactions" and method in ("commit", "move") and outcome is True:
            heads = self._state.stores.log.heads([*arguments[0].refs])
            for key in (key for key, owed in arguments[0].unconfirmed.items() if owed):
                self._stream_number += 1
                self.stream.append(StreamedHead(number=self._stream_number, key=key, head=heads[key]))
        if label == "log" and (head := head_appended_to(method, outcome)) and arguments[2]:
            self._stream_number += 1
            self.stream.append(StreamedHead(number=self._stream_number, key=arguments[0], head=head))
        return outcome

    def stores_as(self, wrapped: Callable[[Any, str], Any]) -> Stores:
        """Return all stores, each wrapped by `wrapped`, which takes the store and its label."""
        ports: dict[str, Any] = {
            each.name: wrapped(getattr(self._state.stores, each.name), each.name)
            for each in fields(self._state.stores)
            if each.name not in ("zones", "fallback_zones", "inline_bytes_max")
        }
        return Stores(
            **ports,
            zones=[wrapped(store, f"zone {store.zone}") for store in self._state.stores.zones],
            fallback_zones=self._state.stores.fallback_zones,
            inline_bytes_max=self._state.stores.inline_bytes_max,
        )


class ObservedPort:
    """A store whose calls take no time and meet no fault. The oracle observes them."""

    def __init__(self, port: Any, label: str, storage: SimulatedStorage) -> None:
        self._port = port
        self._label = label
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, method: str, effect: Callable[..., Any], *arguments: Any) -> Any:
        if method == "upload":  # the oracle reads the body as well
            arguments = (arguments[0], [*arguments[1]])
        outcome = self._storage.apply(self._label, method, partial(effect, *arguments), arguments)
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome
