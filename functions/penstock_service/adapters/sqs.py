"""RepairQueue on SQS."""

import threading
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
    """RepairQueue: the port documents its method. Makes its client at the first message, as few instances send one."""

    def __init__(self, make_client: Callable[[], Any], url: str) -> None:
        self._make_client = make_client
        self._url = url
        self._lock = threading.Lock()
        self._client: Any = None

    def send(self, repair: Repair) -> None:
        try:
            self._made().send_message(QueueUrl=self._url, MessageBody=encode_repair(repair))
        except (ClientError, BotoCoreError) as error:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"SQS did not take the repair of segment {repair.segment_id.hex()}: {error}",
                maybe_applied=True,
            ) from error

    def _made(self) -> Any:
        with self._lock:  # boto3 does not make clients safely in several threads
            if self._client is None:
                self._client = self._make_client()
            return self._client
