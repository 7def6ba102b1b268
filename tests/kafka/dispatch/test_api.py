import pytest

from penstock_kafka.dispatch.api import Answer, Api, ApiKey, Call, Registry


async def _nothing(_: Call) -> Answer:
    return {}


PRODUCE = Api(key=ApiKey.PRODUCE, versions=(3, 9), handler=_nothing, bytes_max=8)


def test_registry_finds_the_versions_that_are_declared() -> None:
    registry = Registry([PRODUCE])
    assert [registry.find(0, version) is PRODUCE for version in (2, 3, 9, 10)] == [False, True, True, False]
    assert registry.find(1, 3) is None
    assert (registry.bytes_max(0, is_in=True), registry.bytes_max(1, is_in=True)) == (8, 0)
    assert (registry.bytes_max(0, is_in=False), registry.bytes_max(18, is_in=False)) == (0, 16_384)


def test_registry_announces_what_it_serves() -> None:
    assert Registry([PRODUCE]).versions()["api_keys"] == [
        {"api_key": 0, "min_version": 3, "max_version": 9},
        {"api_key": 18, "min_version": 0, "max_version": 4},
    ]


def test_registry_refuses_two_handlers_of_one_api() -> None:
    with pytest.raises(ValueError, match="two handlers declare PRODUCE"):
        Registry([PRODUCE, PRODUCE])
