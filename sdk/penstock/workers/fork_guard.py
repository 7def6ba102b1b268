"""Refuses a client that another process made: fork() copies its locks and batches, but not its threads."""

from penstock.errors import ForkedError
from penstock.system import fork_count


class ForkGuard:
    """Belongs to one client, which is `what` in errors."""

    __slots__ = ("_forks", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._forks = fork_count()

    @property
    def is_forked(self) -> bool:
        """This process was forked after the client was made."""
        return fork_count() != self._forks

    def check(self) -> None:
        """Raises ForkedError in a process that was forked after the client was made. Takes no lock."""
        if fork_count() != self._forks:
            raise ForkedError(
                f"this {self._what} was made before fork(), and its threads or tasks stayed in the parent: make one in "
                "each process, as in gunicorn's post_fork, uWSGI's postfork or Celery's worker_process_init"
            )
