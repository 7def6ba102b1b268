"""Repair on the deployed stack: missing and damaged copies come back, and healthy appends cost nothing."""

import json
from collections.abc import Callable

import pytest

from penstock.http.transport import HttpTransport
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.raw_requests import append, read_all
from tests.end_to_end.stack_storage import StackStorage
from tests.support.deadlines import until
from tests.support.tasks import start

pytestmark = pytest.mark.stack
DEADLINE_S = 120


def repaired(holds: Callable[[], object], failure: str) -> None:
    """Waits until the condition holds, or fails with this message."""
    until(holds, shown=lambda: failure, deadline_s=DEADLINE_S)


def test_lost_and_rotten_copies_are_served_from_elsewhere_and_healed(
    storage: StackStorage, transport: HttpTransport, topic: str
) -> None:
    append(transport, topic, b"value", acks="all")
    [ref] = storage.refs(topic)
    whole = storage.body(2, ref)
    assert whole is not None
    storage.lose(0, ref)
    storage.flip(1, ref, 70)
    storage.restart_fetch()  # a new instance asks the zones in order, so it meets both bad copies

    def is_healed() -> bool:
        assert read_all(transport, topic) == [(0, b"value")]
        return storage.bodies(ref) == [whole] * 3

    repaired(is_healed, "the copies were not healed")


@pytest.mark.minutes
def test_put_that_a_zone_refused_is_made_good_when_the_zone_takes_puts_again(
    storage: StackStorage, transport: HttpTransport, topic: str
) -> None:
    append(transport, topic, b"before", acks="all")
    with storage.refusing_puts(2):
        append(transport, topic, b"missed")
        ref = storage.refs(topic)[-1]
        assert ref.zones == 0b011
        repaired(lambda: bool(storage.replicate_lines("repair_postponed")), "nobody tried to repair it")
        assert storage.body(2, ref) is None
    repaired(lambda: storage.refs(topic)[-1].zones == 0b111, "the ref does not say that every zone has it")
    first, second, third = storage.bodies(ref)
    assert first is not None
    assert first == second == third
    assert read_all(transport, topic) == [(0, b"before"), (1, b"missed")]


@pytest.mark.minutes
def test_healthy_appends_invoke_replicate_never(storage: StackStorage, transport: HttpTransport, topic: str) -> None:
    for count in range(40):  # with rolls among them
        append(transport, topic, b"%d" % count, acks="all")
    # The stream is in order: once this event is through, all events before it are.
    with storage.refusing_puts(1):
        append(transport, topic, b"missed")
    repaired(lambda: storage.refs(topic)[-1].zones == 0b111, "the ref does not say that every zone has it")
    partition = storage.partition(topic)
    assert [line["records"] for line in storage.replicate_lines() if partition in line["partitions"]] == [1]


@pytest.mark.minutes
def test_scrub_heals_copies_that_no_consumer_has_read(
    stack: Stack, storage: StackStorage, transport: HttpTransport, topic: str
) -> None:
    for count in range(20):  # a page and a tail
        append(transport, topic, b"%d" % count, acks="all")
    refs = storage.refs(topic)
    whole = [storage.body(2, ref) for ref in refs]
    for index, ref in enumerate(refs):
        if index % 2:
            storage.lose(index % 3, ref)
        else:
            storage.flip(index % 3, ref, 70)
    answer = start(stack.root_client("lambda"), "scrub")
    done = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, done
    # Other tests on this stack have damaged copies too.
    assert done["copied"] >= 10
    assert done["healed"] >= 10
    assert done["is_finished"]
    assert [storage.bodies(ref) for ref in refs] == [[body] * 3 for body in whole]
    assert read_all(transport, topic) == [(count, b"%d" % count) for count in range(20)]
