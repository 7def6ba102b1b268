from collections.abc import Iterator

import pytest

from tests.end_to_end.kafka.gateway_process import gateway_process
from tests.end_to_end.local_stack import Stack, free_port


@pytest.fixture(scope="module")
def servers(stack: Stack) -> Iterator[str]:
    """The address of a gateway in front of the deployed stack."""
    port = free_port()
    with gateway_process(stack, port):
        yield f"127.0.0.1:{port}"
