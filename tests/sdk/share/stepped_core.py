"""A share consumer's core on clocks that a test steps, and the service's part of its calls."""

from collections.abc import Sequence
from typing import Any

from penstock.http.steps import Wait
from penstock.model.share import ShareRecord
from penstock.share.acknowledgements import LockKey, Wish
from penstock.share.acquire_call import ShareAnswer, ShareCall
from penstock.share.held_locks import AcquiredLock, Moment
from penstock.share.settings import ShareSettings
from penstock.share.share_core import ShareCore
from penstock_core.errors import PenstockError

START_MS = 1_000_000


class SteppedCore:
    """`core`, with `now`. A test asks it for calls, and answers them."""

    def __init__(self, **options: Any) -> None:
        self.now = Moment(START_MS, 5 * START_MS)
        self._nonces = 0
        self.core = ShareCore(
            ShareSettings(**{"group_id": "workers", **options}),
            (),
            consumer_id="test",
            now=lambda: self.now,
            new_nonce=self._nonce,
        )

    def step(self, by_ms: int) -> None:
        """Let both clocks go on."""
        self.now = self.now.later(by_ms)

    def call(self) -> ShareCall:
        """The request that goes out now."""
        call = self.core.next_call()
        assert call is not None, self.core.wake_at_ms - self.now.monotonic_ms
        return call

    def ask(self) -> list[ShareRecord]:
        """What a poll returns at once."""
        poll = self.core.poll(None, 1_000)
        try:
            effect = next(poll)
        except StopIteration as done:
            return list(done.value)
        assert isinstance(effect, Wait)
        return self._waiting(poll)

    def _waiting(self, poll: Any) -> list[ShareRecord]:
        self.poll = poll
        return []

    def resume(self) -> list[ShareRecord]:
        """What the poll that waits returns now."""
        try:
            self.poll.send({})
        except StopIteration as done:
            return list(done.value)
        return []

    def answer(self, call: ShareCall, *locks: AcquiredLock, **document: Any) -> None:
        """The service's answer to a call."""
        self.core.complete(call, ShareAnswer(document={"lock_ms": 30_000, **document}, locks=locks), 0.0)

    def fail(self, call: ShareCall, error: PenstockError) -> None:
        """The call's failure."""
        self.core.complete(call, error, 0.0)

    def lock(self, *offsets: int, name: str = "a.0", lasts_ms: int = 30_000, **more: Any) -> AcquiredLock:
        """A lock on records of orders[0], as an answer tells it."""
        key = LockKey("orders", 0, name)
        return AcquiredLock(key=key, records=records(offsets, name), sent=self.now, lasts_ms=lasts_ms, **more)

    def acquire(self, *offsets: int, **more: Any) -> list[ShareRecord]:
        """Ask, get a lock on these, and return what the poll returns."""
        assert self.ask() == []
        self.answer(self.call(), self.lock(*offsets, **more))
        return self.resume()

    def finish(self, record: ShareRecord, wish: Wish) -> None:
        """As a handler does."""
        self.core.acknowledge(record, wish)

    def sent(self, call: ShareCall) -> list[tuple[str, Any]]:
        """The types and offsets of a call's acknowledgements."""
        return [(each["type"], each["offsets"]) for each in call.body["acknowledge"]]

    def _nonce(self) -> str:
        self._nonces += 1
        return f"nonce-{self._nonces}"


def records(offsets: Sequence[int], lock_id: str) -> list[ShareRecord]:
    return [ShareRecord("orders", 0, offset, 1, None, b"%d" % offset, (), 1, lock_id) for offset in offsets]
