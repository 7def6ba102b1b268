"""What starts promotions: the message of one second of a partition, and the event of a stage's first run.

The message is `{"partition": "<topic id>#<n>", "due_s": n}`, the event `{"goes_on": true}`.
"""

import json

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_partition_key
from penstock_core.log.timer import DueSecond

FIRST_RUN = {"goes_on": True}


def encode_due_second(second: DueSecond) -> str:
    """The message above."""
    return json.dumps({"partition": str(second.key), "due_s": second.second})


def decode_due_second(text: str) -> DueSecond:
    """The inverse of `encode_due_second`. Raises INVALID_REQUEST for any other text."""
    try:
        fields = json.loads(text)
        return DueSecond(int(fields["due_s"]), parse_partition_key(fields["partition"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{text!r:.200} is no message about timers: see timer_message.py"
        ) from error
