"""TimerTriggers on SQS and EventBridge, and the pollers that Lambda keeps on the queue."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.log.timer import FIRST_RUN, DueSecond, encode_due_second
from penstock_core.storage.keys import KeyLayout
from penstock_service.adapters.sqs import AwsCalls
from penstock_service.ports.segments import ListedKeys, SegmentStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerPlaces:
    """The queue of messages, by URL and ARN, and the rule that runs each minute, by name.

    `function` is the one that the rule runs. It is empty where the triggers are always on, so that no run bridges them.
    """

    queue_url: str
    rule: str
    queue_arn: str
    function: str


def parse_timer_places(text: str | None) -> TimerPlaces | None:
    """The places of `<queue's URL>,<rule>,<queue's ARN>,<function>`, None for no text.

    The function may be missing behind its comma. Raises ValueError for anything else.
    """
    if not text:
        return None
    parts = text.split(",")
    if len(parts) != 4 or not all(parts[:3]):
        raise ValueError(f"{text!r} does not name the triggers of timers: give QUEUE_URL,RULE,QUEUE_ARN,FUNCTION")
    return TimerPlaces(queue_url=parts[0], rule=parts[1], queue_arn=parts[2], function=parts[3])


class AwsTimerTriggers:
    """TimerTriggers: the port documents its methods. Makes a client when it first needs it."""

    def __init__(self, places: TimerPlaces, client: Callable[[str], Any]) -> None:
        self._places = places
        self._aws = AwsCalls(client)

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        body, delay_s = encode_due_second(second), -(-delay_ms // 1_000)
        self._aws.call("sqs", "send_message", QueueUrl=self._places.queue_url, MessageBody=body, DelaySeconds=delay_s)

    def switch_on(self) -> None:
        self._aws.enable_rule(self._places.rule)

    def run_at_once(self) -> None:
        if self._places.function:
            payload = json.dumps(FIRST_RUN).encode()
            self._aws.call(
                "lambda", "invoke", FunctionName=self._places.function, InvocationType="Event", Payload=payload
            )

    def open_queue(self) -> None:
        self._aws.open_queue(self._places.queue_arn)


class ByHourSegmentStore:
    """SegmentStore over two of the same bucket: `current` by the keys of this release, `earlier` by the old ones.

    It stores, lists and deletes by the keys of this release only. A read that finds no such key asks for the old one:
    one get more for a segment that the zone lacks, and none for a segment that it holds. The sweep removes what has old
    keys by `earlier` (docs/adr/0037).
    """

    def __init__(self, current: SegmentStore, earlier: SegmentStore) -> None:
        self.current = current
        self._earlier = earlier

    @property
    def zone(self) -> ZoneName:
        return self.current.zone

    @property
    def layout(self) -> KeyLayout:
        return self.current.layout

    @property
    def earlier(self) -> SegmentStore:
        return self._earlier

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self.current.put(segment_id, body, crc32c)

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        try:
            return self.current.get(segment_id, position, length)
        except PenstockError as error:
            if not error.facts.get("is_missing"):
                raise
        return self._earlier.get(segment_id, position, length)

    def get_whole(self, segment_id: SegmentId) -> bytes | None:
        found = self.current.get_whole(segment_id)
        return self._earlier.get_whole(segment_id) if found is None else found

    def overwrite(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self.current.overwrite(segment_id, body, crc32c)

    def list_folders(self) -> Sequence[str]:
        return self.current.list_folders()

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        return self.current.list_keys(prefix, token)

    def delete(self, segment_ids: Sequence[SegmentId]) -> None:
        self.current.delete(segment_ids)
