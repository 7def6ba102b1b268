"""RepairQueue on SQS."""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.repair import Repair, encode_repair


class NoRepairQueue:
    """RepairQueue of a stage with one zone. A segment there has one copy, and no other to repair it from."""

    def send(self, repair: Repair) -> None:
        pass


class SqsRepairQueue:
    """RepairQueue: the port documents its method. Asks for its client at a message, because few instances send one."""

    def __init__(self, client: Callable[[], Any], url: str) -> None:
        self._client = client
        self._url = url

    def send(self, repair: Repair) -> None:
        try:
            self._client().send_message(QueueUrl=self._url, MessageBody=encode_repair(repair))
        except (ClientError, BotoCoreError) as error:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"SQS did not take the repair of segment {repair.segment_id.hex()}: {error}",
                maybe_applied=True,
            ) from error
