"""The members that this gateway serves. It may forget one at any time: the service knows enough to go on with it."""

from collections import OrderedDict

from penstock_kafka.groups.members.member import KafkaMember, MemberNames

_MEMBERS_MAX = 10_000


class MemberBook:
    """Members by group and member id, `_MEMBERS_MAX` at most."""

    def __init__(self) -> None:
        self._members: OrderedDict[tuple[str, str], KafkaMember] = OrderedDict()

    def find(self, group: str, member_id: str) -> KafkaMember | None:
        """The member, if the gateway serves it."""
        member = self._members.get((group, member_id))
        if member is not None:
            self._members.move_to_end((group, member_id))
        return member

    def remember(self, member: KafkaMember) -> None:
        """Serve this member, in place of one of the same id."""
        self._members[member.names.group, member.names.member_id] = member
        while len(self._members) > _MEMBERS_MAX:
            self._members.popitem(last=False)

    def forget(self, member: KafkaMember) -> None:
        """Serve it no more. Another object of the same id stays."""
        key = (member.names.group, member.names.member_id)
        if self._members.get(key) is member:
            del self._members[key]

    def twin_of(self, names: MemberNames) -> KafkaMember | None:
        """The member of the same instance and another id, None without an instance."""
        twins = (
            member
            for (name, _), member in self._members.items()
            if name == names.group and member.names.instance_id == names.instance_id
        )
        found = (each for each in twins if each.names.member_id != names.member_id)
        return None if names.instance_id is None else next(found, None)

    def is_idle(self, group: str) -> bool:
        """True if this gateway serves no client of the group that was told an assignment."""
        return all(name != group or member.generation < 0 for (name, _), member in self._members.items())

    def hurry(self, group: str, but: KafkaMember) -> None:
        """Let the other members of the group ask the service with their next heartbeat: something has changed."""
        for (name, _), member in self._members.items():
            if name == group and member is not but:
                member.due_ms = 0
