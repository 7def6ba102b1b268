"""Batches without the marks of their transaction, and sequences."""

import pytest

from penstock_core.errors import PenstockError
from penstock_core.records.record_batch import parse_header, validate
from penstock_kafka.errors import RequestRefused
from penstock_kafka.transactions.epochs.sequences import SEQUENCES, Sequences, plain_batch
from tests.kafka.transactions.desk import Client, transactional_batch

_CLIENT = Client(producer_id=7, epoch=3)
_PLACE = ("orders", 0)


def test_plain_batch_is_what_the_service_takes_with_the_same_records() -> None:
    sent = transactional_batch(_CLIENT, 5, ("a", "b"))
    batch = plain_batch(sent)
    assert (batch.producer_id, batch.producer_epoch, batch.first_sequence, batch.next_sequence) == (7, 3, 5, 7)
    assert validate(batch.data).sequence is None
    assert not parse_header(batch.data).is_transactional
    assert batch.data[61:] == sent[61:]


def test_flipped_bit_two_batches_and_plain_batches_are_refused() -> None:
    sent = transactional_batch(_CLIENT, 0, ("a",))
    for data in (sent[:-1] + b"x", sent + sent, plain_batch(sent).data, sent[:30]):
        with pytest.raises((RequestRefused, PenstockError)):
            plain_batch(data)


def test_sequence_after_the_last_is_zero() -> None:
    sequences, last = Sequences(), plain_batch(transactional_batch(_CLIENT, SEQUENCES - 1, ("a",)))
    with pytest.raises(RequestRefused):
        sequences.is_new(_PLACE, last)
    sequences.take(_PLACE, last)
    assert sequences.is_new(_PLACE, plain_batch(transactional_batch(_CLIENT, 0, ("b",))))
    assert not sequences.is_new(_PLACE, last)
