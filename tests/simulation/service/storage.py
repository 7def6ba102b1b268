"""The stores of one run: the tables and the bare stores on them, and who hears of every effect."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.log.wake_up import PushEvent
from penstock_core.storage.head_item import parse_push_event
from penstock_core.storage.keys import EXPIRING_PREFIX, INLINE_PREFIX
from penstock_core.storage.page_item import expiring_id, inline_id
from penstock_service.adapters.tables.tables import Change
from penstock_service.stores import Stores
from tests.simulation.engine.run_state import RunState
from tests.simulation.oracle.oracle import Oracle
from tests.simulation.service.deliveries import StreamedImage
from tests.simulation.service.tables import SimulatedTables


class SimulatedStorage:
    """The bare stores, the oracle and the observers that hear of every effect, and what the log table's stream tells.

    `stream` has the records for `replicate`, and `push_events` those for `dispatch`, until they are handled.
    """

    def __init__(self, state: RunState, tables: SimulatedTables) -> None:
        self._state = state
        self.tables = tables
        self.oracle = Oracle(state)
        self.zone_trouble: dict[str, str] = {}
        self.observers: list[Callable[[str, str, tuple[Any, ...], Any], None]] = []  # of every effect
        self.sure: set[str] = set()  # the labels of stores that meet no fault and take no time
        self.stream: list[StreamedImage] = []
        self.push_events: list[PushEvent] = []
        self.inline_segments: set[SegmentId] = set()
        self.expiring_segments: set[SegmentId] = set()
        self.changes = 0  # of items, so far
        self._stream_number = 0

    def apply(self, label: str, method: str, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Let a storage call take effect, and return its result, or the error that the store answers."""
        if trouble := self.trouble(label):
            return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"simulated: {label} {trouble}")
        try:
            outcome = effect()
        except PenstockError as error:
            outcome = error
        self.tell(label, method, arguments, outcome)
        return outcome

    def trouble(self, label: str, hangs_ms: float = 10_000.0) -> str | None:
        """What is wrong with the store now. Waits up to `hangs_ms` if the store hangs."""
        trouble = self.zone_trouble.get(label)
        if trouble is not None:
            self._state.count(f"zone {trouble}")
            if trouble == "hangs":
                self._state.scheduler.pause(self._state.scheduler.random.uniform(1_000.0, hangs_ms))
        return trouble

    def tell(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        """Tell all observers what a call of a port has done just now."""
        if (label, method) != ("inline", "delete"):  # `changed` tells of each item
            self.oracle.observe(label, method, arguments, outcome)
        for observe in self.observers:
            observe(label, method, arguments, outcome)

    def changed(self, change: Change) -> None:
        """Take a change of an item, in the order of all changes, as the table's stream has it."""
        self.changes += change.old != change.new
        if change.table != "log":
            return
        if change.key["pk"]["S"].startswith(INLINE_PREFIX):
            segment_id = inline_id(change.key["sk"]["S"])
            if change.new is None:
                self.inline_segments.discard(segment_id)
                self.oracle.observe("inline", "delete", ([segment_id],), None)
            else:
                self.inline_segments.add(segment_id)
        if change.key["pk"]["S"].startswith(EXPIRING_PREFIX):
            segment_id = expiring_id(change.key["pk"]["S"])
            (self.expiring_segments.discard if change.new is None else self.expiring_segments.add)(segment_id)
        images = {} if change.old is None else {"OldImage": change.old}
        if change.new is not None:
            images["NewImage"] = change.new
            if StreamedImage.is_wanted(change.new):
                self._stream_number += 1
                self.stream.append(StreamedImage(number=self._stream_number, image=change.new))
        event = parse_push_event({"Keys": change.key, **images})
        if event is not None:
            self.push_events.append(event)

    def stores_as(self, wrapped: Callable[[Any, str], Any], own: Mapping[str, object]) -> Stores:
        """Return all stores, each wrapped by `wrapped`, which takes the store and its label.

        `own` are the caller's in place of bare ones.
        """
        ports: dict[str, Any] = {
            each.name: wrapped(own.get(each.name) or getattr(self._state.stores, each.name), each.name)
            for each in fields(self._state.stores)
            if each.name not in ("zones", "fallback_zones", "small")
        }
        return Stores(
            **ports,
            zones=[wrapped(store, f"zone {store.zone}") for store in self._state.stores.zones],
            fallback_zones=self._state.stores.fallback_zones,
            small=self._state.stores.small,
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
