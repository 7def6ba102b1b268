from pathlib import Path

import pytest

from penstock_kafka.security.users import UsersFileError, read_users


def _file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "users"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_users_have_their_own_passwords(tmp_path: Path) -> None:
    users = read_users(_file(tmp_path, "# users\n\nanna:correct:horse-battery\nbo:another-password\n"))
    assert users.has("anna", "correct:horse-battery")
    assert not users.has("anna", "another-password")
    assert not users.has("", "")
    assert not users.has("carl", "")


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("anna:long-enough-password", 0o644, "may be read by others"),
        ("", 0o600, "has no users"),
        ("anna", 0o600, "line 1: give NAME:PASSWORD"),
        ("anna:short-one", 0o640, "may be read by others"),
        ("anna:short", 0o600, "12 characters or more"),
        ("anna:long-enough-1\nanna:long-enough-2", 0o600, "each name once"),
    ],
)
def test_file_of_users_is_refused_without_telling_a_password(tmp_path: Path, text: str, mode: int, said: str) -> None:
    with pytest.raises(UsersFileError, match=said) as refused:
        read_users(_file(tmp_path, text, mode))
    assert "long-enough" not in str(refused.value)


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsersFileError, match="cannot be read"):
        read_users(tmp_path / "none")
