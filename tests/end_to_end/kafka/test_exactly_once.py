"""Copiers in transactions on the deployed stack, killed with their gateway: each record is in the target once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Admin
from tests.end_to_end.local_stack import Stack
from tests.kafka.exactly_once.copying import COPIER_KINDS, PARTITIONS, Copying, copy_and_kill

pytestmark = [pytest.mark.stack, pytest.mark.minutes]


@pytest.fixture(params=COPIER_KINDS)
def copying(
    request: pytest.FixtureRequest, stack: Stack, admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Copying]:
    """Processes that find the stack by their environment, with topics of their own."""
    variables = {
        "PENSTOCK_URL": stack.url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": stack.access_key_id,
        "AWS_SECRET_ACCESS_KEY": stack.secret_access_key,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    kind = request.param
    copying = Copying(
        folder=tmp_path,
        copier=COPIER_KINDS[kind](tmp_path),
        source=f"source-{kind}",
        target=f"target-{kind}",
        group=f"copiers-{kind}",
    )
    for topic in (copying.source, copying.target):
        admin.create_topic(topic, partitions=PARTITIONS)
    try:
        yield copying
    finally:
        copying.close()


def test_each_record_is_copied_once_on_the_stack_when_copiers_and_gateway_are_killed(copying: Copying) -> None:
    copy_and_kill(copying)
