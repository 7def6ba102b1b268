"""One deployed stack for all end-to-end tests, on a free port, with a temporary state directory."""

from collections.abc import Iterator

import pytest

from penstock import Admin
from penstock.http.transport import HttpTransport
from tests.end_to_end.local_stack import Stack, free_port, run, up
from tests.end_to_end.stack_storage import StackStorage

__all__ = ["Stack"]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Takes about 4 s if .penstock/ already holds the emulator and the functions' dependencies."""
    state_dir = tmp_path_factory.mktemp("local-stack")
    try:
        yield up(state_dir, "--port", str(free_port()))
    finally:
        done = run("down", state_dir)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def transport(stack: Stack) -> Iterator[HttpTransport]:
    transport = stack.transport()
    yield transport
    transport.close()


@pytest.fixture
def admin(stack: Stack) -> Iterator[Admin]:
    with Admin(transport=stack.transport()) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions, with the name of the test."""
    name = "".join(letter if letter.isalnum() else "." for letter in request.node.name)[:200].strip(".")
    admin.create_topic(name, partitions=3)
    return name


@pytest.fixture(scope="module")
def storage(stack: Stack) -> StackStorage:
    [found] = stack.root_client("cloudformation").describe_stacks(StackName="Penstock")["Stacks"]
    return StackStorage(stack, {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]})
