"""EndTxn: commits the transaction, or gives it up."""

import logging

from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.transactions.epochs.producers import Producers
from penstock_kafka.transactions.refusals import code_for, refuse_if_gone

_LOG = logging.getLogger("penstock.kafka.transactions")


class EndTxn:
    """Answers EndTxn."""

    def __init__(self, producers: Producers) -> None:
        self._producers = producers

    async def answer(self, call: Call) -> Answer:
        """The outcome. The answer has no place for a message, so a refusal is logged."""
        request = call.request
        name, epoch = str(request.transactional_id), (int(request.producer_id), int(request.producer_epoch))
        try:
            refuse_if_gone(call)
            await self._producers.end(name, epoch, is_commit=bool(request.committed))
        except (PenstockError, RequestRefused) as error:
            code = code_for(error, call)
            verb = "commit" if request.committed else "abort"
            _LOG.warning("transactional id %s: %s is answered %s: %s", name, verb, code.name, error)
            return {"error_code": code}
        return {"error_code": KafkaError.none}
