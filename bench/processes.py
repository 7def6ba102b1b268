"""Finds the processes below one in /proc: to kill them, to see how long they outlive it, and to sum their CPU."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process. `started` (clock ticks since the boot) tells it from a later process with the same pid."""

    pid: int
    parent: int
    command: str
    started: int

    @property
    def is_alive(self) -> bool:
        now = _read(self.pid)
        return now is not None and now.started == self.started

    def kill(self) -> None:
        """Sends SIGKILL if the process is still alive."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Sends SIGSTOP if the process is still alive. It then stands still until it is killed."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def tree(pid: int) -> list[Process]:
    """The process and all living processes below it, parents first."""
    alive = [process for path in Path("/proc").glob("[0-9]*") if (process := _read(int(path.name)))]
    found = [process for process in alive if process.pid == pid]
    for parent in found:  # the list grows in the loop
        found += [process for process in alive if process.parent == parent.pid]
    return found


def cpu_seconds_used() -> float:
    """The CPU seconds of this process and of all living processes below it, such as Spark's JVM and Python workers."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    ours, found = {os.getpid()}, {os.getpid()}
    while found:
        found = {pid for pid, parent in parents.items() if parent in found} - ours
        ours |= found
    return sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def _read(pid: int) -> Process | None:
    """The process as it is now, or None if it has ended. A zombie counts as ended."""
    try:
        head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    if fields[0] in "ZX":
        return None
    return Process(pid=pid, parent=int(fields[1]), command=head.partition("(")[2], started=int(fields[19]))
