"""How `make test` shares the tests out among processes: folder by folder, for the tests of one share their fixtures.
And no test of a property has a limit of time, which a busy machine would break."""

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_WAITING = "tests/end_to_end/"  # waits for others most of the time, so it begins first and the rest runs beside it

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


class FolderScheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0].rpartition("/")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FolderScheduling:
    return FolderScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(_WAITING))
