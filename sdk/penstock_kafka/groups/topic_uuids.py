"""Topic ids as Kafka's clients see them."""

from penstock_kafka.dispatch.api import Uuid

_UUID_DIGITS = 32


def uuid_of_id(topic_id: str) -> Uuid:
    """Penstock's 80 bits, and zeros, as Metadata tells the topic's id."""
    return Uuid(hex=topic_id.ljust(_UUID_DIGITS, "0"))
