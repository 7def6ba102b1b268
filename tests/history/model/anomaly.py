"""The kinds of anomaly that the checker can find, and one anomaly."""

from dataclasses import dataclass
from enum import StrEnum

from tests.history.format import TopicPartition, Value


class Kind(StrEnum):
    """Kinds of anomaly, worst first; the names are those of Jepsen's Kafka workload where it has them.

    docs/contributing/anomalies.md defines each.
    """

    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    LOST_WRITE = "lost-write"
    ABORTED_READ = "aborted-read"
    UNWRITTEN_READ = "unwritten-read"
    PRECOMMITTED_READ = "precommitted-read"
    DUPLICATE = "duplicate"
    TORN_TRANSACTION = "torn-transaction"
    REPEATED_EFFECT = "repeated-effect"
    FINISHED_AGAIN = "finished-again"
    UNFINISHED = "unfinished"
    DEAD_LETTER_TWICE = "dead-letter-twice"
    WRONG_DEAD_LETTER = "wrong-dead-letter"
    TWO_LOCKS = "two-locks"
    KEY_OVERTAKEN = "key-overtaken"
    DELIVERY_COUNT = "delivery-count"
    WRONG_FILTER = "wrong-filter"
    UNHANDLED = "unhandled"
    COPIED_TWICE = "copied-twice"
    WRONG_COPY = "wrong-copy"
    HANDLED_LATE = "handled-late"
    HANDLED_AGAIN = "handled-again"
    HANDLED_AFTER_STOP = "handled-after-stop"
    HANDLED_BEFORE_START = "handled-before-start"
    UNDELIVERED = "undelivered"
    CANCELLED_DELIVERY = "cancelled-delivery"
    EARLY_DELIVERY = "early-delivery"
    DELAYED_ORDER = "delayed-order"
    TWO_OWNERS = "two-owners"
    GROUP_SKIP = "group-skip"
    COMMIT_BACK = "commit-back"
    WRONG_COMMITTED = "wrong-committed"
    OFFSET_GAP = "offset-gap"
    POLL_SKIP = "poll-skip"
    INT_POLL_SKIP = "int-poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One finding, and the facts that lead to it in the history.

    `lines` are completions that take part. The report adds operations that mention one of `offsets` or `values`.
    """

    kind: Kind
    where: TopicPartition
    text: str
    offsets: tuple[int, ...] = ()
    values: tuple[Value, ...] = ()
    lines: tuple[int, ...] = ()
