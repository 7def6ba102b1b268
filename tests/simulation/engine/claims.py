"""The service's answers to its clients. The verdict compares them with the log at the end.

The answers to a producer bound the copies of a value. An attempt that was reported as failed and not applied leaves
none. An attempt that may have been applied leaves one at most. An acknowledged attempt leaves exactly one, at the
acknowledged offset.
"""

from dataclasses import dataclass, field

from penstock_core.zones.zone_state import Acks


@dataclass(slots=True)
class SentValue:
    """One record, with all facts that its producer knows of it."""

    topic: str
    partition: int
    acks: Acks
    is_idempotent: bool = False
    maybe: int = 0  # attempts that may have been applied
    acked: list[int] = field(default_factory=list)  # offsets
    acked_after_ms: float = 0.0  # when the acknowledged request began


@dataclass(frozen=True, slots=True)
class CommitClaim:
    """A commit: its begin, its end, and whether it was confirmed. Otherwise it may be applied already, or later."""

    offset: int
    began_ms: float
    ended_ms: float
    is_confirmed: bool


class Claims:
    """The answers that the clients of one run got."""

    def __init__(self) -> None:
        self.sent: dict[str, SentValue] = {}
        self.commits: dict[tuple[str, str, int], list[CommitClaim]] = {}
        self.topic_changes: dict[str, list[tuple[float, float]]] = {}  # deletions and creations: began, ended
        self.acked_ends: dict[tuple[str, int], int] = {}
        self.truncations: dict[tuple[str, int], int] = {}  # the highest offset that an operator asked for

    def acknowledge(self, value: str, offset: int, began_ms: float) -> None:
        sent = self.sent[value]
        sent.acked.append(offset)
        sent.acked_after_ms = began_ms
        where = (sent.topic, sent.partition)
        self.acked_ends[where] = max(self.acked_ends.get(where, 0), offset + 1)

    def truncating(self, where: tuple[str, int], offset: int) -> None:
        """Note the log start that an operator is about to ask for."""
        self.truncations[where] = max(self.truncations.get(where, 0), offset)

    def allowed_commits(self, where: tuple[str, str, int], late_ms: float) -> set[int] | None:
        """Return the offsets that may be committed now. None stands for any offset, an empty set for none.

        They are the newest confirmed commit, and each higher one that may have followed it: an unconfirmed commit may
        take effect until `late_ms` after its client gave up. A lower one that lands late changes nothing. Commits from
        before the topic last changed do not count.
        """
        changes = self.topic_changes.get(where[1], [])
        since_ms = max((ended for _, ended in changes), default=-1.0)
        claims = [claim for claim in self.commits.get(where, ()) if claim.began_ms >= since_ms]
        confirmed = [claim for claim in claims if claim.is_confirmed]
        if not confirmed:
            return None
        newest = confirmed[-1]
        return {newest.offset} | {
            claim.offset
            for claim in claims
            if not claim.is_confirmed and claim.offset > newest.offset and claim.ended_ms + late_ms >= newest.began_ms
        }
