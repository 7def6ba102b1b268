"""Defects of the gateway's transactions that the seeds of test_any_order.py must find."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock_core.errors import PenstockError
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.transactions import begin_and_end
from penstock_kafka.transactions.epochs.producers import Producers
from penstock_kafka.transactions.epochs.sequences import Sequences
from penstock_kafka.transactions.epochs.transactional_producer import Ending, TransactionalProducer
from penstock_kafka.transactions.refusals import abortable, unknown_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`defect` takes the place of an attribute."""

    name: str
    place: object
    attribute: str
    defect: Callable[..., Any]


_end = Producers.end
_learn = TransactionalProducer._learn
_finish = TransactionalProducer._end


async def _unknown_commit_is_abortable(self: Producers, name: str, epoch: tuple[int, int], *, is_commit: bool) -> None:
    try:
        await _end(self, name, epoch, is_commit=is_commit)
    except RequestRefused as error:
        if error.code is KafkaError.invalid_txn_state:
            raise unknown_epoch(name) from error
        raise


async def _abort_elsewhere_fences_nothing(self: Producers, name: str, epoch: tuple[int, int]) -> None:
    return


async def _unknown_epoch_is_adopted(self: Producers, name: str, epoch: tuple[int, int], *, is_commit: bool) -> None:
    """A commit of an epoch that is not known here: nothing is open here, so nothing is to do."""
    try:
        await _end(self, name, epoch, is_commit=is_commit)
    except RequestRefused:
        if not is_commit:
            raise


async def _doubt_is_abortable(self: TransactionalProducer, transaction: Any, failure: PenstockError) -> None:
    try:
        await _learn(self, transaction, failure)
    except RequestRefused as error:
        if error.code is not KafkaError.coordinator_not_available:
            raise
        transaction.doubt = None
        raise self._fail(transaction, abortable("nobody knows")) from error


def _aborted_data_stays(self: TransactionalProducer, ending: Ending) -> None:
    if ending is Ending.COMMITTED:
        _finish(self, ending)


MUTANTS = [
    Mutant(
        name="a commit that another gateway may have made is abortable",
        place=Producers,
        attribute="end",
        defect=_unknown_commit_is_abortable,
    ),
    Mutant(
        name="a commit of an unknown epoch succeeds",
        place=Producers,
        attribute="end",
        defect=_unknown_epoch_is_adopted,
    ),
    Mutant(
        name="an abort at another gateway does not end the epoch",
        place=Producers,
        attribute="abort_unknown",
        defect=_abort_elsewhere_fences_nothing,
    ),
    Mutant(
        name="a repeated batch is new",
        place=Sequences,
        attribute="is_new",
        defect=lambda self, place, batch: True,
    ),
    Mutant(
        name="a commit in doubt is abortable",
        place=TransactionalProducer,
        attribute="_learn",
        defect=_doubt_is_abortable,
    ),
    Mutant(
        name="aborted records stay in the buffer",
        place=TransactionalProducer,
        attribute="_end",
        defect=_aborted_data_stays,
    ),
    Mutant(
        name="a late EndTxn counts",
        place=begin_and_end,
        attribute="refuse_if_gone",
        defect=lambda call: None,
    ),
]
