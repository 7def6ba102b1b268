"""The run of each minute that measures consumers and chooses topics."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from penstock_core.errors import PenstockError
from penstock_core.metrics.consumer_lag import Consumer, ConsumerLag
from penstock_core.metrics.lag_memory import decode_memory, encode_memory, published, without_gone
from penstock_service.instance.instance import Instance
from penstock_service.metrics.consumer_lags import consumer_lags
from penstock_service.metrics.rank_topics import rank_topics

_JOB = "measure"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureWish:
    """The most topics and consumers that have series of their own, and the consumers that always have one.

    With `topics_only`, no consumer is measured.
    """

    topics_max: int
    consumers_max: int
    always: Collection[Consumer] = ()
    topics_only: bool = False


@dataclass(slots=True, kw_only=True)
class Measurement:
    """The lags to publish, and the counts of one run."""

    lags: Sequence[ConsumerLag] = field(default_factory=list)
    consumers: int = 0
    has_ranked: bool = False
    failures: int = 0
    is_finished: bool = True


def measure(instance: Instance, wish: MeasureWish, *, budget_ms: float) -> Measurement:
    """Measures for `budget_ms` at most. The next run goes on where this one stopped.

    Costs what `rank_topics` and `consumer_lags` cost, one read, and a put where the memory has changed. A failure to
    rank leaves the topics as they are.
    """
    done = Measurement()
    try:
        done.has_ranked = rank_topics(instance, wish.topics_max)
    except PenstockError as error:
        done.failures += 1
        instance.telemetry.log("topics_not_ranked", error=str(error))
    if wish.topics_only:
        return done
    text = instance.stores.cursors.get(_JOB)
    memory = decode_memory(text)
    run = consumer_lags(instance, memory.after, budget_ms)
    if not (memory.after or run.after or run.failures):
        memory = without_gone(memory, run.lags)
    memory = replace(memory, after=run.after)
    done.lags, memory = published(memory, run.lags, wish.always, wish.consumers_max, instance.clock.now_ms())
    done.consumers, done.is_finished = len(run.lags), not run.after
    done.failures += run.failures
    if memory.zeros or run.after:
        new = encode_memory(memory)
        if new != text:
            instance.stores.cursors.put(_JOB, new)
    elif text is not None:
        instance.stores.cursors.clear(_JOB)
    return done
