"""A streaming query in a process of its own, over its lives, and the state of its checkpoint and its sink.

`main` is the program of that process.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import click

import penstock_spark
from bench.processes import Process, tree
from bench.spark.local_spark import local_session
from localstack.clients import ROOT_KEY, client, endpoint_url
from penstock import Admin
from penstock.configuration import find_configuration
from penstock_spark.sink.writing import transactional_id

FILES, TOPIC = "files", "topic"
_STORAGE = tuple(
    f"PENSTOCK_{name}" for name in ("TOPICS_TABLE", "LOG_TABLE", "GROUPS_TABLE", "REPAIR_QUEUE_URL", "ZONES", "ARCHIVE")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """The state in the query's checkpoint.

    `begun` and `ended` number the last micro-batch that has begun and that has ended; -1 stands for none. `records` is
    the number of records up to the end of `ended`.
    """

    begun: int
    ended: int
    records: int


@dataclass(slots=True, kw_only=True)
class Query:
    """The query over its lives. One folder holds all its files."""

    kind: str
    source: str
    sink: str
    folder: Path
    environment: Mapping[str, str]
    offsets_max: int
    lives: int = 0
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    def start(self) -> None:
        self.lives += 1
        options = {
            "source": self.source,
            "kind": self.kind,
            "sink": self.sink,
            "checkpoint": str(self.folder / "checkpoint"),
            "started": str(self._started),
            "offsets-max": str(self.offsets_max),
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.spark.killed_query", *arguments],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def has_started(self) -> bool:
        """True once the query of this life runs. Raises ClickException if its process has ended by itself."""
        if self.process is None or self.process.poll() is not None:
            log = (self.folder / "log").read_text(errors="replace")
            raise click.ClickException(f"the query of {self.source} has ended by itself: {log[-4_000:]}")
        return self._started.exists()

    def kill(self, *, spares_workers: bool) -> list[Process]:
        """Sends SIGKILL to driver and JVM, and to the workers unless it spares them. Returns the spared workers."""
        if self.process is None:
            return []
        for each in _jvm(tree(self.process.pid)):
            each.stop()  # so that the JVM starts no new worker
        processes = tree(self.process.pid)
        driver = _jvm(processes)
        workers = [each for each in processes if each not in driver]
        for each in driver if spares_workers else processes:
            each.kill()
        self.process.wait()
        return workers if spares_workers else []

    def noted(self) -> Noted:
        begun, ended = (self._last(name) for name in ("offsets", "commits"))
        return Noted(begun=begun, ended=ended, records=self._records(ended))

    def is_written(self, batch_id: int, admin: Admin) -> bool:
        """True if the sink holds that micro-batch, by the sink's own log or offsets."""
        if self.kind == FILES:
            log = Path(self.sink) / "_spark_metadata"
            return any((log / f"{batch_id}{suffix}").exists() for suffix in ("", ".compact"))
        query_id = json.loads((self.folder / "checkpoint" / "metadata").read_text())["id"]
        return any(each.offset > batch_id for each in admin.group_offsets(transactional_id(query_id)))

    @property
    def _started(self) -> Path:
        return self.folder / f"started-{self.lives}"

    def _last(self, name: str) -> int:
        found = (self.folder / "checkpoint" / name).glob("[0-9]*")
        return max((int(path.name) for path in found), default=-1)

    def _records(self, batch_id: int) -> int:
        if batch_id < 0:
            return 0
        text = (self.folder / "checkpoint" / "offsets" / str(batch_id)).read_text()
        return sum(json.loads(text.splitlines()[-1])[self.source].values())


def environment_of_stack() -> dict[str, str]:
    """The environment by which a process finds the storage of the stack that PENSTOCK_URL names, with the root keys."""
    found = find_configuration()
    port = urlsplit(found.url).port
    if port is None:
        raise click.ClickException(f"PENSTOCK_URL={found.url!r} is no local stack: `penstock local up` starts one")
    deployed = client("lambda", port).get_function_configuration(FunctionName="penstock-produce")
    variables: Mapping[str, str] = deployed["Environment"]["Variables"]
    return {
        **{name: variables[name] for name in _STORAGE if name in variables},
        "AWS_REGION": str(found.region),
        "AWS_ENDPOINT_URL": endpoint_url(port),
        "AWS_ACCESS_KEY_ID": ROOT_KEY,
        "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
    }


def _jvm(processes: Sequence[Process]) -> list[Process]:
    """The driver and its JVM among the processes of a query. All other processes are Python workers."""
    return [each for number, each in enumerate(processes) if not number or each.command == "java"]


@click.command(help="The streaming query itself, which runs until it is killed.")
@click.option("--source", required=True, help="The topic to read.")
@click.option("--kind", required=True, type=click.Choice([FILES, TOPIC]), help="The kind of the sink.")
@click.option("--sink", required=True, help="A topic, or a folder.")
@click.option("--checkpoint", required=True, help="The query's folder, the same for all its lives.")
@click.option("--started", required=True, type=click.Path(path_type=Path), help="Made when the query has started.")
@click.option("--offsets-max", required=True, type=int, help="Most of a micro-batch.")
def main(source: str, kind: str, sink: str, checkpoint: str, started: Path, offsets_max: int) -> None:
    spark = local_session()
    penstock_spark.register(spark)
    stream = (
        spark.readStream.format("penstock")
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=str(offsets_max))
        .load()
    )
    if kind == FILES:
        rows = stream.selectExpr("partition", "offset", "cast(value as string) value")
        writer = rows.writeStream.format("parquet").option("path", sink)
    else:
        rows = stream.selectExpr("partition", "concat(offset, ' ', cast(value as string)) value")
        writer = rows.writeStream.format("penstock").option("topic", sink)
    query = writer.option("checkpointLocation", checkpoint).start()
    started.touch()
    query.awaitTermination()


if __name__ == "__main__":
    main()
