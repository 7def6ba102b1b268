"""Where a local stack keeps its files: what one stack owns, and what all stacks of a checkout share."""

from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DEFAULT_STATE_DIR = Path(".penstock")
# Shared by all state directories of the checkout: both are named by the hash of what they are made from.
CACHE = CHECKOUT / ".penstock"


@dataclass(frozen=True, slots=True)
class Places:
    """The files of one local stack, all below its state directory."""

    state_dir: Path

    @property
    def env_file(self) -> Path:
        """What clients need, as KEY=value lines: URL, endpoint, region and an IAM user's keys. Mode 0600."""
        return self.state_dir / "local.env"

    @property
    def jobs_env_file(self) -> Path:
        """What Spark jobs need, in the same form: tables, zones, queue, endpoint, region and keys. Mode 0600."""
        return self.state_dir / "jobs.env"

    @property
    def lock(self) -> Path:
        """Held by the emulator's process for as long as it lives."""
        return self.state_dir / "emulator.lock"

    @property
    def command_lock(self) -> Path:
        """Held by `up` and `down`, which run one at a time."""
        return self.state_dir / "command.lock"

    @property
    def process(self) -> Path:
        """The emulator's pid and port, as JSON; true only while `lock` is held."""
        return self.state_dir / "emulator.json"

    @property
    def log(self) -> Path:
        """What the emulator prints."""
        return self.state_dir / "emulator.log"

    @property
    def deployment(self) -> Path:
        """What is deployed: the fingerprint of its sources and the stack's outputs, as JSON."""
        return self.state_dir / "deployment.json"

    @property
    def cloud_assembly(self) -> Path:
        """What the CDK app synthesizes."""
        return self.state_dir / "cdk.out"

    @property
    def tables(self) -> Path:
        """The emulator's state but for S3 objects, written when it stops."""
        return self.state_dir / "emulator-state"

    @property
    def objects(self) -> Path:
        """The emulator's S3 objects, written as they come."""
        return self.state_dir / "emulator-s3"

    @property
    def temporary(self) -> Path:
        """The emulator's and its functions' temporary files, removed by `down`."""
        return self.state_dir / "tmp"
