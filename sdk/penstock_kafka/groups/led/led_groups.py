"""The led groups of this gateway, and the answers of the classic protocol about them.

A member id says by its ending that its group is led: Heartbeat and LeaveGroup name nothing else by which to tell.
"""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from penstock_core.ids import parse_group_name
from penstock_core.limits import (
    CLIENT_ID_LENGTH_MAX,
    KAFKA_LED_GROUPS_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
)
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.led.board import LedBoard
from penstock_kafka.groups.led.led_codec import Documents, decoded
from penstock_kafka.groups.led.led_group import LedGroup, LedMember, metadata_of

_ENDING = "-led"


def is_led(member_id: str) -> bool:
    """True if a gateway has made this id for a member of a led group."""
    return member_id.endswith(_ENDING)


def led_member_id(member_id: str) -> str:
    """An id from which `is_led` tells."""
    return member_id + _ENDING


class LedGroups:
    """`start` runs a task that outlives a request. `gateway` is this process's name among gateways."""

    def __init__(
        self, documents: Documents, gateway: str, start: Callable[[Coroutine[Any, Any, None], str], object]
    ) -> None:
        self._documents = documents
        self._gateway = gateway
        self._start = start
        self._boards: dict[str, LedBoard] = {}

    async def join(self, call: Call, member_id: str) -> Answer:
        """JoinGroup of a member with this id. Its leader hears of all members. Raises RequestRefused, PenstockError."""
        request = call.request
        if getattr(request, "group_instance_id", None) is not None:
            raise RequestRefused(
                KafkaError.invalid_request, "group.instance.id: a group whose leader assigns has no static members"
            )
        if not is_led(member_id):
            raise RequestRefused(KafkaError.unknown_member_id, f"no gateway has made the id {member_id:.200}")
        protocols = tuple((str(each.name), bytes(each.metadata)) for each in request.protocols)
        wish = LedMember(
            member_id=member_id,
            client_id=call.client_id[:CLIENT_ID_LENGTH_MAX],
            session_ms=_bounded_ms(request.session_timeout),
            rebalance_ms=_bounded_ms(getattr(request, "rebalance_timeout", request.session_timeout)),
            protocols=protocols,
            gateway=self._gateway,
        )
        kind = str(request.protocol_type)
        group = await self.board(str(request.group_id)).join(wish, kind, call.peer.gone)
        members = group.members.values() if member_id == group.leader else ()
        return {
            "error_code": KafkaError.none,
            "generation_id": group.generation,
            "protocol_type": kind,
            "protocol_name": group.protocol,
            "leader": group.leader,
            "member_id": member_id,
            "members": [
                {"member_id": each.member_id, "group_instance_id": None, "metadata": metadata_of(each, group.protocol)}
                for each in members
            ],
        }

    async def sync(self, call: Call) -> Answer:
        """SyncGroup: the leader's, with all assignments, or that of a member that waits for its own."""
        request = call.request
        assignments = {str(each.member_id): bytes(each.assignment) for each in request.assignments}
        board = self.board(str(request.group_id))
        group, assignment = await board.sync(str(request.member_id), request.generation_id, assignments, call.peer.gone)
        return {
            "error_code": KafkaError.none,
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol,
            "assignment": assignment,
        }

    async def beat(self, call: Call) -> KafkaError:
        """Heartbeat. Raises RequestRefused, PenstockError."""
        request = call.request
        return await self.board(str(request.group_id)).beat(str(request.member_id), request.generation_id)

    async def leave(self, group: str, member_id: str) -> None:
        """LeaveGroup of one member. Raises RequestRefused, PenstockError."""
        await self.board(group).leave(member_id)

    async def describe(self, group: str) -> LedGroup:
        """The group as it is now. Its members are watched from now on, so that the dead ones go. Raises PenstockError.

        One read. A group without members gets no watch: it may be one of consumers.
        """
        found = await self._documents.read(group)
        described = LedGroup(protocol_type="") if found is None or found.data is None else decoded(found.data)
        if described.members:
            self.board(group)
        return described

    def board(self, group: str) -> LedBoard:
        """The group's board. Raises INVALID_NAME, and RequestRefused if there are too many."""
        parse_group_name(group)
        found = self._boards.get(group)
        if found is None:
            if len(self._boards) >= KAFKA_LED_GROUPS_MAX:
                raise RequestRefused(
                    KafkaError.coordinator_not_available, f"the gateway has {KAFKA_LED_GROUPS_MAX} such groups"
                )
            found = self._boards[group] = LedBoard(group, self._gateway, self._documents)
            self._start(self._watched(found), f"watch over group {group}")
        return found

    async def _watched(self, board: LedBoard) -> None:
        try:
            await board.watch()
        finally:
            self._boards.pop(board.name, None)


def _bounded_ms(time: timedelta) -> int:
    asked_ms = int(time.total_seconds() * 1_000)
    return max(SESSION_TIMEOUT_MS_MIN, min(asked_ms, SESSION_TIMEOUT_MS_MAX))
