"""The trace context of one record on all its ways through the deployed stack."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock import Admin, Consumer, Producer, ShareConsumer
from penstock.errors import ErrorCode
from penstock.model import ConsumerRecord
from penstock_core.push.targets.target import target_to_json
from tests.end_to_end.jobs.test_spark_jobs import outputs, run_job
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.target_resources import TargetResources
from tests.sdk.telemetry.conftest import recorded
from tests.sdk.telemetry.recorded import Recorded, carried_by, context_of, parent_of
from tests.support.deadlines import until
from tests.support.refusals import refused

pytestmark = [pytest.mark.stack, pytest.mark.minutes]
__all__ = ["outputs", "recorded"]

SENT, MIRROR, DEAD, AGAIN = "traced", "traced-mirror", "traced-dead", "traced-again"
FROM_THE_START = {"start": "earliest"}


def test_context_survives_delay_push_share_group_dead_letter_redrive_archive_and_replay(
    stack: Stack, recorded: Recorded, outputs: dict[str, str], tmp_path: Path
) -> None:
    resources = TargetResources(stack)
    queue = resources.queue("traced")
    with Admin(transport=stack.transport()) as admin:
        for name in (SENT, MIRROR, DEAD, AGAIN):
            admin.create_topic(name)
        told = refused(
            ErrorCode.ACCESS_DENIED,
            lambda: admin.put_subscription("traced-queue", SENT, target_to_json(queue), FROM_THE_START),
        )
        resources.grant(queue, told.message)
        admin.put_subscription("traced-queue", SENT, target_to_json(queue), FROM_THE_START)
        admin.put_subscription("traced-copy", SENT, {"topic": MIRROR}, FROM_THE_START)
        admin.create_share_group("traced-workers", MIRROR, {**FROM_THE_START, "dead_letter_topic": DEAD})
        with Producer(transport=stack.transport()) as producer:
            producer.send(SENT, b"1", delay_ms=1_000).result()
        created = context_of(recorded.span(f"create {SENT}"))

        [message] = resources.received(queue, 1)
        carried = message["MessageAttributes"]["traceparent"]["StringValue"]
        assert carried_by((("traceparent", carried.encode()),)) == created
        until(lambda: bool(records(stack, MIRROR)))
        with ShareConsumer(MIRROR, group_id="traced-workers", transport=stack.transport()) as workers:
            record = next(workers)
            with workers.processing(record):
                workers.reject(record, "bad")
            workers.flush()
            until(lambda: workers.poll(timeout_ms=200) == [] and bool(records(stack, DEAD)))
        assert parent_of(recorded.span(f"process {MIRROR}")) == created
        assert admin.redrive(DEAD).moved == 1

    run_job(stack, outputs, tmp_path, "archive", "--topic", SENT)
    assert run_job(stack, outputs, tmp_path, "replay", "--table", SENT, "--to", AGAIN)["appended"] == 1
    found = {name: [carried_by(each.headers) for each in records(stack, name)] for name in (SENT, MIRROR, DEAD, AGAIN)}
    assert found == {SENT: [created], MIRROR: [created] * 2, DEAD: [created], AGAIN: [created]}


def records(stack: Stack, topic: str) -> Sequence[ConsumerRecord]:
    """All records of a topic."""
    with Consumer(topic, transport=stack.transport(), auto_offset_reset="earliest") as consumer:
        return consumer.poll(timeout_ms=500)
