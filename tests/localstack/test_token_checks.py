"""The check of a token's signature in the emulator, against another implementation, and which requests reach it."""

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from localstack.token_checks import add_token_checks, share_sessions, takes_token, verify_rs256

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _jwk(key: rsa.RSAPrivateKey) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    return {"n": _text(numbers.n.to_bytes(256, "big")), "e": _text(numbers.e.to_bytes(3, "big"))}


def _signed(key: rsa.RSAPrivateKey, signed: str = "e30.e30") -> str:
    return f"{signed}.{_text(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def test_signature_of_the_key_counts() -> None:
    assert verify_rs256(_signed(KEY), _jwk(KEY))


@pytest.mark.parametrize(
    "token",
    [
        _signed(OTHER),
        _signed(KEY).replace("e30.e30", "e30.e31"),
        _signed(KEY)[:-4],
        f"{_signed(KEY)}AAAA",
        "e30.e30.",
        "e30.e30",
        "",
        "e30.e30.!!!",
        f"e30.e30.{_text(bytes(256))}",
        f"e30.e30.{_text((1).to_bytes(256, 'big'))}",
        f"e30.e30.{_text(bytes([255]) * 256)}",
    ],
)
def test_other_signature_does_not_count(token: str) -> None:
    assert not verify_rs256(token, _jwk(KEY))


@pytest.mark.parametrize("jwk", [{}, {"n": "", "e": ""}, {"n": 1, "e": 2}, {"n": "Aw", "e": "Aw"}, {"k": "AAAA"}])
def test_key_that_is_none_has_signed_nothing(jwk: dict[str, str]) -> None:
    assert not verify_rs256(_signed(KEY), jwk)


def test_only_routes_with_a_jwt_authorizer_take_tokens() -> None:
    def kind(api_id: str, stage: str, method: str, path: str) -> str | None:
        return {("tokens", "GET /v1/topics"): "JWT", ("signed", "GET /v1/topics"): "AWS_IAM"}.get(
            (api_id, f"{method} {path}")
        )

    gateway = SimpleNamespace(route_authorization_type=kind)
    asked = {path: takes_token(gateway, "GET", path) for path in (
        "/_aws/execute-api/tokens/v1/topics",
        "/_aws/execute-api/signed/v1/topics",
        "/_aws/execute-api/tokens/v1/zones",
        "/_aws/execute-api/tokens",
        "/bucket/tokens/v1/topics",
        "/",
    )}  # fmt: skip
    assert [path for path, takes in asked.items() if takes] == ["/_aws/execute-api/tokens/v1/topics"]


def test_emulator_that_checks_in_another_way_is_told() -> None:
    with pytest.raises(RuntimeError, match="another way"):
        add_token_checks(SimpleNamespace())


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
    with pytest.raises(RuntimeError, match=r"token_checks\.py"):
        share_sessions(SimpleNamespace(), None)
