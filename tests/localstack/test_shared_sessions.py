"""Two emulators know each other's sessions of roles, if they share a folder."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localstack.shared_sessions import share_sessions

SESSION = {"Arn": "arn:aws:sts::000000000000:assumed-role/mirror/penstock", "Expiration": 1e10}


def sts(folder: str | None) -> Any:
    """MiniStack's module of STS, after the change."""
    module = SimpleNamespace(_sessions={})
    share_sessions(module, folder)
    return module


def test_session_is_known_to_another_emulator_when_both_share_a_folder(tmp_path: Path) -> None:
    first, second = sts(str(tmp_path)), sts(str(tmp_path))
    first._sessions["ASIA1"] = SESSION
    assert "ASIA1" in second._sessions
    assert second._sessions.get("ASIA1") == SESSION
    assert [*second._sessions.items()] == [("ASIA1", SESSION)]


@pytest.mark.parametrize("key", ["ASIA2", "", "..", "../secret"])
def test_session_is_unknown_when_no_emulator_made_it(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "sessions").mkdir()
    known = sts(str(tmp_path / "sessions"))._sessions
    assert key not in known
    assert known.get(key, 1) == 1


def test_sessions_stay_apart_when_there_is_no_folder() -> None:
    assert type(sts(None)._sessions) is dict


def test_change_is_refused_when_ministack_keeps_sessions_in_another_way() -> None:
    with pytest.raises(RuntimeError, match=r"shared_sessions\.py"):
        share_sessions(SimpleNamespace(), None)
