"""The times from which records are over, by their values, and the checks of what the service does with such records.

A record is over by its producer's clock, which is exact here. An instance looks by its own clock, which may be
`CLOCK_SKEW_MS` ahead or behind. So in that time it may do either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock_core.records.codec import Headers, Record
from penstock_core.records.expiry import EXPIRES_AT_HEADER
from penstock_core.share.dead_letter import HEADER_PREFIX
from tests.simulation.engine.scheduler import Scheduler
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.violation import expect


@dataclass(slots=True)
class Expiries:
    """`over_ms` has the wall time of each value that expires. `is_on`: the run has such values."""

    scheduler: Scheduler
    is_on: bool = False
    over_ms: dict[str, int] = field(default_factory=dict)
    plain: set[str] = field(default_factory=set)  # values that were sent without a time

    def headers(self, value: str, draws: Sequence[int | None], headers: Headers) -> Headers:
        """The headers of a record of that value, which expires after one of the durations, or never."""
        if value not in self.over_ms and value not in self.plain:
            drawn = self.scheduler.random.choice(draws)
            if drawn is None:
                self.plain.add(value)
            else:
                self.over_ms[value] = EPOCH_MS + int(self.scheduler.now_ms) + drawn
        if value in self.plain:
            return headers
        return (*headers, (EXPIRES_AT_HEADER, str(self.over_ms[value]).encode()))

    def may_be_over(self, value: str) -> bool:
        """True if some instance may take the record for expired by now."""
        over_ms = self.over_ms.get(value)
        return over_ms is not None and over_ms <= EPOCH_MS + self.scheduler.now_ms + CLOCK_SKEW_MS

    def check_delivered(self, who: str, value: str, decided_ms: float) -> None:
        """Check that a reader may get the record: an instance decided so at that simulated time, or later."""
        over_ms = self.over_ms.get(value)
        expect(
            over_ms is None or over_ms >= EPOCH_MS + decided_ms - CLOCK_SKEW_MS,
            f"{who} got {value}, which was over at {over_ms}, by a decision of {EPOCH_MS + decided_ms} or later",
        )

    def check_letter(self, letter: Record) -> None:
        """Check that a dead letter was none of an expired record, by the clock of its instance, and does not expire."""
        told = dict(letter.headers)
        value, over_ms = (letter.value or b"").decode(), self.over_ms.get((letter.value or b"").decode())
        time_ms = int(told[f"{HEADER_PREFIX}time_ms"] or b"")
        expect(EXPIRES_AT_HEADER not in told, f"the dead letter of {value} expires")
        kept = told.get(f"{HEADER_PREFIX}expires-at")
        wanted = None if over_ms is None else str(over_ms).encode()
        expect(kept == wanted, f"the dead letter of {value} tells {kept!r} of {over_ms}")
        expect(over_ms is None or time_ms < over_ms, f"{value} was over at {over_ms}, and is a letter of {time_ms}")
