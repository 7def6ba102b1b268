"""The lists of the overview and of their own pages: as they are now, or as they were when the service takes long.

The first call of each function of an unused service takes a second or more. Pages do not wait for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.admin.admin import Admin
from penstock.console.background import Background, Look
from penstock.http.transport import Transport
from penstock.model import Topic, Zone
from penstock.model.groups import Group
from penstock.model.push import Subscription
from penstock.model.share import ShareGroup
from penstock.system import monotonic_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The resources that the service has."""

    zones: Look[Sequence[Zone]]
    topics: Look[Sequence[Topic]]
    groups: Look[Sequence[Group]]
    share_groups: Look[Sequence[ShareGroup]]
    subscriptions: Look[Sequence[Subscription]]

    @property
    def looks(self) -> Sequence[Look[Sequence[object]]]:
        """All of them."""
        return (self.zones, self.topics, self.groups, self.share_groups, self.subscriptions)


class Lists:
    """Reads the lists of one service, each with its own request and thread."""

    def __init__(self, transport: Transport) -> None:
        admin = Admin(transport=transport)
        self._zones: Background[Sequence[Zone]] = Background(admin.list_zones)
        self.topics: Background[Sequence[Topic]] = Background(admin.list_topics)
        self.groups: Background[Sequence[Group]] = Background(admin.list_groups)
        self.share_groups: Background[Sequence[ShareGroup]] = Background(admin.list_share_groups)
        self.subscriptions: Background[Sequence[Subscription]] = Background(admin.list_subscriptions)

    def look(self, wait_ms: int) -> Listed:
        """Read all anew, for `wait_ms` at most; a list that takes longer is as it was before, or not known yet.

        Raises ServiceDownError if the service does not answer.
        """
        ends_ms = monotonic_ms() + wait_ms
        for each in (self._zones, self.topics, self.groups, self.share_groups, self.subscriptions):
            each.begin()

        def left_ms() -> int:
            return max(0, ends_ms - monotonic_ms())

        found = Listed(
            zones=self._zones.settled(left_ms()),
            topics=self.topics.settled(left_ms()),
            groups=self.groups.settled(left_ms()),
            share_groups=self.share_groups.settled(left_ms()),
            subscriptions=self.subscriptions.settled(left_ms()),
        )
        for look in found.looks:
            if look.down is not None:
                raise look.down
        return found
