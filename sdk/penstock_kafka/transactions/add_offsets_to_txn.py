"""AddOffsetsToTxn: opens a transaction, and names a group whose offsets it commits."""

from penstock_core.errors import PenstockError
from penstock_core.ids import parse_group_name
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.transactions.epochs.producers import Producers
from penstock_kafka.transactions.refusals import code_for, refuse_if_gone


class AddOffsetsToTxn:
    """Answers AddOffsetsToTxn."""

    def __init__(self, producers: Producers) -> None:
        self._producers = producers

    async def answer(self, call: Call) -> Answer:
        """The outcome."""
        request = call.request
        epoch = (int(request.producer_id), int(request.producer_epoch))
        try:
            refuse_if_gone(call)
            group = parse_group_name(str(request.group_id))
            await self._producers.find(str(request.transactional_id), epoch).add_group(group)
        except (PenstockError, RequestRefused) as error:
            return {"error_code": code_for(error, call)}
        return {"error_code": KafkaError.none}
