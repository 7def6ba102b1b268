from penstock_core import limits

NUMBERS = {name: value for name, value in vars(limits).items() if name.isupper() and isinstance(value, int | float)}


def test_every_limit_is_positive_but_the_word_for_none() -> None:
    assert {name for name, value in NUMBERS.items() if value <= 0} == {"UNLIMITED"}


def test_every_default_lies_within_its_bounds() -> None:
    for name, value in NUMBERS.items():
        for suffix in ("_DEFAULT", "_DEFAULT_MAX"):
            base = name.removesuffix(suffix)
            if base != name:
                assert NUMBERS.get(f"{base}_MIN", value) <= value <= NUMBERS.get(f"{base}_MAX", value), name


def test_every_minimum_is_at_most_its_maximum() -> None:
    for name, value in NUMBERS.items():
        if name.endswith("_MIN"):
            assert value <= NUMBERS.get(f"{name.removesuffix('_MIN')}_MAX", value), name


def test_request_in_base64_fits_into_lambda_s_payload() -> None:
    assert limits.REQUEST_BYTES_MAX * 4 // 3 < 6_000_000
    assert limits.BATCH_BYTES_MAX + limits.FRAME_HEADER_BYTES_MAX <= limits.REQUEST_BYTES_MAX


def test_what_one_call_of_dynamodb_reads_or_writes_is_100_at_most() -> None:
    assert limits.REQUEST_PARTITIONS_MAX <= 100
    assert limits.ACQUIRE_MAX <= 100
    assert limits.TRANSACTION_PARTS_MAX + 1 <= 100


def test_sweep_waits_longer_than_any_writer_may_take() -> None:
    assert limits.TRANSACTION_MS_MAX * 4 < limits.TIERED_SWEEP_GRACE_MS < limits.SWEEP_GRACE_MS
    # No staged transaction outlives its id, with clocks minutes apart.
    assert limits.TRANSACTION_MS_MAX * 4 < limits.TRANSACTIONAL_ID_RENEWED_MS < limits.TRANSACTIONAL_ID_KEPT_MS / 4
    assert limits.COMPACTION_RUN_MS_MAX * 4 < limits.TIERED_SWEEP_GRACE_MS


def test_sweep_knows_the_segments_that_a_swap_retired_for_longer_than_its_grace() -> None:
    assert limits.SWEEP_GRACE_MS * 2 <= limits.RETIRED_KEPT_MS


def test_session_lasts_several_heartbeats_by_default() -> None:
    beats = limits.SESSION_TIMEOUT_MS_DEFAULT // limits.HEARTBEAT_INTERVAL_MS_DEFAULT
    assert beats >= limits.HEARTBEATS_PER_SESSION_MIN
