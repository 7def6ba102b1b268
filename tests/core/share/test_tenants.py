from penstock_core.records.codec import NewRecord, Record, decode, encode
from penstock_core.share.tenants import FINISHED, NO_TENANT, KnownTenants, TenantBatch, tenant_of


def record(key: bytes | None = None, *headers: tuple[str, bytes | None]) -> Record:
    [made] = decode(encode([NewRecord(1_000, key, b"", headers)]))
    return made


KNOWN = KnownTenants([TenantBatch.of(5, (1, FINISHED, 2, 1), 100), TenantBatch.of(0, (1, 2, 2), 50)])


def test_the_key_or_the_last_header_of_the_name_tells_the_tenant() -> None:
    assert tenant_of("key", record(b"a")) == tenant_of("team", record(b"b", ("team", b"x"), ("team", b"a")))
    assert tenant_of("key", record(b"a")) != tenant_of("key", record(b"b"))


def test_records_without_the_key_or_the_header_are_of_no_tenant_and_an_empty_one_is() -> None:
    assert tenant_of("key", record()) == tenant_of("team", record(b"a", ("team", None))) == NO_TENANT
    assert NO_TENANT not in (tenant_of("key", record(b"")), tenant_of("team", record(None, ("team", b""))))


def test_counts_are_by_tenant_and_unknown_records_are_of_none() -> None:
    assert KNOWN.count(((1, 7), (8, 12))) == {2: 2, 1: 2, NO_TENANT: 2 + 3}
    assert KNOWN.count(()) == {}


def test_what_is_known_ends_at_the_first_gap() -> None:
    assert [KNOWN.end_from(offset) for offset in (0, 2, 3, 6, 9)] == [3, 3, 3, 9, 9]


def test_unknown_and_finished_ranges_lie_within_those_that_were_asked_for() -> None:
    assert KNOWN.unknown(((1, 6), (8, 12))) == ((3, 5), (9, 12))
    assert (KNOWN.finished(0, 20), KNOWN.finished(7, 20)) == (((6, 7),), ())


def test_the_first_records_of_each_tenant_are_those_of_a_walk_and_are_remembered_once_all_are_known() -> None:
    assert KNOWN.first_of(((0, 4), (5, 9)), 2) == {1: [0, 5], 2: [1, 2], FINISHED: [6], NO_TENANT: [3]}
    later = KnownTenants([*KNOWN.batches, TenantBatch.of(3, (7, 7), 50)], KNOWN)
    assert later.first_of(((0, 4), (5, 9)), 2) == {1: [0, 5], 2: [1, 2], FINISHED: [6], 7: [3]}
    known = later.first_of(((0, 9),), 3)
    assert known == {1: [0, 5, 8], 2: [1, 2, 7], FINISHED: [6], 7: [3, 4]}
    assert KnownTenants((), later).first_of(((0, 9),), 3) is known
    assert later.size > KnownTenants(later.batches).size


def test_what_is_remembered_of_ranges_has_a_bound() -> None:
    known = KnownTenants([TenantBatch.of(0, tuple(range(1, 1_001)), 50)])
    for most in range(1, 100):
        known.first_of(((0, 1_000),), most)
        assert known.size < 2_000_000
    assert known.first_of(((0, 1_000),), 99) is known.first_of(((0, 1_000),), 99)


def test_a_batch_tells_a_tenants_offsets_and_its_size_grows_with_them() -> None:
    batch = KNOWN.batch_at(7)
    assert batch is not None
    assert [[*batch.offsets(tenant, 5, 8)] for tenant in (1, 2, 3)] == [[5], [7], []]
    assert (batch.end, KNOWN.batch_at(4), KNOWN.batch_at(9)) == (9, None, None)
    assert TenantBatch.of(0, range(100), 1).size > TenantBatch.of(0, [1] * 100, 1).size > batch.size


def test_batches_within_ranges_have_an_offset_in_one_of_them() -> None:
    first, second = KNOWN.batches
    ends = {(): [], ((0, 1),): [first], ((2, 3), (8, 9)): [first, second], ((3, 5), (9, 12)): [], ((6, 7),): [second]}
    assert {ranges: KNOWN.within(ranges) for ranges in ends} == ends
