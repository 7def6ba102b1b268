from bench.rivals.__main__ import bar_rows, rate_rows
from bench.rivals.race import Load, Stint, Turn, rate


def test_rate_spans_all_clients_and_leaves_out_idle_ones() -> None:
    stints = [
        Stint(records=100, begun_s=0.0, ended_s=1.0),
        Stint(records=300, begun_s=0.5, ended_s=2.0),
        Stint(records=0, begun_s=0.0, ended_s=20.0),
    ]
    assert rate(stints) == 200.0
    assert rate(stints[2:]) == 0.0


def test_bar_is_missed_when_one_way_is_slower() -> None:
    ours, theirs = Turn(sent_per_s=900.0, received_per_s=700.0), Turn(sent_per_s=100.0, received_per_s=100.0)
    rows = bar_rows({(100, 1): {"Penstock": [ours], "Kinesis": [theirs]}, (1_000, 1): {"Kinesis": [theirs]}})
    assert [(row["sent_times"], row["received_times"], row["holds"]) for row in rows] == [(9.0, 7.0, "no")]


def test_rates_are_medians_with_their_span() -> None:
    turns = [Turn(sent_per_s=each, received_per_s=2 * each) for each in (1_000.0, 3_000.0, 2_000.0)]
    (row,) = rate_rows(Load(record_bytes=1_000, clients=1, seconds=1), {"Kinesis": turns})
    assert (row["sent_records_per_s"], row["sent_span"], row["sent_mb_per_s"]) == (2_000, "1,000 to 3,000", 2.0)
    assert row["received_records_per_s"] == 4_000
