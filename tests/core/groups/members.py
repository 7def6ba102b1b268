"""A member of a group, for the tests of what its heartbeats and its leases may do."""

from penstock_core.groups.group import Member, Subscription
from penstock_core.ids import MemberName

OTHER = MemberName("other")
MEMBER = Member(
    name=OTHER,
    member_id="other",
    subscription=Subscription(topics=("a",)),
    sequence=5,
    session=2,
    deadline_ms=100,
    joined_at_ms=1,
)
