"""A delivery to a queue or a bus: many calls of a few entries each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock_core.limits import PUSH_CALL_MS_MAX, PUSH_CALLS_AT_ONCE
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.push.targets.call_batches import call_batches
from penstock_service.ports.runtime import Clock, Executor

Refusals = Mapping[int, str]
"""Errors of single entries by their indices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySizes:
    """The entries' sizes in bytes, and what one entry, and one call, may have. `service` says who takes no more."""

    sizes: Sequence[int]
    bytes_max: int
    service: str

    def refusals(self) -> dict[int, str]:
        """The entries that are too large."""
        return {
            index: f"it has {size:,} bytes: {self.service} takes {self.bytes_max:,}"
            for index, size in enumerate(self.sizes)
            if size > self.bytes_max
        }


class EntryCalls:
    """Sends entries by several calls side by side."""

    def __init__(self, clock: Clock, executor: Executor) -> None:
        self._clock = clock
        self._executor = executor

    def send(
        self,
        batch: PushBatch,
        entries: EntrySizes,
        call: Callable[[Sequence[int]], Refusals | Failed],
        timeout_ms: int,
    ) -> Answer:
        """Calls `call` with the indices of a few entries until all are sent, or `timeout_ms` leaves no time for a call.

        The first call that fails as a whole ends the delivery. Entries that were sent before it are sent again then.
        """
        end_ms = self._clock.monotonic_ms() + timeout_ms - PUSH_CALL_MS_MAX
        refused = entries.refusals()
        calls = call_batches(entries.sizes, entries.bytes_max)
        for start in range(0, len(calls), PUSH_CALLS_AT_ONCE):
            if start and self._clock.monotonic_ms() >= end_ms:
                why = f"the time is over after {start} of {len(calls)} calls with {len(batch.records)} records"
                return Failed(failure=Failure.BROKEN, error=why)
            for answer in self._executor.map(call, calls[start : start + PUSH_CALLS_AT_ONCE]).all_ok():
                if isinstance(answer, Failed):
                    return answer
                refused.update(answer)
        return _answered(batch, refused)


def _answered(batch: PushBatch, refused: Refusals) -> Answered:
    if not refused:
        return Answered()
    first = min(refused)
    record = batch.records[first]
    error = f"{len(refused)} of {len(batch.records)} records were refused; {record.topic}-{record.key.partition} "
    return Answered(
        failed=frozenset(batch.records[index].place for index in refused),
        error=f"{error}at offset {record.record.offset}: {refused[first]}",
    )
