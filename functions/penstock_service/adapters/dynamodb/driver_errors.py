"""What drivers of DynamoDB and S3 raise: botocore's clients behind `botocore_driver`, direct ones, tables in memory.

| error            | the call                                                                          |
|------------------|-----------------------------------------------------------------------------------|
| `NeverSentError` | did not leave this machine: nothing was applied                                   |
| `NoAnswerError`  | has no answer, or a damaged one: it may have been applied                         |
| `AnsweredError`  | was answered with an error; from status 500 on it may have been applied           |
"""

from collections.abc import Mapping, Sequence
from typing import Any


class DriverError(Exception):
    """A call that failed, as the driver saw it."""


class NeverSentError(DriverError):
    """No connection came about."""


class NoAnswerError(DriverError):
    """The connection broke, timed out, or brought an answer that cannot be read."""


class AnsweredError(DriverError):
    """The service's own error.

    `code` is its name, such as `ConditionalCheckFailedException`. `item` is the stored item of a failed condition, if
    the call asked for it. `reasons` are a cancelled transaction's, each with `Code`, and `Message` and `Item` if there
    are some. `text` is the error's own; without it, code and message.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        text: str = "",
        status: int = 400,
        item: Mapping[str, Any] | None = None,
        reasons: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(text or (f"{code}: {message}" if message else code))
        self.code = code
        self.status = status
        self.item = item
        self.reasons = reasons
