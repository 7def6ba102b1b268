"""The files of local stacks: those that one stack owns, and those that all stacks of a checkout share."""

from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DEFAULT_STATE_DIR = Path(".penstock")
# All state directories of the checkout share it. A hash of their inputs names the folders in it.
CACHE = CHECKOUT / ".penstock"


@dataclass(frozen=True, slots=True)
class Places:
    """The files of one local stack, all below its state directory."""

    state_dir: Path

    @property
    def env_file(self) -> Path:
        """The settings of clients as KEY=value lines: URL, endpoint, region and an IAM user's keys. Mode 0600."""
        return self.state_dir / "local.env"

    @property
    def jobs_env_file(self) -> Path:
        """The settings of Spark jobs in the same form: tables, zones, queue, endpoint, region and keys. Mode 0600."""
        return self.state_dir / "jobs.env"

    @property
    def lock(self) -> Path:
        """A lock that the emulator's process holds as long as it lives."""
        return self.state_dir / "emulator.lock"

    @property
    def command_lock(self) -> Path:
        """A lock that `up` and `down` hold, so that they run one at a time."""
        return self.state_dir / "command.lock"

    @property
    def process(self) -> Path:
        """The emulator's pid and port, as JSON. They hold only while `lock` is held."""
        return self.state_dir / "emulator.json"

    @property
    def log(self) -> Path:
        """The output of the emulator."""
        return self.state_dir / "emulator.log"

    @property
    def deployment(self) -> Path:
        """The deployment: the fingerprint of its sources and the stack's outputs, as JSON."""
        return self.state_dir / "deployment.json"

    @property
    def cloud_assembly(self) -> Path:
        """The folder that the CDK app synthesizes to."""
        return self.state_dir / "cdk.out"

    @property
    def tables(self) -> Path:
        """The emulator's state without S3 objects. The emulator writes it when it stops."""
        return self.state_dir / "emulator-state"

    @property
    def objects(self) -> Path:
        """The emulator's S3 objects. The emulator writes each at once."""
        return self.state_dir / "emulator-s3"

    @property
    def temporary(self) -> Path:
        """The temporary files of the emulator and its functions. `down` removes them."""
        return self.state_dir / "tmp"
