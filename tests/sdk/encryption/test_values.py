"""Values in and out: what is bound to them, how long a data key lasts, and what a stranger cannot do."""

import json
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.encryption import HEADER, DataKey, Encryption, LocalKeys
from penstock.errors import AccessDeniedError, CorruptError, InvalidError, LookUpFirst, UnavailableError
from penstock_core.errors import ErrorCode
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, MIB
from tests.support.deadlines import DEADLINE_S

KEYS = {"2026": os.urandom(32)}


class CountedKeys(LocalKeys):
    """Local keys that count how often they were asked."""

    def __init__(self, keys: Mapping[str, bytes] = KEYS) -> None:
        super().__init__(keys)
        self.made: list[Mapping[str, str]] = []
        self.unwrapped = 0

    def new_data_key(self, context: Mapping[str, str]) -> DataKey:
        self.made.append(context)
        return super().new_data_key(context)

    def unwrap(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        self.unwrapped += 1
        return super().unwrap(key_id, wrapped, context)


def reader(keys: Mapping[str, bytes] = KEYS, **options: Any) -> Encryption:
    return Encryption(LocalKeys(keys), **options)


@given(
    value=st.binary(max_size=300) | st.binary(max_size=8).map(lambda some: some * 100),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    compress=st.booleans(),
)
def test_reader_gets_what_was_sent(
    value: bytes, key: bytes | None, headers: list[tuple[str, bytes | None]], compress: bool
) -> None:
    sealed, told = Encryption(LocalKeys(KEYS), compress=compress).encrypt("orders", value, key=key, headers=headers)
    assert sealed != value
    assert [*told][:-1] == headers
    assert reader().decrypt(sealed, key=key, headers=told) == (value, tuple(headers))


def test_tombstone_and_plain_record_stay_as_they_are() -> None:
    keys = CountedKeys()
    encryption = Encryption(keys)
    assert encryption.encrypt("orders", None, key=b"k", headers=[("a", b"1")]) == (None, [("a", b"1")])
    assert encryption.decrypt(b"plain", key=b"k", headers=(("a", b"1"),)) == (b"plain", (("a", b"1"),))
    assert keys.made == []


def test_text_is_sent_as_utf_8() -> None:
    sealed, told = reader().encrypt("orders", "grün", key="schlüssel")
    assert reader().decrypt(sealed, key="schlüssel".encode(), headers=told)[0] == "grün".encode()


def test_value_does_not_move_to_another_key_nor_with_another_header() -> None:
    sealed, told = reader().encrypt("orders", b"100 euros", key=b"ada")
    assert sealed is not None
    [(name, header)] = told
    other = json.dumps(json.loads(header or b"") | {"extra": 1}).encode()
    for value, key, headers in (
        (sealed, b"bob", told),
        (sealed, None, told),
        (sealed, b"ada", [(name, other)]),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), b"ada", told),
        (b"short", b"ada", told),
    ):
        with pytest.raises(CorruptError, match="was changed"):
            reader().decrypt(value, key=key, headers=headers)


def test_empty_key_and_no_key_are_two() -> None:
    sealed, told = reader().encrypt("orders", b"1", key=b"")
    with pytest.raises(CorruptError):
        reader().decrypt(sealed, key=None, headers=told)


def test_context_of_the_sender_is_bound_to_the_data_key_and_cannot_be_changed() -> None:
    keys = CountedKeys()
    sealed, told = Encryption(keys, context={"stage": "prod"}).encrypt("orders", b"1")
    assert keys.made == [{"penstock:topic": "orders", "stage": "prod"}]
    [(name, header)] = told
    document = json.loads(header or b"")
    document["context"]["penstock:topic"] = "payments"
    with pytest.raises(CorruptError, match="for this context"):
        reader().decrypt(sealed, headers=[(name, json.dumps(document).encode())])


def test_copy_in_another_topic_decrypts_by_the_context_of_the_first() -> None:
    sealed, told = reader().encrypt("orders", b"1", key=b"k")
    moved = (*told, ("penstock.dead-letter.topic", b"orders"))
    assert reader().decrypt(sealed, key=b"k", headers=moved) == (b"1", moved[1:])


def test_record_that_is_encrypted_already_is_not_encrypted_twice() -> None:
    sealed, told = reader().encrypt("orders", b"1")
    with pytest.raises(InvalidError, match="is encrypted already"):
        reader().encrypt("copy", sealed, headers=told)


@pytest.mark.parametrize("headers", [["name"], [(1, 2, 3)], 5])
def test_headers_of_another_form_are_refused(headers: Any) -> None:
    with pytest.raises(InvalidError, match="headers="):
        reader().encrypt("orders", b"1", headers=headers)


