"""What zones are said to be, and a zone that hangs."""

import threading
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.zones.zone_state import Acks, ZoneStatus
from penstock_service.instance.instance import Instance
from penstock_service.segments.move_zone import list_zones
from tests.support.refusals import refused
from tests.support.service import (
    Intercepted,
    another_instance,
    send,
)

IN, OUT, UP, TAKEN = (
    ZoneStatus.IN_SYNC,
    ZoneStatus.OUT_OF_SYNC,
    ZoneStatus.CATCHING_UP,
    ZoneStatus.TAKEN_OUT,
)


def statuses(instance: Instance) -> list[ZoneStatus]:
    return [state.status for _, state in list_zones(another_instance(instance))]


def append_refused(instance: Instance, topic: str, acks: Acks) -> PenstockError:
    return refused(ErrorCode.NOT_ENOUGH_ZONES, lambda: send(instance, topic, "x", acks=acks))


class Hanging:
    """A zone that takes puts and answers none until it is told to."""

    def __init__(self, instance: Instance, index: int) -> None:
        self.answer = threading.Event()
        self.zones: list[Any] = list(instance.stores.zones)
        self.zones[index] = Intercepted(self.zones[index], put=self._put)

    def _put(self, original: Any, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self.answer.wait()
        original(segment_id, body, crc32c)
