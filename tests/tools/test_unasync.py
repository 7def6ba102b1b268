"""The twins that are in the tree, and what the rules and markers make of small sources."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.unasync import TWINS, main, twin_of

HEADER = "# Generated from async_box.py by `python -m tools.unasync`: change that file.\n"
ROOT = Path(__file__).parent.parent.parent


def _twin(source: str) -> str:
    text = twin_of("sdk/penstock/async_box.py", source)
    assert text.startswith(HEADER)
    return text.removeprefix(HEADER)


def test_check_accepts_the_twins_of_the_tree() -> None:
    done = CliRunner().invoke(main, ["--check"])
    assert (done.output, done.exit_code) == ("", 0)


@pytest.mark.parametrize("twin", TWINS.values())
def test_twin_names_its_source_in_the_first_line_and_awaits_nothing(twin: str) -> None:
    text = (ROOT / twin).read_text()
    assert text.startswith("# Generated from async_")
    for word in ("await", "asyncio", "event loop", "coroutine", "Async", "# sync:"):
        assert word not in text.split("\n", 1)[1]


def test_async_words_and_unused_imports_go() -> None:
    source = '''\
"""A box."""

import asyncio

from penstock.box.async_lid import AsyncLid


class AsyncBox:
    async def __aenter__(self) -> "AsyncBox":
        async with self.lid as lid:
            async for each in lid:
                await asyncio.to_thread(each.shut, 1)
        return self
'''
    assert (
        _twin(source)
        == '''\
"""A box."""


class Box:
    def __enter__(self) -> "Box":
        with self.lid as lid:
            for each in lid:
                each.shut(1)
        return self
'''
    )


def test_marker_replaces_its_whole_statement_or_drops_it() -> None:
    source = """\
def run(box):
    lid = box.lid(  # sync: lid = box.cover()
        1,
        2,
    )
    if lid:  # a reason  # sync:
        lid.shut()
        lid.lock()
    # sync: box.stay()
    try:
        box.open()
    except ValueError:  # sync:
        raise
    finally:
        box.close()
    return lid


@property
def gone(box):  # sync:
    return box
"""
    assert (
        _twin(source)
        == """\
def run(box):
    lid = box.cover()
    box.stay()
    try:
        box.open()
    finally:
        box.close()
    return lid
"""
    )


def test_marker_behind_a_docstring_gives_another_one() -> None:
    source = '''\
def end():
    """End the task.

    It does not wait.
    """  # sync:
    # sync: """End the thread.
    # sync:
    # sync: It waits.
    # sync: """
'''
    assert (
        _twin(source)
        == '''\
def end():
    """End the thread.

    It waits.
    """
'''
    )


def test_sentence_about_an_event_loop_goes_and_its_neighbours_stay() -> None:
    source = '''\
class AsyncBox:
    """Holds `a.b` things. It lives in one event loop, and
    in any task. Shut it. Raises ValueError.

    After a cancellation it is open.
    """
'''
    assert (
        _twin(source)
        == '''\
class Box:
    """Holds `a.b` things. Shut it. Raises ValueError."""
'''
    )
