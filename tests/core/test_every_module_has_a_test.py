from pathlib import Path

TESTS = Path(__file__).parent
CORE = TESTS.parents[1] / "functions" / "penstock_core"


def test_every_core_module_has_a_test_file_of_its_name_in_the_same_room() -> None:
    modules = [path.relative_to(CORE) for path in CORE.rglob("*.py") if path.name != "__init__.py"]
    missing = [path for path in modules if not (TESTS / path.parent / f"test_{path.name}").is_file()]
    assert modules
    assert missing == []
