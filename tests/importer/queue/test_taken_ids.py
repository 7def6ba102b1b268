import pytest

from penstock.errors import InvalidError
from penstock_import.queue import taken_ids
from penstock_import.queue.taken_ids import TakenIds, decode_ids, encode_ids


def test_ids_forget_the_oldest_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken_ids, "IMPORT_MESSAGE_IDS_KEPT", 3)
    ids = TakenIds()
    ids.add(["a", "b", "c"])
    ids.add(["a", "d"])
    assert [each in ids for each in "abcd"] == [True, False, True, True]
    assert len(ids) == 3


def test_note_of_ids_survives_its_encoding() -> None:
    assert decode_ids(encode_ids(["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"v": 2}', b'{"v": 1}'])
def test_note_is_refused_when_it_is_none(value: bytes) -> None:
    with pytest.raises(InvalidError, match=r"no note|later release"):
        decode_ids(value)
