"""What the service told its clients, to be held against the truth at the end.

A value's copies are bounded by what its producer was told: an attempt that was reported as failed and not applied
counts none, one that may have been applied at most one, an acknowledged one exactly one, at the acknowledged offset.
"""

from dataclasses import dataclass, field

from penstock_core.quorum import Acks


@dataclass(slots=True)
class SentValue:
    """All that is known of one record from its producer's side."""

    topic: str
    partition: int
    acks: Acks
    is_idempotent: bool = False
    maybe: int = 0  # attempts that may have been applied
    acked: list[int] = field(default_factory=list)  # offsets
    acked_after_ms: float = 0.0  # when the request that was acknowledged began


@dataclass(frozen=True, slots=True)
class CommitClaim:
    """A commit: begun, ended, and whether it was confirmed (else it may have been applied, or may still be)."""

    offset: int
    began_ms: float
    ended_ms: float
    is_confirmed: bool


class Claims:
    """What the clients of one run were told."""

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
        """An operator is about to ask for this log start."""
        self.truncations[where] = max(self.truncations.get(where, 0), offset)

    def allowed_commits(self, where: tuple[str, str, int], late_ms: float) -> set[int] | None:
        """The offsets that may stand as committed now; None stands for "anything", an empty set for "nothing".

        The newest confirmed commit, or any that nobody can exclude: one that was not confirmed may take effect until
        `late_ms` after it was given up. Commits from before the topic last changed do not count.
        """
        changes = self.topic_changes.get(where[1], [])
        since_ms = max((ended for _, ended in changes), default=-1.0)
        claims = [claim for claim in self.commits.get(where, ()) if claim.began_ms >= since_ms]
        confirmed = [claim for claim in claims if claim.is_confirmed]
        if not confirmed:
            return None
        newest = confirmed[-1]
        return {newest.offset} | {
            claim.offset for claim in claims if not claim.is_confirmed and claim.ended_ms + late_ms >= newest.began_ms
        }
