"""One client, one record at a time: how long it takes. And a few thousand records: what they put on the wire."""

import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.harness.turns import take_turns
from bench.report.result import Row
from bench.rivals.race import values_of
from bench.rivals.relay import relay
from bench.rivals.rival import Rival, Seat

_PER_TURN = 10
_LATE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """The times of one record from its send: until it was acknowledged, and until a waiting reader had it."""

    acknowledged_s: float
    delivered_s: float


@contextmanager
def fresh(rival: Rival) -> Iterator[Rival]:
    """The rival with a topic of its own."""
    made = rival.renamed(f"bench-{secrets.token_hex(4)}")
    made.make()
    try:
        yield made
    finally:
        made.drop()


def latencies(rivals: Sequence[Rival], samples: int, record_bytes: int = 100) -> list[Row]:
    """p50 and p99 of each rival. They take turns of some records each; the first turn of each does not count."""
    value = values_of(record_bytes, 1)
    with ExitStack() as stack:
        sides = [stack.enter_context(_one_at_a_time(rival, value)) for rival in rivals]
        turns = take_turns(sides, max(2, samples // _PER_TURN))
    rows: list[Row] = []
    for rival, delays in zip(rivals, turns, strict=True):
        flat = [delay for turn in delays for delay in turn]
        acknowledged = _cuts([each.acknowledged_s for each in flat])
        delivered = _cuts([each.delivered_s for each in flat])
        rows.append(
            {
                "system": rival.name,
                "acknowledged_p50_ms": acknowledged[0],
                "acknowledged_p99_ms": acknowledged[1],
                "delivered_p50_ms": delivered[0],
                "delivered_p99_ms": delivered[1],
                "records": len(flat),
            }
        )
    return rows


@contextmanager
def _one_at_a_time(rival: Rival, value: Sequence[bytes]) -> Iterator[Callable[[], list[Delay]]]:
    with fresh(rival) as made:
        client = made.connect(Seat(is_prompt=True))
        yield lambda: [_delay(rival.name, client.send, client.flush, client.receive, value) for _ in range(_PER_TURN)]
        client.close()


def _delay(
    name: str,
    send: Callable[[Sequence[bytes]], None],
    flush: Callable[[], None],
    receive: Callable[[], int],
    value: Sequence[bytes],
) -> Delay:
    begun_s = time.perf_counter()
    send(value)
    flush()
    acknowledged_s = time.perf_counter() - begun_s
    while not receive():
        if time.perf_counter() > begun_s + _LATE_S:
            raise TimeoutError(f"{name}: a record did not come within {_LATE_S} s")
    return Delay(acknowledged_s=acknowledged_s, delivered_s=time.perf_counter() - begun_s)


def wire(rival: Rival, record_bytes: int, records: int, threads: tuple[int, int]) -> Row:
    """Calls and bytes of a record, each way, through a relay that counts. Acknowledgements of a reader are included."""
    with relay(rival.port) as traffic, fresh(rival) as made:
        client = made.through(traffic.port).connect(Seat(threads=max(threads)))
        values = values_of(record_bytes, client.chunk)
        client.send(values[:1])
        client.flush()
        before = (traffic.sent + traffic.received, client.calls)
        for begin in range(0, records, client.chunk):
            client.send(values[: records - begin])
        client.flush()
        between = (traffic.sent + traffic.received, client.calls)
        left, late_s = records + 1, time.monotonic() + _LATE_S
        while left > 0 and time.monotonic() < late_s:
            left -= client.receive()
        after = (traffic.sent + traffic.received, client.calls)
        client.close()
    return {
        "system": rival.name,
        "record": f"{record_bytes} B",
        "sent_bytes_per_record": round((between[0] - before[0]) / records, 1),
        "received_bytes_per_record": round((after[0] - between[0]) / records, 1),
        "sent_records_per_call": _records_per_call(before[1], between[1], records),
        "received_records_per_call": _records_per_call(between[1], after[1], records),
    }


def _records_per_call(before: int | None, after: int | None, records: int) -> float | None:
    """None for a protocol without calls."""
    return None if before is None or after is None else round(records / max(1, after - before), 1)


def _cuts(seconds: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return round(cuts[49] * 1_000, 1), round(cuts[98] * 1_000, 1)
