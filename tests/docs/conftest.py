"""A copy of the checkout as a reader has it after `make run`, with a local stack of its own, for all pages."""

import os
import shutil
import subprocess
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from localstack.emulator import install_ministack, ministack_python
from localstack.places import CACHE, CHECKOUT, Places
from localstack.stack import status
from penstock import Admin
from tests.docs.sessions import reader_environment
from tests.end_to_end.local_stack import free_port, stack_of

UP_S_MAX = 300
PACKAGE_FOLDERS = ("functions", "sdk", "glue_jobs", "infra")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """The copy. Its .venv has the packages of the checkout's and runs the copy's own sources."""

    folder: Path
    environment: Mapping[str, str] = field(repr=False)  # may hold secrets of the machine
    port: int

    @property
    def active(self) -> Mapping[str, str]:
        """The environment of a shell in which the copy's .venv is active."""
        return {**self.environment, "PATH": f"{self.folder / '.venv' / 'bin'}{os.pathsep}{self.environment['PATH']}"}

    def ready(self) -> None:
        """The stack runs, and holds no topic and no group. Where that is so, two commands would take a second each."""
        state_dir = self.folder / ".penstock"
        found = status(Places(state_dir))
        if not (found.is_running and found.is_current):
            self.run("penstock", "local", "up", "--port", str(self.port))
        with Admin(transport=stack_of(state_dir).transport()) as admin:
            for subscription in admin.list_subscriptions():
                admin.delete_subscription(subscription.name)
            for share_group in admin.list_share_groups():
                admin.delete_share_group(share_group.group)
            for group in admin.list_groups():
                admin.delete_group(group.group)
            for topic in admin.list_topics():
                admin.delete_topic(topic.name)

    def run(self, program: str, *arguments: str) -> None:
        """Runs a program of the copy's .venv. Fails the test with what it said, if it fails."""
        done = subprocess.run(
            [str(self.folder / ".venv" / "bin" / program), *arguments],
            cwd=self.folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=UP_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """Takes as long as `penstock local up`: about 20 s, once the emulator and the dependencies are built."""
    folder = tmp_path_factory.mktemp("clone") / "penstock"
    _copy_sources(folder)
    _make_environment(folder / ".venv")
    _share_caches(folder / ".penstock")
    made = Clone(folder=folder, environment=reader_environment(os.environ), port=free_port())
    try:
        yield made
    finally:
        made.run("penstock", "local", "down")


def _copy_sources(folder: Path) -> None:
    """Copy the files that git tracks or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = CHECKOUT / name, folder / name
        if source.is_file():  # neither deleted, nor a link to a folder
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    (folder / "node_modules").symlink_to(CHECKOUT / "node_modules")


def _make_environment(folder: Path) -> None:
    """Make .venv as `make setup` does, in no time: a path file leads to the packages of the checkout's .venv."""
    venv.create(folder, symlinks=True)
    [packages] = (CHECKOUT / ".venv" / "lib").glob("python*/site-packages")
    [own] = folder.glob("lib/python*/site-packages")
    paths = [*(folder.parent / name for name in PACKAGE_FOLDERS), packages]
    (own / "checkout.pth").write_text("".join(f"{path}\n" for path in paths))
    for script in (CHECKOUT / ".venv" / "bin").iterdir():
        target = folder / "bin" / script.name
        if target.exists():
            continue
        text = script.read_bytes()
        first, _, rest = text.partition(b"\n")
        if first.startswith(b"#!") and first.endswith((b"/python", b"/python3")):
            target.write_bytes(b"#!%b\n%b" % (bytes(folder / "bin" / "python"), rest))
            target.chmod(0o755)
        else:
            target.symlink_to(script)


def _share_caches(state: Path) -> None:
    """Link the emulator and the functions' dependencies. Their names hold a hash of their sources."""
    if ministack_python() is None:
        install_ministack()
    (CACHE / "assets").mkdir(parents=True, exist_ok=True)
    state.mkdir()
    for cache in (CACHE / "assets", *CACHE.glob("ministack-*")):
        (state / cache.name).symlink_to(cache)
