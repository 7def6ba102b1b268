"""Member ids as Kafka's clients draw them, and as the service takes them: with no letters but those of names.

librdkafka's ids are base64 with `+` and `/`. Each letter that a name cannot have becomes a dot and its two hexadecimal
digits, and a dot too. So two ids stay two.
"""

import re

from penstock_core.limits import MEMBER_ID_LENGTH_MAX
from penstock_kafka.errors import KafkaError, RequestRefused

_OTHER = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(r"\.([0-9a-f]{2})")


def service_id(member_id: str) -> str:
    """The service's name of the member. Raises RequestRefused for an id that is too long."""
    escaped = _OTHER.sub(lambda found: b".%02x" % found[0][0], member_id.encode()).decode()
    if len(escaped) > MEMBER_ID_LENGTH_MAX:
        raise RequestRefused(
            KafkaError.unknown_member_id, f"a member id of {len(escaped)} letters: {MEMBER_ID_LENGTH_MAX} at most"
        )
    return escaped


def kafka_id(member_id: str) -> str:
    """The client's name of the member. A member of another kind of client has its own."""
    found = _ESCAPED.sub(lambda digits: chr(int(digits[1], 16)), member_id).encode("latin-1", "replace")
    try:
        return found.decode()
    except UnicodeDecodeError:
        return member_id
