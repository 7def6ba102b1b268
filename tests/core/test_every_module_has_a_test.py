from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {"functions/penstock_core": "tests/core", "sdk/penstock/cli/options": "tests/sdk/cli/options"}


@pytest.mark.parametrize(("code", "tests"), ROOMS.items())
def test_every_module_has_a_test_file_of_its_name_in_the_same_room(code: str, tests: str) -> None:
    modules = [path.relative_to(ROOT / code) for path in (ROOT / code).rglob("*.py") if path.name != "__init__.py"]
    missing = [path for path in modules if not (ROOT / tests / path.parent / f"test_{path.name}").is_file()]
    assert modules
    assert missing == []
