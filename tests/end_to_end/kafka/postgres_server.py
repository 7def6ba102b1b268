"""A PostgreSQL server of the test's own, with logical decoding: Debian's package, in a temporary folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.local_stack import free_port
from tests.support.child_process import child_process
from tests.support.deadlines import until

_ACCOUNT = "postgres"  # the server does not run as root


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """The database `postgres` of the server, for the user `postgres`, without a password."""

    programs: Path
    port: int

    def run(self, statements: str) -> str:
        """What the statements print, without headings. Raises CalledProcessError if one fails."""
        command = [str(self.programs / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", _ACCOUNT]
        command += ["-v", "ON_ERROR_STOP=1", "-qtAc", statements]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """The server, until the block ends. Skips the test without PostgreSQL."""
    programs = next((each.parent for each in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    account = _ACCOUNT if os.geteuid() == 0 else None
    folder, port = Path(tempfile.mkdtemp(prefix="penstock-postgres-")), free_port()
    try:
        if account is not None:
            shutil.chown(folder, account)
        initdb = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", _ACCOUNT, "-A", "trust", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, user=account)
        settings = {
            "port": str(port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "wal_level": "logical",
            "fsync": "off",
        }
        command = [str(programs / "postgres"), "-D", str(folder / "data")]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (
            (folder / "server.log").open("w") as log,
            child_process(command, deadline_s=900, stdout=log, stderr=log, user=account),
        ):
            server = Postgres(programs=programs, port=port)
            until(lambda: _answers(server), shown=lambda: (folder / "server.log").read_text()[-2_000:])
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(server: Postgres) -> bool:
    try:
        return server.run("SELECT 1").strip() == "1"
    except subprocess.CalledProcessError:
        return False
