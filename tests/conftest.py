"""The profiles of Hypothesis, the tests that take long, the order and the shares in which several processes run the
tests, and the watch over tests that hang.

A test of a property has no time limit, because a busy machine would break it. `make check` runs the profile `quick`
with fewer examples; `make test` runs the full number. A test that names its own number of examples keeps it.
"""

import faulthandler
import gc
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from botocore.loaders import JSONFileLoader
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.hangs import HANGS_AFTER_S, LONG_HANGS_AFTER_S, failing_when_it_hangs

# The tests of one of these folders share a stack, a Spark session or a CDK app, so one process runs all of them.
# They begin first: they take long, and the many small shares behind them then fill both processes to the end.
_SHARING = ("tests/end_to_end/", "tests/glue_jobs/", "tests/docs/", "tests/infra/")
_SHARING_NOTHING = "tests/simulation/"  # a seed is a world of its own, and some take a minute

# The beginnings of ids, by the mark that they get. `minutes`: 4 s or more on two busy cores, with a shorter twin.
# `slow`: the tests, and whole files, that take most CPU, so that the others fit into the 90 s of `make check`.
LISTS = {
    mark: tuple(Path(__file__).with_name(name).read_text().splitlines())
    for mark, name in (("minutes", "long_tests.txt"), ("slow", "slow_tests.txt"))
}

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("patient"), max_examples=20)
settings.load_profile("patient")


class ShareScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a process a folder of `_SHARING`, a test of `_SHARING_NOTHING`, or else the tests of one file."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith(_SHARING_NOTHING):
            return nodeid
        return next((folder for folder in _SHARING if path.startswith(folder)), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ShareScheduling:
    """Share the tests out as above."""
    return ShareScheduling(config, log)


# boto3 reads megabytes of JSON for each session and service. Tests of a process share what its clients change there.
_read_model = cache(JSONFileLoader().load_file)
pytest.MonkeyPatch().setattr(JSONFileLoader, "load_file", lambda _, path: _read_model(path))

gc.disable()  # until all tests are collected: what the imports make stays, and the collector takes a sixth of the CPU


def pytest_collection_finish() -> None:
    """Let the collector pass over what the imports have made, and come less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before the plugin of `-m` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the lists. Put the folders of `_SHARING` first, then `_SHARING_NOTHING`, then all others."""
    for item in items:
        for mark, beginnings in LISTS.items():
            if item.nodeid.startswith(beginnings):
                item.add_marker(mark)
    first = (*_SHARING, _SHARING_NOTHING)

    def place(item: pytest.Item) -> int:
        return next((place for place, folder in enumerate(first) if item.nodeid.startswith(folder)), len(first))

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Watch over the fixtures of a test. pyproject's limit for hanging processes is too short for the long ones."""
    if _is_long(item):
        faulthandler.cancel_dump_traceback_later()
    with failing_when_it_hangs(_limit_s(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Watch over a test."""
    with failing_when_it_hangs(_limit_s(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Watch over the end of its fixtures."""
    with failing_when_it_hangs(_limit_s(item)):
        return (yield)


def _limit_s(item: pytest.Item) -> float:
    return LONG_HANGS_AFTER_S if _is_long(item) else HANGS_AFTER_S


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("minutes", "chaos"))
