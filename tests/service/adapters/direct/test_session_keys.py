"""The keys of a directory bucket's session: who renews them when, and what a failed renewal leaves."""

import pytest

from penstock_service.adapters.direct.places import Keys
from penstock_service.adapters.direct.s3 import SessionKeys
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from tests.support.service import SteppedClock

_SLOW_DOWN = AnsweredError("SlowDown", status=503)


class _S3:
    """Gives sessions of five minutes, numbered; or refuses."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.tries = 0
        self.refuses = False

    def create(self) -> tuple[Keys, float]:
        self.tries += 1
        if self.refuses:
            raise _SLOW_DOWN
        return Keys(f"key {self.tries}", "secret", "token"), self.clock.time_ms / 1_000 + 300


@pytest.fixture
def s3() -> _S3:
    return _S3(SteppedClock())


def _at(s3: _S3, keys: SessionKeys, left_s: float) -> str:
    """The key of a call when so many seconds of the first session are left."""
    s3.clock.time_ms = 1_000_000.0 + (300 - left_s) * 1_000
    return keys.current().access_key


def test_keys_are_renewed_in_the_minute_before_the_last(s3: _S3) -> None:
    keys = SessionKeys(s3.create, s3.clock)
    assert [_at(s3, keys, left_s) for left_s in (300, 121, 119, 118)] == ["key 1", "key 1", "key 2", "key 2"]


def test_keys_that_are_good_go_on_when_a_renewal_fails(s3: _S3) -> None:
    keys = SessionKeys(s3.create, s3.clock)
    assert _at(s3, keys, 300) == "key 1"
    s3.refuses = True
    assert [_at(s3, keys, left_s) for left_s in (119, 118, 110, 108, 61)] == ["key 1"] * 5
    assert s3.tries == 4  # one each ten seconds: at 119, 108 and 61
    s3.refuses = False
    assert _at(s3, keys, 60.5) == "key 1"
    assert _at(s3, keys, 60) == "key 5"


def test_call_fails_when_no_keys_are_good_for_a_minute(s3: _S3) -> None:
    keys = SessionKeys(s3.create, s3.clock)
    assert _at(s3, keys, 300) == "key 1"
    s3.refuses = True
    with pytest.raises(AnsweredError):
        _at(s3, keys, 59)
