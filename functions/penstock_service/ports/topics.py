"""The port of topics. `penstock_service.ports` says what all methods raise.

The ports of zone states and repairs. `penstock_service.ports` says what all methods raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock_core.ids import TopicId, TopicName
    from penstock_core.log.repair import Look, Repair
    from penstock_core.log.topic import DeletedTopic, Topic
    from penstock_core.zones.zone_state import CatchUpPass, ZoneStates


class TopicStore(Protocol):
    """Topics by name. Reads are consistent."""

    def begin(self, note: DeletedTopic) -> None:
        """Notes that the creation of a topic begins, before the first of its heads is made. One put."""

    def create(self, topic: Topic) -> None:
        """Makes the topic visible and removes the note of its creation, both or neither.

        Raises TOPIC_EXISTS if the name is taken, and CONCURRENT_UPDATE if the note is gone or was given up. One
        transaction, and one read if it is refused.
        """

    def give_up(self, note: DeletedTopic) -> bool:
        """Turns the note of a creation into the note of a deleted topic, so that the topic never becomes visible.

        False if the topic is visible, or its creation was given up before. One conditional update.
        """

    def get(self, name: TopicName) -> Topic | None:
        """The topic, or None if no topic has the name. One read."""

    def list(self) -> Sequence[Topic]:
        """All topics, sorted by name. A scan of the whole table, one call for each MB."""

    def page(self, after: str, limit: int, is_shown: Callable[[str], bool]) -> tuple[Sequence[Topic], bool]:
        """The first `limit` topics behind the name `after` that are shown, by name, and whether there are more.

        Costs what `list` costs, but parses these topics alone.
        """

    def count(self) -> int:
        """The number of all topics. A scan of the whole table, which answers their names alone."""

    def replace(self, old: Topic, new: Topic) -> None:
        """Stores `new` in place of `old`. Raises CONCURRENT_UPDATE if `old` is not stored any more.

        One conditional update.
        """

    def retire(self, old: Topic, new: Topic) -> None:
        """Takes the last partitions of `old` away, which drained: `new` has those that are left.

        It touches no setting. Raises CONCURRENT_UPDATE if the topic has other partitions by now, or another layout. One
        conditional update.
        """

    def open_generation(self, old: Topic) -> None:
        """Lets the generation that `old` opens take the records: then it is as `with_next_generation` says.

        It touches no setting. Raises CONCURRENT_UPDATE if the topic has other partitions by now, or another layout, or
        opens none. One conditional update.
        """

    def end_raise(self, topic: Topic) -> bool:
        """Removes the note of the topic's raise of the retention. False if a newer raise has come, or the topic went.

        It touches no setting. One conditional update.
        """

    def delete(self, topic: Topic, now_ms: int) -> None:
        """Removes the topic and leaves a note of its data, both or neither.

        Raises UNKNOWN_TOPIC if the name no longer stands for this topic id, and CONCURRENT_UPDATE if the topic has got
        partitions since, or is no longer the mirror that it was. One transaction, and one read if it is refused.
        """

    def deleted(self) -> Sequence[DeletedTopic]:
        """The notes of topics that were deleted or are being created, in no order. One query for each MB."""

    def note_heads_removed(self, topic_id: TopicId, now_ms: int) -> None:
        """Notes in the note of a deleted topic, if there is one, that none of its heads is left.

        An earlier time stays. One conditional update.
        """

    def forget_deleted(self, topic_id: TopicId) -> None:
        """Removes the note of a deleted topic, if there is one. One delete."""


class ZoneStateStore(Protocol):
    """The states of all zones, and the progress of the zones that catch up. Reads are consistent."""

    def get(self) -> ZoneStates:
        """The states of all zones. One read."""

    def change(self, old: ZoneStates, new: ZoneStates) -> None:
        """Stores `new` in place of `old`.

        Raises CONCURRENT_UPDATE unless the stored version is still the one of `old`. One conditional write.
        """

    def get_pass(self) -> CatchUpPass | None:
        """The pass over the index that is under way, or None. One read."""

    def save_pass(self, old: CatchUpPass | None, new: CatchUpPass) -> None:
        """Stores `new` in place of `old`, which is None before the first pass.

        Raises CONCURRENT_UPDATE unless the stored pass was saved as often as `old`. One conditional write.
        """


class RepairQueue(Protocol):
    """Messages that the function `replicate` carries out, at least once each and in no order."""

    def send(self, message: Repair | Look) -> None:
        """Sends a repair that is due now, or a look that is due in `REPAIR_DELAY_MS`. One call."""
