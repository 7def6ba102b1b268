"""Keep heads small: roll refs into pages, and evict silent producers (docs/adr/0019). The writers of appends do it.

A roll is two plain writes, and so is one eviction, but for the producers' own items:

```
 roll       put page        (invisible: it begins at the tail base)     head: 16 refs less, tail_base = page's end
 eviction   put producer#…  (the head's entries still count)            head: these entries less, if unchanged
```
It may die between any two of them, be frozen there, run twice at once, and meet any other writer. Each write has a
condition that tells if an earlier one still holds. If all of it fails, only the head is longer: a later append tries
again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import PAGE_PUT_MS_MAX, ROLL_ATTEMPTS_MAX, ROLL_BACKOFF_MS_MAX, ROLL_PAGES_MAX
from penstock_core.log.index import Head, Page
from penstock_core.log.roll import is_eviction_due, is_roll_due, next_page, producers_to_evict, with_bits_of
from penstock_core.records.producer_state import ProducerState
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow

_BACKOFF_MS = 5.0
_RETRIED = (ErrorCode.THROTTLED, ErrorCode.STORAGE_UNAVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrownHead:
    """A head after an append of `added_refs`. It may not have known `added_producers` of the append before."""

    key: PartitionKey
    head: Head
    added_refs: int = 1
    added_producers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A head, None if it is gone, and a window that was opened before it was read."""

    head: Head | None
    window: UpdateWindow


_Step = Callable[[_Look], _Look | None]
"""Takes the last look and gives the one after it; None if nothing is left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Steps on one head; `failure` is the name under which their failure is counted."""

    key: PartitionKey
    head: Head
    step: _Step
    failure: str


def shorten_heads(instance: Instance, window: UpdateWindow, grown: Sequence[GrownHead]) -> None:
    """Rolls and evicts where that is due, side by side. `window` was opened before the heads were read.

    A roll costs a put and an update for each page. An eviction costs a put for each producer, and an update. Raises
    nothing: failures are counted.
    """
    evictions = [
        _Eviction(instance, each.key)
        for each in grown
        if each.added_producers and is_eviction_due(each.head, each.added_producers)
    ]
    heads = {each.key: each.head for each in grown}
    puts = [(each, *pair) for each in evictions for pair in producers_to_evict(heads[each.key]).items()]
    instance.executor.map(lambda put: put[0].put(*put[1:]), puts)
    works = [
        _Work(key=each.key, head=each.head, step=partial(_roll, instance, each.key), failure="rolls_failed")
        for each in grown
        if is_roll_due(each.head, each.added_refs)
    ]
    works += [
        _Work(key=each.key, head=heads[each.key], step=each.step, failure="evictions_failed") for each in evictions
    ]
    results = instance.executor.map(
        lambda work: _repeat(instance, work.step, _Look(head=work.head, window=window)), works
    )
    for work, result in zip(works, results, strict=True):
        if isinstance(result, PenstockError):
            instance.telemetry.log(work.failure, partition=str(work.key), error=str(result))


def _repeat(instance: Instance, step: _Step, look: _Look) -> None:
    """Takes steps until nothing is left to do. A step that storage refuses is taken again, with jitter."""
    failures = 0
    for _ in range(ROLL_PAGES_MAX + ROLL_ATTEMPTS_MAX):
        try:
            after = step(look)
        except PenstockError as error:
            failures += 1
            if error.code not in _RETRIED or failures == ROLL_ATTEMPTS_MAX:
                raise
            chance = int.from_bytes(instance.entropy.random_bytes(2), "big") / 2**16
            instance.clock.sleep_ms(full_jitter_ms(failures, _BACKOFF_MS, ROLL_BACKOFF_MS_MAX, chance))
            continue
        if after is None:
            return
        look = after


def _roll(instance: Instance, key: PartitionKey, look: _Look) -> _Look | None:
    """Rolls one page."""
    log = instance.stores.log
    page = None if look.head is None else next_page(look.head)
    if page is None:
        return None
    if look.window.age_ms > PAGE_PUT_MS_MAX:
        # The page may have been merged or deleted since, by a retention that counts on this (remove_topic.py).
        return _look(instance, key)
    stored = log.put_page(key, page)
    if stored is not None and stored != page:
        stored = _with_bits(instance, key, stored, page)
    if stored is None:
        return _look_past(instance, key, page)
    window = UpdateWindow.open(instance.clock)
    is_done, head = log.shorten_tail(key, stored)
    if not is_done and head is not None and head.tail_base != page.base_offset:
        return None  # another roller is at work
    return _Look(head=head, window=window)


def _with_bits(instance: Instance, key: PartitionKey, stored: Page, page: Page) -> Page | None:
    """The stored page with the bits of both, which it has now; None if it is another page, or was changed meanwhile."""
    both = with_bits_of(stored, page)
    if both is None or both == stored:
        return both
    return both if instance.stores.log.replace_page(key, stored, both) else None


def _look_past(instance: Instance, key: PartitionKey, page: Page) -> _Look | None:
    """A new look, after something else than `page` was found under its key, or a bit of it was set meanwhile.

    The tail has moved on, as a rule. If it has not, and the key holds something else, the index is damaged: no roll of
    this tail can succeed, and an operator must be told.
    """
    look = _look(instance, key)
    if look.head is not None and look.head.tail_base == page.base_offset:
        found = instance.stores.log.pages(key, page.base_offset, 1)
        if not found or with_bits_of(found[0], page) is None:
            instance.telemetry.log("roll_blocked", partition=str(key), base_offset=page.base_offset)
            return None
    return look


class _Eviction:
    """Evictions from one head. It remembers which producers have items of their own already."""

    def __init__(self, instance: Instance, key: PartitionKey) -> None:
        self._instance = instance
        self.key = key
        self._has_put: set[tuple[int, ProducerState]] = set()

    def put(self, producer_id: int, state: ProducerState) -> None:
        """Puts the producer's own item."""
        self._instance.stores.log.put_evicted(self.key, producer_id, state, self._instance.clock.now_ms())
        self._has_put.add((producer_id, state))

    def step(self, look: _Look) -> _Look | None:
        """Evicts one chunk of producers."""
        leaving = {} if look.head is None else producers_to_evict(look.head)
        if not leaving:
            return None
        for each in leaving.items():
            if each not in self._has_put:
                self.put(*each)
        window = UpdateWindow.open(self._instance.clock)
        is_done, head = self._instance.stores.log.remove_producers(self.key, leaving)
        if not is_done and head is not None and not set(leaving) <= set(head.producers):
            return None  # another evictor is at work
        return _Look(head=head, window=window)


def _look(instance: Instance, key: PartitionKey) -> _Look:
    window = UpdateWindow.open(instance.clock)
    return _Look(head=instance.stores.log.heads([key]).get(key), window=window)