def test_value_of_another_type_is_refused_and_never_sent_plain() -> None:
    with pytest.raises(InvalidError, match="value is of type int: give bytes"):
        reader().encrypt("orders", 5)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("options", "asked"),
    [({}, 1), ({"max_records": 2}, 2), ({"max_bytes": 20}, 2), ({"max_age_s": 2}, 2)],
    ids=["usual", "records", "bytes", "age"],
)
def test_data_key_lasts_for_its_time_its_records_and_its_bytes(options: dict[str, Any], asked: int) -> None:
    now_ms, keys = [0], CountedKeys()
    encryption = Encryption(keys, now_ms=lambda: now_ms[0], **options)
    records = []
    for _ in range(4):
        records.append(encryption.encrypt("orders", b"0123456789"))
        now_ms[0] += 1_000
    assert len(keys.made) == asked
    assert len({tuple(headers) for _, headers in records}) == asked
    assert len({value for value, _ in records}) == 4, "each value has a nonce of its own"
    assert [reader().decrypt(value, headers=headers)[0] for value, headers in records] == [b"0123456789"] * 4


def test_each_topic_has_a_data_key_of_its_own() -> None:
    keys = CountedKeys()
    encryption = Encryption(keys)
    for topic in ("orders", "payments", "orders"):
        encryption.encrypt(topic, b"1")
    assert [each["penstock:topic"] for each in keys.made] == ["orders", "payments"]


def test_reader_asks_once_for_each_data_key() -> None:
    records = [reader(max_records=1).encrypt("orders", b"1") for _ in range(2)] * 3
    keys = CountedKeys()
    encryption = Encryption(keys)
    for value, headers in records:
        assert encryption.decrypt(value, headers=headers)[0] == b"1"
    assert keys.unwrapped == 2


def test_reader_without_the_key_asks_again_after_a_while_only() -> None:
    sealed, told = reader().encrypt("orders", b"1")
    now_ms, keys = [0], CountedKeys({"other": bytes(32)})
    encryption = Encryption(keys, now_ms=lambda: now_ms[0])
    for asked in (1, 1, 2):
        with pytest.raises(AccessDeniedError, match="by the key '2026'"):
            encryption.decrypt(sealed, headers=told)
        assert keys.unwrapped == asked
        now_ms[0] += 5_000


def test_reader_that_may_not_ask_says_which_data_key_it_lacks() -> None:
    sealed, told = reader().encrypt("orders", b"1")
    asking = reader()
    with pytest.raises(LookUpFirst) as caught:
        asking.decrypt_now(sealed, None, told)
    caught.value.look_up()
    assert asking.decrypt_now(sealed, None, told) == (b"1", ())


@pytest.mark.parametrize(
    "header",
    [b"", b"{}", b"[]", b'{"v":2}', b'{"v":1,"key":"2026","data_key":"?","context":{}}', b'{"v":1,"key":"2026"}'],
)
def test_header_that_is_no_header_is_corrupt(header: bytes) -> None:
    with pytest.raises(CorruptError, match=r"header penstock\.encryption"):
        reader().decrypt(b"1" * 40, headers=[(HEADER, header)])


def test_reader_takes_only_values_with_its_own_context() -> None:
    prod, test = reader(context={"stage": "prod", "team": "a"}), reader(context={"stage": "test"})
    sealed, told = prod.encrypt("orders", b"1")
    assert reader(context={"stage": "prod"}).decrypt(sealed, headers=told)[0] == b"1"
    assert reader().decrypt(sealed, headers=told)[0] == b"1"
    with pytest.raises(CorruptError, match=r"the context .*'prod'.*this reader takes those with \{'stage': 'test'\}"):
        test.decrypt(sealed, headers=told)


def test_plain_value_is_corrupt_where_encryption_is_required() -> None:
    wary = reader(requires=True)
    with pytest.raises(CorruptError, match="the value is not encrypted"):
        wary.decrypt(b"plain", headers=[("a", b"1")])
    assert wary.decrypt(None, headers=[("a", b"1")]) == (None, [("a", b"1")])


class FailingKeys(CountedKeys):
    """Keys that do not answer while `is_down`."""

    is_down = False

    def new_data_key(self, context: Mapping[str, str]) -> DataKey:
        made = super().new_data_key(context)
        if self.is_down:
            raise UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "KMS could not be asked")
        return made


def test_sender_asks_ahead_for_the_next_data_key_and_outlives_a_short_outage() -> None:
    now_ms, keys = [0], FailingKeys()
    encryption = Encryption(keys, max_age_s=1_000, now_ms=lambda: now_ms[0])

    def sent(at_s: int) -> tuple[int, Any]:
        now_ms[0] = at_s * 1_000
        [(_, header)] = encryption.encrypt("orders", b"1")[1]
        return len(keys.made), header

    _, first = sent(0)
    assert sent(899) == (1, first)
    keys.is_down = True
    assert sent(900) == (2, first), "it asks, and the old one serves"
    assert sent(909) == (2, first), "not for each record"
    assert sent(910) == (3, first)
    keys.is_down = False
    assert sent(999)[1] != first
    keys.is_down = True
    with pytest.raises(UnavailableError):
        sent(2_000)
    asked = len(keys.made)
    now_ms[0] += 999
    with pytest.raises(UnavailableError):
        encryption.encrypt("orders", b"1")
    assert len(keys.made) == asked, "a second try within the second asks nobody"
    keys.is_down = False
    assert sent(2_001)[0] == asked + 1


