"""The files that the checks look at: files that git tracks, and new files that git does not ignore."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


def source_files(root: Path, suffix: str, under: Sequence[str] = ()) -> list[Path]:
    """The files below `root` whose name ends with `suffix`, sorted, as paths relative to `root`.

    `under` keeps the files and folders that it names. A file that git still tracks but that is deleted is left out.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *(under or ["."])]
    listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    paths = sorted({Path(name) for name in listing.split("\0") if name.endswith(suffix)})
    return [path for path in paths if (root / path).is_file()]
