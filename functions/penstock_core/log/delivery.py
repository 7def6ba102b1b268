"""Delivery: the change that one transaction of a promotion makes to a partition's index (docs/adr/0039). Pure.

```
 plain     head: tail + refs                       whatever the tail is
 rolling   head: tail + refs - pages, put pages    if the tail is as the promoter has seen it
```
A rolling delivery writes its refs into pages at once. Its pages are those that rolls would make, because a tail base
has one possible page. So it costs one head of few refs, where a plain one costs a long head and a roll for each page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock_core.ids import PartitionKey
from penstock_core.limits import TRANSACTION_ACTIONS_MAX
from penstock_core.log.index import Head, Page, appended
from penstock_core.log.ref import Ref
from penstock_core.log.roll import next_page, shortened
from penstock_core.log.timer import Timer, delivered_ref


class DeliveryOutcome(Enum):
    """The result of one transaction: all of it was applied, or nothing.

    SETTLED: one of the timers waits no more. MOVED: the timers wait, and the tail is not the one that the promoter has
    seen, or a page is there already.
    """

    DONE = "done"
    SETTLED = "settled"
    MOVED = "moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRoll:
    """The pages of a rolling delivery. `before` has the tail that the transaction must meet, `after` the new one."""

    before: Head
    pages: Sequence[Page]
    after: Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Timers of one partition, in order, that are delivered at `now_ms`: plain, or with a `roll`."""

    key: PartitionKey
    timers: Sequence[Timer]
    now_ms: int
    roll: HeadRoll | None = None

    @property
    def refs(self) -> list[Ref]:
        """The refs that the head gets."""
        return [delivered_ref(timer, self.now_ms) for timer in self.timers]

    @property
    def actions(self) -> int:
        """The number of actions in the transaction: the head, the pages and the timers."""
        return 1 + (0 if self.roll is None else len(self.roll.pages)) + len(self.timers)


def rolling(delivery: Delivery, head: Head) -> Delivery:
    """The delivery with the pages that it fills if `head` is unchanged, or plain if they are none or too many."""
    after = head
    for ref in delivery.refs:
        after = appended(after, ref)
    pages: list[Page] = []
    while (page := next_page(after)) is not None and (shorter := shortened(after, page)) is not None:
        pages.append(page)
        after = shorter
    rolled = Delivery(
        key=delivery.key,
        timers=delivery.timers,
        now_ms=delivery.now_ms,
        roll=HeadRoll(before=head, pages=pages, after=after),
    )
    return rolled if pages and rolled.actions <= TRANSACTION_ACTIONS_MAX else delivery
