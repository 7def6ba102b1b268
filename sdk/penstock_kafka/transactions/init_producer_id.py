"""InitProducerId: ids of producers that number their records.

An id is 63 random bits, as the SDK's producers draw them: no state is kept of a producer before its first batch. After
an error a producer asks for another epoch of its id, and gets the next number.
"""

from penstock.system import choose
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError

_IDS = 2**63
_EPOCH_MAX = 2**15 - 2  # Kafka's epochs have 15 bits
_NONE = -1


class InitProducerId:
    """Gives ids to idempotent producers. Transactional ones are refused."""

    async def answer(self, call: Call) -> Answer:
        """An id and an epoch."""
        request = call.request
        if request.transactional_id is not None:
            return {
                "error_code": KafkaError.transactional_id_authorization_failed,
                "producer_id": _NONE,
                "producer_epoch": _NONE,
            }
        producer_id = getattr(request, "producer_id", _NONE)
        epoch = getattr(request, "producer_epoch", _NONE)
        if producer_id >= 0 and 0 <= epoch < _EPOCH_MAX:
            return {"error_code": KafkaError.none, "producer_id": producer_id, "producer_epoch": epoch + 1}
        return {"error_code": KafkaError.none, "producer_id": choose(_IDS), "producer_epoch": 0}
