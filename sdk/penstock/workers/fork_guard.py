"""Refuses a client that another process made: fork() copies its locks and batches, but not its threads."""

import os
import weakref

from penstock.errors import ForkedError


class ForkGuard:
    """Belongs to one client, which is `what` in errors.

    `is_forked` becomes true in a child by fork(). A client that is called for each record reads it before it calls
    `check`: that costs no call.
    """

    __slots__ = ("__weakref__", "_what", "is_forked")

    def __init__(self, what: str) -> None:
        self._what = what
        self.is_forked = False  # this process was forked after the client was made
        _guards.add(self)

    def check(self) -> None:
        """Raises ForkedError in a process that was forked after the client was made. Takes no lock."""
        if self.is_forked:
            raise ForkedError(
                f"this {self._what} was made before fork(), and its threads or tasks stayed in the parent: make one in "
                "each process, as in gunicorn's post_fork, uWSGI's postfork or Celery's worker_process_init"
            )


_guards: "weakref.WeakSet[ForkGuard]" = weakref.WeakSet()


def _forked() -> None:
    for guard in _guards:
        guard.is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
