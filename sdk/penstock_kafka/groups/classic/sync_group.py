"""SyncGroup of the classic protocol: the assignment that the service made, under the generation of the last join."""

from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.classic.consumer_protocol import write_assignment
from penstock_kafka.groups.classic.join_group import PROTOCOL_TYPE
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.led.led_groups import LedGroups, is_led
from penstock_kafka.groups.members.member_ids import service_id
from penstock_kafka.groups.members.sessions import Sessions


class SyncGroup:
    """Answers SyncGroup. For consumers it calls nothing: JoinGroup has done the work."""

    def __init__(self, sessions: Sessions, led: LedGroups) -> None:
        self._sessions = sessions
        self._led = led

    async def answer(self, call: Call) -> Answer:
        """The member's partitions. A client that joined at another gateway joins again."""
        request = call.request
        if is_led(str(request.member_id)):
            return await self._sync_led(call)
        try:
            member = self._sessions.book.find(str(request.group_id), service_id(str(request.member_id)))
        except RequestRefused as error:
            return _refused(error.code)
        if member is None or member.is_untold:
            return _refused(KafkaError.rebalance_in_progress)
        if request.generation_id != member.generation:
            return _refused(KafkaError.illegal_generation)
        return {
            "error_code": KafkaError.none,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": member.protocol,
            "assignment": write_assignment(member.told),
        }

    async def _sync_led(self, call: Call) -> Answer:
        try:
            return await self._led.sync(call)
        except (PenstockError, RequestRefused) as error:
            return _refused(group_error(error))


def _refused(code: KafkaError) -> Answer:
    return {"error_code": code, "assignment": b""}
