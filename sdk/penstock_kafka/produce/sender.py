"""Carries batches to the service: few calls side by side, each with as many batches as wait.

The sender decides about a run whose append has failed:

| the failure                                | may be applied | the run                                           |
|--------------------------------------------|----------------|---------------------------------------------------|
| is one that a retry can heal               | no             | goes again, until its request is over             |
| is one that a retry can heal               | yes            | goes again if its producer numbers its records    |
| is final, and the run shared its append    | no             | its batches go again, each alone                  |
| is final, and the run shared its append    | yes            | the same if its producer numbers its records      |
| any other                                  |                | fails, and so do the requests                     |

A client that comes back sends batches that are stored already, and new ones behind them. The service refuses a run of
both, but takes each alone: the stored ones are repeats.

A compacted topic takes no record without a key. The sender refuses such a run before it goes, as a final failure. So
its batches go again alone, and those with keys are stored. A run that must first ask whether its topic is compacted
waits in a call of its own.

A run that waits for its next try leaves its place to other calls: a topic over its quota does not hold up the others.

A call costs the service much and a byte little, and a client that wants throughput sends its batches one after the
other. So a large batch waits a moment for more, while another call is under way (`gather_ms`). A small one never waits.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from penstock.errors import as_maybe_applied
from penstock.http.http_message import BATCHES_TYPE, HttpRequest
from penstock.producer.produce_call import produce_results
from penstock.retry import RetryPolicy
from penstock.system import monotonic_ms, random_fraction
from penstock_core.errors import PenstockError
from penstock_core.limits import (
    KAFKA_GATHER_BYTES_MAX,
    KAFKA_GATHER_BYTES_MIN,
    KAFKA_GATHER_MS_MAX,
    KAFKA_PRODUCE_CALLS_MAX,
)
from penstock_core.records import frame
from penstock_kafka.context import Context
from penstock_kafka.produce.lanes import Lanes, Outcome, PendingBatch, Run
from penstock_kafka.service.service import keyless_error

_GATHER_PART = 4  # a batch waits a quarter of the time that a call takes


def gather_ms(*, ready_bytes: int, calls: int, call_ms: int) -> int:
    """How long what is ready waits for more, from the moment at which it became ready.

    `calls` are under way. The last one that succeeded took `call_ms`.
    """
    if calls == 0 or not KAFKA_GATHER_BYTES_MIN <= ready_bytes < KAFKA_GATHER_BYTES_MAX:
        return 0
    return min(call_ms // _GATHER_PART, KAFKA_GATHER_MS_MAX)


class Sender:
    """Sends what is put, in the order of each lane."""

    def __init__(self, context: Context, *, retry: RetryPolicy | None = None) -> None:
        self._context = context
        self._topics = context.service.topics
        self._retry = retry or RetryPolicy()
        self._lanes = Lanes()
        self._calls = 0
        self._coming_back: deque[asyncio.Future[None]] = deque()  # sends that have waited, and need a place again
        self._is_due = False
        self._gathering: asyncio.TimerHandle | None = None
        self._has_gathered = False
        self._call_ms = 0

    def put(self, batch: PendingBatch) -> None:
        """Send this soon. Batches that are put in the same turn of the loop go together."""
        self._lanes.put(batch)
        self._wake()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_due = False
        while self._calls < KAFKA_PRODUCE_CALLS_MAX and self._coming_back:
            place = self._coming_back.popleft()
            if not place.done():
                self._calls += 1
                place.set_result(None)
        while self._calls < KAFKA_PRODUCE_CALLS_MAX and not self._gathers() and (runs := self._lanes.take()):
            self._begin_anew()
            for together in self._apart(runs):
                self._calls += 1
                self._context.start(self._send(together), "penstock-kafka-produce")

    def _apart(self, runs: Sequence[Run]) -> Sequence[Sequence[Run]]:
        """The runs that go now, and those that must ask for their topics first."""
        asking = [each for each in runs if not (each.have_keys or self._topics.is_known(each.key.topic))]
        going = [each for each in runs if each not in asking] if asking else runs
        return [each for each in (going, asking) if each]

    def _gathers(self) -> bool:
        """True if what is ready waits for more. Then the sender looks again in time."""
        wait_ms = gather_ms(ready_bytes=self._lanes.ready_bytes, calls=self._calls, call_ms=self._call_ms)
        if wait_ms == 0 or self._has_gathered:
            return False
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(wait_ms / 1_000, self._gathered)
        return True

    def _gathered(self) -> None:
        """The time is over: what is ready goes."""
        self._has_gathered = True
        self._wake()

    def _begin_anew(self) -> None:
        """Something went. What comes now has its own time to wait."""
        self._has_gathered = False
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None

    async def _send(self, runs: Sequence[Run]) -> None:
        unsettled = {id(run): run for run in runs}
        failures = 0
        try:
            while unsettled:
                tried = [*unsettled.values()]
                outcomes = await self._try(tried)
                failures += 1
                waits = [
                    self._judged(run, outcome, unsettled, failures)
                    for run, outcome in zip(tried, outcomes, strict=True)
                ]
                if unsettled:
                    await self._wait(max(waits))
        finally:
            self._leave()
            for run in unsettled.values():  # the gateway stops
                for each in run.batches:
                    each.outcome.cancel()
                self._lanes.end(run.key)

    async def _wait(self, wait_ms: int) -> None:
        """Wait for the next try, and let other calls go meanwhile. Afterwards it has a place again, also if it ends."""
        self._leave()
        place = asyncio.get_running_loop().create_future()
        try:
            await asyncio.sleep(wait_ms / 1_000)
            self._coming_back.append(place)
            self._wake()
            await place
        except asyncio.CancelledError:
            if not place.done() or place.cancelled():
                self._calls += 1
            raise

    def _leave(self) -> None:
        self._calls -= 1
        self._wake()

    def _judged(self, run: Run, outcome: Outcome, unsettled: dict[int, Run], failures: int) -> int:
        """Settle the run, or return the milliseconds after which it goes again."""
        if isinstance(outcome, int):
            self._settle(run, outcome, unsettled)
            return 0
        if outcome.maybe_applied:
            run.doubt()
        may_go_again = run.is_repeatable or not run.maybe_applied
        now_ms = monotonic_ms()
        if may_go_again:
            retry_at_ms = self._retry.retry_at_ms(
                outcome, failures=failures, now_ms=now_ms, deadline_ms=run.deadline_ms, chance=random_fraction()
            )
            if retry_at_ms is not None:
                return retry_at_ms - now_ms
        shared = len(run.batches) > 1 or (failures == 1 and len(unsettled) > 1 and not run.batches[0].is_alone)
        if not outcome.code.is_retriable and may_go_again and shared:
            del unsettled[id(run)]
            self._lanes.put_back(run, is_alone=True)
        else:
            self._settle(run, as_maybe_applied(outcome) if run.maybe_applied else outcome, unsettled)
        return 0

    def _settle(self, run: Run, outcome: Outcome, unsettled: dict[int, Run]) -> None:
        del unsettled[id(run)]
        run.settle(outcome)
        self._lanes.end(run.key)
        self._wake()

    async def _try(self, runs: Sequence[Run]) -> list[Outcome]:
        found = iter(await asyncio.gather(*(self._refusal(run) for run in runs if not run.have_keys)))
        refusals = [None if run.have_keys else next(found) for run in runs]
        going = [run for run, refusal in zip(runs, refusals, strict=True) if refusal is None]
        outcomes = iter(await self._append(going) if going else ())
        return [next(outcomes) if refusal is None else refusal for refusal in refusals]

    async def _refusal(self, run: Run) -> PenstockError | None:
        for each in run.batches:
            if not each.have_keys:
                return await keyless_error(self._topics, run.key.topic, each.data)
        return None

    async def _append(self, runs: Sequence[Run]) -> list[Outcome]:
        request = _request(runs)
        self._context.figures.produce_calls += 1
        self._context.figures.produced_bytes += sum(run.size for run in runs)
        began_ms = monotonic_ms()
        try:
            outcomes = produce_results(request, await self._context.service.try_once(request), len(runs))
            self._call_ms = monotonic_ms() - began_ms
            return outcomes
        except PenstockError as error:
            return [error] * len(runs)


def _request(runs: Sequence[Run]) -> HttpRequest:
    header = {
        "acks": runs[0].batches[0].acks,
        "batches": [
            {
                "topic": run.key.topic,
                "partition": run.key.partition,
                "length": run.size,
                **({"may_expire": True} if run.may_expire else {}),
            }
            for run in runs
        ],
    }
    body = frame.encode(header, [each.data for run in runs for each in run.batches])
    return HttpRequest(method="POST", path="/v1/produce", headers={"Content-Type": BATCHES_TYPE}, body=body)
