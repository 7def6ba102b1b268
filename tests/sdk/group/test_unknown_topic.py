import logging

import pytest

from penstock.errors import InvalidError
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import until


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "does not exist" in each.getMessage()]


def test_group_that_waits_for_an_unknown_topic_is_told_once_in_the_log(
    service: MemoryPenstock, clients: ClientKind, caplog: pytest.LogCaptureFixture
) -> None:
    service.create_topic("known")
    with caplog.at_level(logging.WARNING), clients.consumer("nope", group_id="g") as consumer:
        until(lambda: _warnings(caplog), step=lambda: consumer.poll(timeout_ms=20))
        assert consumer.poll(timeout_ms=20) == []
        assert _warnings(caplog) == ["topic 'nope' does not exist: group 'g' waits for it"]
        consumer.subscribe(["known", "none"])
        until(lambda: len(_warnings(caplog)) == 2 or consumer.assignment(), step=lambda: consumer.poll(timeout_ms=20))


def test_commit_without_a_group_is_refused_before_a_record_was_returned(
    service: MemoryPenstock, clients: ClientKind
) -> None:
    service.create_topic("orders")
    with clients.consumer("orders") as consumer, pytest.raises(InvalidError, match="group_id"):
        consumer.commit()
