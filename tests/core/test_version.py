"""The releases: which step a stage may take, and that each release is recorded."""

import tomllib

import pytest

from localstack.places import CHECKOUT
from penstock_core.version import RELEASES, VERSION, refusal_of_step

THREE = ("0.1.0", "0.2.0", "0.3.0")


@pytest.mark.parametrize(
    ("deployed", "new", "refusal"),
    [
        ("0.1.0", "0.1.0", ""),
        ("0.1.0", "0.2.0", ""),
        ("0.2.0", "0.1.0", ""),
        ("0.1.0", "0.3.0", "deploy 0.2.0 before 0.3.0"),
        ("0.3.0", "0.1.0", "deploy 0.2.0 before 0.1.0"),
        ("0.4.0", "0.3.0", "which 0.3.0 does not know"),
    ],
)
def test_step_goes_to_a_neighbour_only(deployed: str, new: str, refusal: str) -> None:
    found = refusal_of_step(deployed, new, THREE)
    assert refusal in found
    assert bool(found) == bool(refusal)


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_has_its_section_of_the_changelog_and_its_recorded_store(release: str) -> None:
    assert f"\n## [{release}] - 20" in (CHECKOUT / "CHANGELOG.md").read_text()
    golden = CHECKOUT / "tests" / "golden" / release
    assert {"stored.json", "folder.sql"} <= {each.name for each in golden.iterdir()}


def test_package_has_the_newest_release() -> None:
    assert tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"] == VERSION
    numbers = [tuple(int(part) for part in each.split(".")) for each in RELEASES]
    assert numbers == sorted(set(numbers))
