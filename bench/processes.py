"""The processes below one, as /proc has them: to kill them, or to see how long they live without it."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process. `started` (clock ticks since the boot) tells it from a later one with the same pid."""

    pid: int
    parent: int
    command: str
    started: int

    @property
    def is_alive(self) -> bool:
        now = _read(self.pid)
        return now is not None and now.started == self.started

    def kill(self) -> None:
        """SIGKILL, if it is still there."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """SIGSTOP, if it is still there: until it is killed."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def tree(pid: int) -> list[Process]:
    """The process and all below it that are alive, parents first."""
    alive = [process for path in Path("/proc").glob("[0-9]*") if (process := _read(int(path.name)))]
    found = [process for process in alive if process.pid == pid]
    for parent in found:  # grows meanwhile
        found += [process for process in alive if process.parent == parent.pid]
    return found


def _read(pid: int) -> Process | None:
    """None if it has ended, also where nobody has waited for it yet."""
    try:
        head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    if fields[0] in "ZX":
        return None
    return Process(pid=pid, parent=int(fields[1]), command=head.partition("(")[2], started=int(fields[19]))
