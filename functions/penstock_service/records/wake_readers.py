"""Wake the readers that wait for what an append has added (docs/adr/0025).

An append that takes a waiter out of a head sends a wake-up. So does one whose answer was lost, and a repeat: they do
not know whether the first try has sent it.

```
 append took a waiter          ──▶ wake-up with the new next offset
 append may have been applied  ──▶ wake-up without an offset
 append repeats an earlier one ──▶ wake-up with the end of its records
 transaction                   ──▶ the read of the heads after it shows who waits
```
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import WAKE_UP_MS_MAX
from penstock_core.log.index import Head
from penstock_core.log.wake_up import WakeUp, WakeUpMessage, messages
from penstock_core.outcomes import Outcome
from penstock_service.instance.instance import Instance
from penstock_service.records.append_in_sequence import AppendOutcome

_LANE = "wake-ups"
_WORK_LANE = "beside wake-ups"


def wake_ups_after(keys: Sequence[PartitionKey], outcomes: Iterable[Outcome[AppendOutcome]]) -> list[WakeUp]:
    """The wake-ups that appends to these partitions owe, by their outcomes in the same order."""
    wake_ups = []
    for key, outcome in zip(keys, outcomes, strict=True):
        if isinstance(outcome, PenstockError):
            if outcome.maybe_applied:
                wake_ups.append(WakeUp(key=key, next_offset=None))
        elif outcome.must_wake:
            wake_ups.append(WakeUp(key=key, next_offset=outcome.next_offset))
    return wake_ups


def wake_ups_of_heads(heads: Mapping[PartitionKey, Head]) -> list[WakeUp]:
    """The wake-ups for readers that wait on these heads, which a transaction has appended to."""
    return [WakeUp(key=key, next_offset=head.next_offset) for key, head in heads.items() if head.waiter_ms is not None]


def wake_blindly(instance: Instance, keys: Iterable[PartitionKey]) -> None:
    """Wake the readers of partitions that may have been appended to. Costs what `wake_beside` costs."""
    wake_beside(instance, [WakeUp(key=key, next_offset=None) for key in keys], lambda: None)


def wake_beside(instance: Instance, wake_ups: Sequence[WakeUp], work: Callable[[], None]) -> None:
    """Do the `work`, and send the wake-ups at the same time. After the work, wait `WAKE_UP_MS_MAX` for them at most.

    One call for each message, none without wake-ups or where the stage has none. Failures are counted. A call that goes
    on in the background ends by its own timeout.
    """
    send_beside(instance, messages(wake_ups), work)


def send_beside(instance: Instance, sent: Sequence[WakeUpMessage], work: Callable[[], None]) -> None:
    """Do the `work`, and send the messages at the same time, as `wake_beside` does."""
    if not sent or instance.stores.wake_ups.place is None:
        work()
        return

    def run(message: WakeUpMessage | None) -> bool:
        if message is None:
            work()
        else:
            instance.stores.wake_ups.publish(message)
        return True

    done, *results = instance.executor.first_of(
        run,
        [None, *sent],
        lambda results: results[0] is not None,
        WAKE_UP_MS_MAX,
        lanes=[_WORK_LANE, *(_LANE for _ in sent)],
    )
    if isinstance(done, PenstockError):
        raise done
    for message, result in zip(sent, results, strict=True):
        if result is None or isinstance(result, PenstockError):
            why = f"no answer within {WAKE_UP_MS_MAX} ms" if result is None else str(result)
            instance.telemetry.log("wake_ups_failed", channel=message.channel, error=why)
