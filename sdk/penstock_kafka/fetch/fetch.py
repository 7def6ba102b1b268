"""Fetch: records from the end of what a client has, or a wait for the next ones."""

from collections.abc import Mapping

from penstock.system import choose, monotonic_ms
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.fetch.reader import FetchWish, Reader, Reading
from penstock_kafka.fetch.sessions import NO_SESSION, PartitionName, Session, Sessions
from penstock_kafka.fetch.tails import Tails

_WAIT_MS_MAX = 60_000
_READ_COMMITTED = 1
_UNKNOWN = -1


class Fetch:
    """Reads partitions. Isolation levels see the same: a transaction's records are in the log at once or never."""

    def __init__(self, context: Context) -> None:
        self._sessions = Sessions(choose)
        self._reader = Reader(context, Tails(context))

    async def answer(self, call: Call) -> Answer:
        """The records, by partition. In a session, partitions without news are left out."""
        request = call.request
        try:
            session = self._sessions.of(request)
        except RequestRefused as refused:
            return {"error_code": refused.code, "session_id": NO_SESSION, "responses": []}
        wait_ms = min(max(request.max_wait.total_seconds() * 1_000, 0), _WAIT_MS_MAX)
        readings = await self._reader.read(
            FetchWish(
                wanted=dict(session.wanted),
                bytes_min=request.min_bytes if wait_ms else 0,
                bytes_max=max(request.max_bytes, 1) if hasattr(request, "max_bytes") else 2**31 - 1,
                until_ms=monotonic_ms() + int(wait_ms),
                peer=call.peer,
                afterwards=call.afterwards,
            )
        )
        told = _told(session, readings)
        session.read([name for name, each in told.items() if each.records])
        is_committed = getattr(request, "isolation_level", 0) == _READ_COMMITTED
        return {
            "error_code": KafkaError.none,
            "session_id": session.session_id,
            "responses": _responses(told, aborted=[] if is_committed else None),
        }


def _told(session: Session, readings: Mapping[PartitionName, Reading]) -> dict[PartitionName, Reading]:
    """The readings to answer. Outside of a session each partition is answered, also one that was not reached."""
    told: dict[PartitionName, Reading] = {}
    for name in session.wanted:
        reading = readings.get(name)
        if not session.is_kept or name not in session.told:
            reading = reading or Reading(KafkaError.none, _UNKNOWN, _UNKNOWN)
        elif reading is None or (
            not reading.is_final and session.told[name] == (reading.high_watermark, reading.log_start_offset)
        ):
            continue
        told[name] = reading
        session.told[name] = (reading.high_watermark, reading.log_start_offset)
    return told


def _responses(readings: Mapping[PartitionName, Reading], *, aborted: list[object] | None) -> list[Answer]:
    topics: dict[object, list[Answer]] = {}
    for name, each in readings.items():
        topics.setdefault(name.topic, []).append(
            {
                "partition_index": name.partition,
                "error_code": each.error,
                "high_watermark": each.high_watermark,
                "last_stable_offset": each.high_watermark,
                "log_start_offset": each.log_start_offset,
                "aborted_transactions": aborted,
                "records": each.records,
            }
        )
    return [{"topic": topic, "topic_id": topic, "partitions": partitions} for topic, partitions in topics.items()]
