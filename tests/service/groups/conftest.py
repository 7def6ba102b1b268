"""Fixtures of the tests in this folder."""

import pytest

from penstock_service.instance.instance import Instance
from tests.support.group_member import GroupMember
from tests.support.service import (
    another_instance,
    filled_topic,
)


@pytest.fixture
def orders(instance: Instance) -> str:
    return filled_topic(instance, "orders", 6)


@pytest.fixture
def a(instance: Instance, orders: str) -> GroupMember:
    return GroupMember(instance, "a")


@pytest.fixture
def b(instance: Instance, orders: str) -> GroupMember:
    return GroupMember(another_instance(instance), "b")
