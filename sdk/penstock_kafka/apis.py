"""The rooms that serve APIs. Each has a module `apis` with `apis(context)`: the APIs, bound to the room's state."""

from collections.abc import Callable, Iterable

from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api
from penstock_kafka.dispatch.registry import Registry
from penstock_kafka.metadata import apis as metadata

ROOMS: tuple[Callable[[Context], Iterable[Api]], ...] = (metadata.apis,)


def open_registry(context: Context) -> Registry:
    """All APIs of the gateway."""
    return Registry(api for room in ROOMS for api in room(context))
