from math import isnan
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.scale.plot import main, span_of


def test_span_is_read_from_its_cell() -> None:
    assert span_of({"append_p50_p99_ms": "1,026, 2,053"}, "append_p50_p99_ms") == (1_026, 2_053)
    assert isnan(span_of({"append_p50_p99_ms": "grows"}, "append_p50_p99_ms")[0])


@pytest.mark.slow
def test_committed_result_is_drawn(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(tmp_path / "scale.svg")])
    assert result.exit_code == 0, result.output
    assert "<svg" in (tmp_path / "scale.svg").read_text()
