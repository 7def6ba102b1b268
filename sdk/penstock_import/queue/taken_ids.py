"""The memory of messages that were taken: SQS may hand each of them out again.

A note of their ids commits in one transaction with their records. The memory is bounded: a message that comes again
after so many others is taken for a new one, and its header `sqs-message-id` tells it apart.
"""

import json
from collections.abc import Iterable

from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode
from penstock_core.limits import IMPORT_MESSAGE_IDS_KEPT

_VERSION = 1


class TakenIds:
    """The latest ids, the oldest first."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ids: Iterable[str]) -> None:
        """Remember them, and forget the oldest beyond the bound."""
        for each in ids:
            self._ids.pop(each, None)
            self._ids[each] = None
        while len(self._ids) > IMPORT_MESSAGE_IDS_KEPT:
            del self._ids[next(iter(self._ids))]


def encode_ids(ids: Iterable[str]) -> bytes:
    """The note of ids."""
    return json.dumps({"v": _VERSION, "ids": list(ids)}, separators=(",", ":")).encode()


def decode_ids(value: bytes) -> list[str]:
    """The ids of a note. Raises InvalidError for bytes that are none, or of a later release."""
    try:
        found = json.loads(value)
        if found["v"] == _VERSION:
            return [str(each) for each in found["ids"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidError(
            ErrorCode.UNSUPPORTED_FORMAT, f"the progress topic has a record that is no note: {value[:100]!r}"
        ) from error
    raise InvalidError(
        ErrorCode.UNSUPPORTED_FORMAT,
        f"a note of version {found['v']!r:.20}: a later release has written it; use that",
    )
