"""Workers of Kafka Connect as processes: Connect's own programs, from the jars of `make test-kafka-clients`."""

import http.client
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.end_to_end.local_stack import free_port
from tests.support.child_process import child_process
from tests.support.kafka_jars import compile_java, kafka_jars

_STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
_DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
# jetty-security 12 is not among the jars. `java` has classes of the same names: the REST server has no security.
CONNECT_JARS = (
    *("kafka-clients-", "connect-api", "connect-runtime", "connect-json", "connect-transforms", "maven-artifact"),
    *("jetty-alpn-client-12", "jetty-client-12", "jetty-ee10-", "jetty-http-12", "jetty-io-12", "jetty-server-12"),
    *("jetty-session-12", "jetty-util-12", "jersey-", "hk2-", "osgi-", "jackson-", "jakarta.", "javassist-"),
    *("aopalliance-", "commons-lang3", "jose4j", "lz4-java", "plexus-utils", "re2j", "snappy-java", "zstd-jni"),
    *("slf4j-api-2", "log4j-api", "log4j-core", "log4j-slf4j2"),
)
_LOGGING = """<Configuration status="WARN">
<Appenders><Console name="e" target="SYSTEM_ERR"><PatternLayout pattern="%d %p %c{1} %m%n"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="e"/></Root></Loggers>
</Configuration>"""
_STRINGS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectWorker:
    """A worker, and the port of its REST API."""

    process: "subprocess.Popen[Any]"
    port: int

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON that the REST API answers. Status 0: it does not answer yet, or not in JSON."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=100)
        try:
            link.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            answer = link.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data else None
        except (OSError, ValueError):
            return 0, None
        finally:
            link.close()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """Connect with plug-ins, in a folder that holds its settings and logs."""

    folder: Path
    class_path: str
    plugins: Path

    @contextmanager
    def standalone(
        self, address: str, connectors: Mapping[str, Mapping[str, str]], **settings: str
    ) -> Iterator[ConnectWorker]:
        """A worker of its own. It keeps the offsets of sources in a file of the folder."""
        files = [
            self._properties(name, {"name": name, "tasks.max": "1", **config}) for name, config in connectors.items()
        ]
        own = {"offset.storage.file.filename": str(self.folder / "offsets"), "bootstrap.servers": address}
        with self._worker(_STANDALONE, "standalone", {**own, **settings}, files) as worker:
            yield worker

    @contextmanager
    def distributed(self, name: str, address: str, **settings: str) -> Iterator[ConnectWorker]:
        """A worker of the group `workers`, with that group's three topics."""
        own = {
            "bootstrap.servers": address,
            "group.id": "workers",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "config.storage.replication.factor": "-1",
            "offset.storage.replication.factor": "-1",
            "status.storage.replication.factor": "-1",
        }
        with self._worker(_DISTRIBUTED, name, {**own, **settings}, []) as worker:
            yield worker

    @contextmanager
    def _worker(
        self, program: str, name: str, settings: Mapping[str, str], files: list[Path]
    ) -> Iterator[ConnectWorker]:
        port = free_port()
        own = {
            **_STRINGS,
            "listeners": f"http://127.0.0.1:{port}",
            "plugin.path": str(self.plugins),
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "500",
        }
        logging = self.folder / "log4j2.xml"
        logging.write_text(_LOGGING)
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}"]
        command += ["-cp", self.class_path, program, str(self._properties(name, {**own, **settings})), *map(str, files)]
        log = (self.folder / f"{name}.log").open("a")
        with log, child_process(command, deadline_s=600, stdout=log, stderr=log) as process:
            yield ConnectWorker(process=process, port=port)

    def _properties(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


def connect(folder: Path, *plugins: str) -> Connect:
    """Connect with a plug-in of the jars whose names begin so. Skips the test if the jars are not installed."""
    classes, plugin = folder / "classes", folder / "plugins/plugin"
    classes.mkdir()
    plugin.mkdir(parents=True)
    for jar in kafka_jars(*plugins):
        (plugin / jar.name).symlink_to(jar)
    sources = sorted(Path(__file__).with_name("java").rglob("*.java"))
    return Connect(
        folder=folder, class_path=compile_java(sources, kafka_jars(*CONNECT_JARS), classes), plugins=plugin.parent
    )
