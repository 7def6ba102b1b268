"""A registry for each test."""

from collections.abc import Iterator

import pytest

from tests.support.schema_registry import SchemaRegistry, running_registry


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as found:
        yield found
