import click
import pytest

from penstock.cli.options.size import SIZE


@pytest.mark.parametrize(
    ("text", "size"), [("100", 100), ("7B", 7), ("1KB", 1_000), ("64KiB", 65_536), ("4mib", 4_194_304)]
)
def test_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert SIZE.convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "KB", "1.5MB", "-1", "1 GiB", "٣"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        SIZE.convert(text, None, None)
