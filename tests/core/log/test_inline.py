import pytest

from penstock_core.limits import INLINE_BYTES_MAX
from penstock_core.log.inline import parse_inline_bytes_max


@pytest.mark.parametrize(
    ("text", "bytes_max"), [(None, 0), ("", 0), ("0", 0), ("960", 960), (str(INLINE_BYTES_MAX), INLINE_BYTES_MAX)]
)
def test_bound_is_the_number_of_the_variable(text: str | None, bytes_max: int) -> None:
    assert parse_inline_bytes_max(text) == bytes_max


@pytest.mark.parametrize("text", [str(INLINE_BYTES_MAX + 1), "-1", "1e3", "many", "\u0663"])
def test_bound_is_refused_when_it_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=f"give 0 to {INLINE_BYTES_MAX} bytes"):
        parse_inline_bytes_max(text)
