"""One deployed stack for all end-to-end tests: on a free port, with a state directory that goes when they are done."""

from collections.abc import Iterator

import pytest

from tests.end_to_end.local_stack import Stack, free_port, run, up

__all__ = ["Stack"]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Takes about 4 s when the emulator and the functions' dependencies are already in .penstock/."""
    state_dir = tmp_path_factory.mktemp("local-stack")
    try:
        yield up(state_dir, "--port", str(free_port()))
    finally:
        done = run("down", state_dir)
        assert done.returncode == 0, done.stderr