class BlockedKeys(CountedKeys):
    """Keys that answer for `orders` when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def new_data_key(self, context: Mapping[str, str]) -> DataKey:
        if context["penstock:topic"] == "orders":
            self.asked.set()
            assert self.may_answer.wait(DEADLINE_S)
        return super().new_data_key(context)


def test_topic_that_waits_for_its_data_key_holds_up_no_other_nor_itself_while_the_old_one_serves() -> None:
    now_ms, keys = [0], BlockedKeys()
    encryption = Encryption(keys, max_age_s=1_000, now_ms=lambda: now_ms[0])
    for at_ms in (0, 950_000):
        now_ms[0] = at_ms
        keys.asked.clear()
        keys.may_answer.clear()
        with ThreadPoolExecutor(2) as pool:
            asking = pool.submit(encryption.encrypt, "orders", b"1")
            try:
                assert keys.asked.wait(DEADLINE_S)
                pool.submit(encryption.encrypt, "payments", b"1").result(DEADLINE_S / 4)
                if at_ms:
                    pool.submit(encryption.encrypt, "orders", b"2").result(DEADLINE_S / 4)
            finally:
                keys.may_answer.set()
            asking.result(DEADLINE_S)


class ShortKeys(LocalKeys):
    """Keys that unwrap a data key of another length, as KMS does for what a stranger has wrapped by `Encrypt`."""

    def unwrap(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        return super().unwrap(key_id, wrapped, context)[: int(context["length"])]


@pytest.mark.parametrize("length", ["5", "16"])
def test_data_key_of_another_length_is_corrupt(length: str) -> None:
    sealed, told = reader(context={"length": length}).encrypt("orders", b"1")
    with pytest.raises(CorruptError, match=f"has {length} bytes and not 32"):
        Encryption(ShortKeys(KEYS)).decrypt(sealed, headers=told)


def test_context_that_makes_the_header_too_long_for_readers_is_refused() -> None:
    with pytest.raises(InvalidError, match="give less context"):
        reader(context={"a": "x" * 16_384}).encrypt("orders", b"1")


def test_refusal_that_is_remembered_keeps_neither_stack_nor_header() -> None:
    encryption = reader({"other": os.urandom(32)})
    sealed, told = reader().encrypt("orders", b"1")
    for headers in (told, [(HEADER, b"[" * 16_000)]):
        for _ in range(2):
            with pytest.raises((AccessDeniedError, CorruptError)):
                encryption.decrypt(sealed, headers=headers)
    assert len(encryption._refusals) == 2
    for digest, (error, _) in encryption._refusals.items():
        assert len(digest) == 32
        assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)


def test_options_of_another_type_are_refused_and_their_bytes_not_told() -> None:
    with pytest.raises(InvalidError, match="keys is of type dict: give KmsKeys"):
        Encryption(KEYS)  # type: ignore[arg-type]  # on purpose


def forged(content: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    """A value whose plaintext its sender has made up. The sender has the key."""
    encryption = Encryption(LocalKeys(KEYS))
    setattr(encryption, "_formed", lambda _: content)  # noqa: B010 - a sender of another release
    sealed, told = encryption.encrypt("orders", b"1")
    return sealed or b"", [(name, value or b"") for name, value in told]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x02new",
        b"\x01\x00",
        b"\x01" + (BATCH_DECODED_BYTES_MAX + 1).to_bytes(4, "big") + b"x",
        b"\x01" + (5).to_bytes(4, "big") + b"no zstd",
    ],
)
def test_content_of_another_release_and_bombs_are_refused(content: bytes) -> None:
    sealed, told = forged(content)
    with pytest.raises(CorruptError, match="a decrypted value cannot be read"):
        reader().decrypt(sealed, headers=told)


def test_value_that_compresses_is_smaller_and_another_one_is_29_bytes_longer() -> None:
    value = b'{"customer": 7, "item": "book"}' * 40
    assert len(reader().encrypt("orders", value)[0] or b"") < len(value) / 5
    assert len(reader(compress=False).encrypt("orders", value)[0] or b"") == len(value) + 29
    noise = os.urandom(MIB)
    assert len(reader().encrypt("orders", noise)[0] or b"") == MIB + 29


@pytest.mark.parametrize(
    "options",
    [
        {"max_age_s": 0},
        {"max_records": 0},
        {"max_records": 2**32 + 1},
        {"max_bytes": 0},
        {"context": {"penstock:topic": "x"}},
        {"context": {"a": 1}},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        reader(**options)


def test_keys_of_another_kind_are_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidError, match="give KmsKeys"):
        Encryption("arn:aws:kms:eu-west-1:111122223333:key/1")  # type: ignore[arg-type]  # on purpose
