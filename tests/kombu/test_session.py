import multiprocessing
import os
from typing import Any

import pytest

from penstock import InvalidError
from penstock.testing import MemoryPenstock
from penstock_kombu.session import Session, TransportOptions


def test_options_have_names_that_are_known() -> None:
    options = TransportOptions.parse({"lock_ms": 5_000, "queue_name_prefix": "shop-", "max_retries": 3})
    assert options == TransportOptions(lock_ms=5_000, queue_name_prefix="shop-")
    assert options.topic("celery") == "shop-celery"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"visibility_timeout": 3600}, "'visibility_timeout'.*locks are renewed while tasks run"),
        ({"polling_interval": 1}, "nothing polls"),
        ({"lok_ms": 1}, "'lok_ms'.*use create_queues, .*lock_ms"),
        ({"lock_ms": 999}, "lock_ms=999: use a whole number from 1000"),
        ({"lock_ms": 43_200_001}, "lock_ms=43200001: use 1,000 to 43,200,000"),
        ({"lock_ms": "30"}, "lock_ms='30'"),
        ({"hold_ms_max": -1}, "hold_ms_max=-1"),
        ({"delivery_timeout_ms": 0}, "delivery_timeout_ms=0"),
        ({"partitions": 0}, "partitions=0"),
        ({"create_queues": "no"}, "create_queues='no': use True or False"),
        ({"queue_name_prefix": 7}, "queue_name_prefix=7"),
        ({"dead_letter_suffix": ""}, "dead_letter_suffix=''"),
    ],
)
def test_option_is_refused_with_what_to_do(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidError, match=says):
        TransportOptions.parse(options)


@pytest.mark.parametrize("address", ["penstock://", "penstock:///", "http://127.0.0.1:4567", "https://host/prod"])
def test_address_of_a_stage_is_taken(address: str) -> None:
    Session(address, TransportOptions())


@pytest.mark.parametrize("address", ["penstock://host/prod", "localhost", "https://", "", "amqp://host"])
def test_other_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidError, match=r"use penstock:// for the stage of the environment, or penstock\+https"):
        Session(address, TransportOptions())


def _child(session: Session, before: tuple[int, int], answers: Any) -> None:
    session.close()  # kombu closes an inherited connection: that leaves the parent's clients alone
    admin, producer = session.admin(), session.producer()
    answers.send((session.is_forked, (id(admin), id(producer)) != before, os.getpid()))


def test_child_by_fork_gets_clients_of_its_own(service: MemoryPenstock) -> None:
    session = Session("penstock://", TransportOptions(transport=service.transport))
    service.create_topic("celery")
    before = session.admin(), session.producer()
    answers, child_answers = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=_child, args=(session, (id(before[0]), id(before[1])), child_answers)
    )
    child.start()
    assert answers.recv() == (True, True, child.pid)
    child.join()
    assert (session.admin(), session.producer()) == before
    assert session.producer().send("celery", b"still open").result().offset == 0
    session.close()
