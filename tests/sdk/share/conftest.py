from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import running_loop
from tests.sdk.share.share_kinds import ShareKind, ShareLoop, ShareThreaded
from tests.sdk.share.work_group import WorkGroup


@pytest.fixture
def workers(service: MemoryPenstock) -> WorkGroup:
    return WorkGroup(service)


@pytest.fixture(params=["threads", "asyncio"])
def consumers(request: pytest.FixtureRequest, workers: WorkGroup) -> Iterator[ShareKind]:
    """Share consumers of the group, with threads and for asyncio: each test runs with both."""
    if request.param == "threads":
        yield ShareThreaded(workers.transport)
    else:
        with running_loop() as loop:
            yield ShareLoop(workers.transport, loop)
