"""`penstock kafka` as a process of its own, and what it uses of the machine."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = "from penstock_kafka.command import kafka; kafka()"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcess:
    """A gateway that serves."""

    address: str
    pid: int

    def cpu_s(self) -> float:
        """The CPU time of the process so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / _TICKS

    def memory_mb(self, kind: str = "VmRSS") -> float:
        """The resident memory now, or with `VmHWM` the most that it was."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))
        return kib * 1024 / 1_000_000


@contextmanager
def gateway_process(environment: Mapping[str, str] | None = None, *options: str) -> Iterator[GatewayProcess]:
    """Start a gateway on a free port and wait until it serves. SIGTERM ends it at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "--listen", "127.0.0.1:0", *options],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = line.partition("served at ")[2].partition(";")[0]
        if not address:
            raise RuntimeError(f"the gateway has not started: {line!r}")
        try:
            yield GatewayProcess(address=address, pid=process.pid)
        finally:
            process.terminate()


def machine_cpu_s() -> float:
    """The CPU time that all processes of the machine have used, in seconds."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    return (user + nice + system + irq + softirq) / _TICKS
