"""The release is the same in the code and in the package."""

import tomllib
from pathlib import Path

from penstock_core.version import VERSION


def test_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
