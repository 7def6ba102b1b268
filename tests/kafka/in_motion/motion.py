"""Gateways and consumers as processes, which a test starts, stops and kills."""

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True, kw_only=True)
class Member:
    """A consumer process."""

    kind: str
    process: "subprocess.Popen[bytes]"


@dataclass(slots=True, kw_only=True)
class Motion:
    """The processes around one group. The gateways find the service by the environment, or by their folder."""

    folder: Path
    group: str
    topic: str
    gateways: list["subprocess.Popen[str]"] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    started: int = 0

    def start_gateway(self) -> None:
        """Start `penstock kafka` on a free port, and wait until it listens."""
        process = subprocess.Popen(
            [sys.executable, "-c", "from penstock.cli import main; main()", "kafka", "--listen", "127.0.0.1:0"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=(self.folder / f"gateway-{len(self.gateways)}.log").open("w"),
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        self.gateways.append(process)
        self.addresses.append(line.partition("served at ")[2].partition(";")[0])
        assert self.addresses[-1], line

    def start_member(self, kind: str) -> Member:
        """Start a consumer. Every second one asks the last gateway first."""
        self.started += 1
        asked = [*self.addresses]
        if self.started % 2:
            asked.reverse()
        if kind == "aiokafka":
            asked = self.addresses[-1:]  # it asks no broker again that its metadata does not name
        notes = self.folder / f"{self.started}-{kind}.notes"
        module = "tests.kafka.in_motion.group_member"
        process = subprocess.Popen(
            [sys.executable, "-m", module, kind, ",".join(asked), self.group, self.topic, str(notes)],
            stderr=notes.with_suffix(".log").open("w"),
        )
        member = Member(kind=kind, process=process)
        self.members.append(member)
        return member

    def stop_member(self, member: Member, how: signal.Signals) -> None:
        """Stop a consumer, and start another one of its kind."""
        self.members.remove(member)
        member.process.send_signal(how)
        self.start_member(member.kind)

    def noted(self) -> list[str]:
        """The values that all consumers have noted, repeats too. A torn last line does not count."""
        found: list[str] = []
        for path in self.folder.glob("*.notes"):
            found += [line[:-1] for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return found

    def close(self) -> None:
        """Kill what runs."""
        for member in self.members:
            member.process.kill()
            member.process.wait()
        for gateway in self.gateways:
            gateway.kill()
            gateway.wait()
